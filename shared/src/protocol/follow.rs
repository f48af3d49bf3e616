//! The typed face of `lua/follow.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{JobId, PoolName, State};

/// Somebody reads along: deliveries publish their stream from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Follow {
    /// The job.
    pub id: JobId,
    /// The reader's tenant; none: an operator.
    pub tenant: Option<String>,
}

/// What became of a follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowReply {
    /// The job stands there now.
    Following(State),
    /// No such job, or another tenant's.
    Unknown,
}

impl Step for Follow {
    type Reply = FollowReply;
    const SCRIPT: &'static Script = &script::FOLLOW;

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

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<FollowReply, Corrupt> {
        match tag {
            "following" => Ok(FollowReply::Following(reply.word()?)),
            "unknown" => Ok(FollowReply::Unknown),
            other => Err(unknown_tag(other, reply)),
        }
    }
}
