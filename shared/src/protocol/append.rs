//! The typed face of `lua/append.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{Fence, JobId, Owner, PoolName};

/// Publish pieces of a delivery's stream to those who read along.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The job.
    pub id: JobId,
    /// Of the delivery.
    pub fence: Fence,
    /// Of the delivery.
    pub owner: Owner,
    /// Number of the first piece within the delivery, from 1.
    pub first: u64,
    /// Kept per job; older pieces make room.
    pub max_bytes: u64,
    /// In order, without gaps.
    pub pieces: Vec<Vec<u8>>,
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendReply {
    /// Stored, once.
    Appended,
    /// The delivery is not ours any more.
    Lost,
}

impl Step for Append {
    type Reply = AppendReply;
    const SCRIPT: &'static Script = &script::APPEND;

    fn pool(&self) -> &PoolName {
        self.id.pool()
    }

    fn bind(&self, deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, self.pool());
        call.arg("deadline", deadline_ms)
            .arg("id", self.id.bare())
            .arg("fence", self.fence.0)
            .arg("owner", self.owner.expose())
            .arg("first", self.first)
            .arg("max_bytes", self.max_bytes);
        for piece in &self.pieces {
            call.arg("pieces", piece.as_slice());
        }
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<AppendReply, Corrupt> {
        match tag {
            "appended" => Ok(AppendReply::Appended),
            "lost" => Ok(AppendReply::Lost),
            other => Err(unknown_tag(other, reply)),
        }
    }
}
