//! The typed face of `lua/cancel.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{JobId, PoolName, State};

/// Terminal at once where the job is not running, else marked for its worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// The job.
    pub id: JobId,
    /// The caller's tenant; none: an operator.
    pub tenant: Option<String>,
}

/// What became of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReply {
    /// It is cancelled.
    Cancelled,
    /// It runs; its worker was told, and no answer of it will be published.
    Cancelling,
    /// A terminal came first.
    Already(State),
    /// No such job, or another tenant's.
    Unknown,
}

impl Step for Cancel {
    type Reply = CancelReply;
    const SCRIPT: &'static Script = &script::CANCEL;

    fn pool(&self) -> &PoolName {
        self.id.pool()
    }

    fn bind(&self, deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, self.pool());
        call.arg("deadline", deadline_ms)
            .arg("id", self.id.bare())
            .arg("tenant", self.tenant.as_deref().unwrap_or(""));
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<CancelReply, Corrupt> {
        match tag {
            "cancelled" => Ok(CancelReply::Cancelled),
            "cancelling" => Ok(CancelReply::Cancelling),
            "already" => Ok(CancelReply::Already(reply.word()?)),
            "unknown" => Ok(CancelReply::Unknown),
            other => Err(unknown_tag(other, reply)),
        }
    }
}
