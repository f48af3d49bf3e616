//! The typed face of `lua/read.lua`.

use std::collections::BTreeMap;

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{Job, JobId, PendingReason, PoolName};

/// One job as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The job.
    pub id: JobId,
    /// The reader's tenant; none: an operator.
    pub tenant: Option<String>,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadReply {
    /// The job.
    Job {
        /// Its record.
        job: Box<Job>,
        /// Jobs ahead of it in its pool, where it is queued.
        position: Option<u64>,
        /// Why it waits, where it waits.
        pending_reason: Option<PendingReason>,
        /// Mean time between completions of the pool; none below three samples.
        gap_ms: Option<u64>,
        /// The pool's time.
        now_ms: u64,
    },
    /// No such job, or another tenant's.
    Unknown,
}

impl Step for Read {
    type Reply = ReadReply;
    const SCRIPT: &'static Script = &script::READ;
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        self.id.pool()
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, self.pool());
        call.arg("id", self.id.bare())
            .arg("tenant", self.tenant.as_deref().unwrap_or(""));
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<ReadReply, Corrupt> {
        match tag {
            "unknown" => Ok(ReadReply::Unknown),
            "job" => {
                let position = reply.maybe_number()?;
                let reason = reply.text()?;
                let gap_ms = reply.maybe_number()?;
                let fields: BTreeMap<String, String> = reply.pairs()?;
                let job =
                    Job::from_fields(self.id.clone(), &fields).map_err(|e| reply.corrupt(e))?;
                Ok(ReadReply::Job {
                    job: Box::new(job),
                    position,
                    pending_reason: (!reason.is_empty())
                        .then(|| reason.parse())
                        .transpose()
                        .map_err(|e| reply.corrupt(e))?,
                    gap_ms,
                    now_ms: reply.now_ms(),
                })
            }
            other => Err(unknown_tag(other, reply)),
        }
    }
}
