//! The typed face of `lua/requeue.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{JobId, PoolName, State};

/// A dead letter starts a new life.
#[derive(Clone, Debug, PartialEq)]
pub struct Requeue {
    /// The dead letter.
    pub id: JobId,
    /// Minted by the caller, a word without spaces: the same requeue again is the same one, also once the job died again.
    pub operation: String,
}

/// What became of a requeue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequeueReply {
    /// It waits again.
    Requeued,
    /// It is no dead letter.
    NotDead(State),
    /// A bound of the pool is reached.
    Full {
        /// Name of the setting.
        limit: String,
        /// Its value.
        value: u64,
    },
    /// No such job.
    Unknown,
}

impl Step for Requeue {
    type Reply = RequeueReply;
    const SCRIPT: &'static Script = &script::REQUEUE;

    fn pool(&self) -> &PoolName {
        self.id.pool()
    }

    fn bind(&self, deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, self.pool());
        call.arg("deadline", deadline_ms)
            .arg("id", self.id.bare())
            .arg("operation", self.operation.as_str());
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<RequeueReply, Corrupt> {
        match tag {
            "requeued" => Ok(RequeueReply::Requeued),
            "not_dead" => Ok(RequeueReply::NotDead(reply.word()?)),
            "full" => Ok(RequeueReply::Full {
                limit: reply.text()?,
                value: reply.number()?,
            }),
            "unknown" => Ok(RequeueReply::Unknown),
            other => Err(unknown_tag(other, reply)),
        }
    }
}
