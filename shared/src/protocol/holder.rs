//! The typed face of `lua/holder.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{JobId, PoolName};

/// Find the job that an idempotency key belongs to in one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// The pool.
    pub pool: PoolName,
    /// Digest of tenant and key.
    pub key_hash: String,
}

/// What a pool remembers of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderReply {
    /// It was used for this job, which is still kept.
    Job {
        /// The job.
        id: JobId,
        /// Digest of its request.
        body_hash: String,
    },
    /// Nothing.
    Unknown,
}

impl Step for Holder {
    type Reply = HolderReply;
    const SCRIPT: &'static Script = &script::HOLDER;
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, &self.pool);
        call.arg("idempotency", self.key_hash.as_str());
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<HolderReply, Corrupt> {
        match tag {
            "unknown" => Ok(HolderReply::Unknown),
            "holder" => {
                let bare = reply.text()?;
                Ok(HolderReply::Job {
                    id: JobId::from_bare(&self.pool, &bare).map_err(|e| reply.corrupt(e))?,
                    body_hash: reply.text()?,
                })
            }
            other => Err(unknown_tag(other, reply)),
        }
    }
}
