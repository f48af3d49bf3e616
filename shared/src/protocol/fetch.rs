//! The typed face of `lua/fetch.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{JobId, PoolName};

/// What is kept of a job beside its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// What its client submitted, as MessagePack.
    Envelope,
    /// The model's body.
    Result,
}

/// Read a part of what is kept of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetch {
    /// The job.
    pub id: JobId,
    /// What of it.
    pub what: Kept,
    /// First byte, from 0.
    pub from: u64,
    /// Most bytes; 0: only how many there are.
    pub max_bytes: u64,
}

impl Fetch {
    /// More than the server lets a string have (`proto-max-bulk-len`, 512 MiB).
    pub const WHOLE_BYTES: u64 = 1 << 30;
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchReply {
    /// Bytes of the whole; 0: there is none, or it is gone.
    pub size: u64,
    /// The part that was asked for.
    pub bytes: Vec<u8>,
}

impl Step for Fetch {
    type Reply = FetchReply;
    const SCRIPT: &'static Script = &script::FETCH;
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        self.id.pool()
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        let what = match self.what {
            Kept::Envelope => "envelope",
            Kept::Result => "result",
        };
        let mut call = Call::new(Self::SCRIPT, self.pool());
        call.arg("what", what)
            .arg("id", self.id.bare())
            .arg("from", self.from.min(Self::WHOLE_BYTES))
            .arg("most", self.max_bytes.min(Self::WHOLE_BYTES));
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<FetchReply, Corrupt> {
        if tag != "kept" {
            return Err(unknown_tag(tag, reply));
        }
        Ok(FetchReply {
            size: reply.number()?,
            bytes: reply.bytes()?,
        })
    }
}
