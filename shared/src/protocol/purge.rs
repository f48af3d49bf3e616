//! The typed face of `lua/purge.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{JobId, PoolName, State};

/// Remove one dead letter for good.
#[derive(Clone, Debug, PartialEq)]
pub struct Purge {
    /// The dead letter.
    pub id: JobId,
}

/// What became of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeReply {
    /// It is gone.
    Purged,
    /// It is no dead letter.
    NotDead(State),
    /// No such job.
    Unknown,
}

impl Step for Purge {
    type Reply = PurgeReply;
    const SCRIPT: &'static Script = &script::PURGE;

    fn pool(&self) -> &PoolName {
        self.id.pool()
    }

    fn bind(&self, deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, self.pool());
        call.arg("deadline", deadline_ms).arg("id", self.id.bare());
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<PurgeReply, Corrupt> {
        match tag {
            "purged" => Ok(PurgeReply::Purged),
            "not_dead" => Ok(PurgeReply::NotDead(reply.word()?)),
            "unknown" => Ok(PurgeReply::Unknown),
            other => Err(unknown_tag(other, reply)),
        }
    }
}
