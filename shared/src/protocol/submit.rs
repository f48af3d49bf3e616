//! The typed face of `lua/submit.lua`.

use sha2::{Digest as _, Sha256};

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{JobId, PoolName};

/// A caller's key for one request, as digests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Idempotency {
    /// Digest of tenant and key; empty: no key was given.
    pub key_hash: String,
    /// Digest of the request.
    pub body_hash: String,
}

impl Idempotency {
    /// Digest of a tenant and its key. The byte between them stands in no tenant's name.
    pub fn key_hash_of(tenant: &str, key: &str) -> String {
        let mut digest = Sha256::new();
        digest.update(tenant.as_bytes());
        digest.update([0]);
        digest.update(key.as_bytes());
        let bytes = digest.finalize();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Accept one job, or say why not. The id is minted before sending: the same submit again is the same job.
#[derive(Clone, Debug, PartialEq)]
pub struct Submit {
    /// Minted by the caller.
    pub id: JobId,
    /// Who pays and may see.
    pub tenant: String,
    /// Kind of traffic.
    pub class: String,
    /// 0–9, higher first.
    pub priority: u8,
    /// 0: at once.
    pub delay_ms: u64,
    /// From acceptance; 0: none.
    pub deadline_ms: u64,
    /// For one delivery; 0: the pool's.
    pub timeout_ms: u64,
    /// Deliveries charged before the job is dead, at least 1.
    pub max_attempts: u32,
    /// Model asked for; may be empty.
    pub model: String,
    /// The caller's key, if any.
    pub idempotency: Idempotency,
    /// MessagePack of [`crate::domain::Envelope`]; its length is what the job counts for.
    pub envelope: Vec<u8>,
}

/// What became of a submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitReply {
    /// Stored under its id.
    Accepted,
    /// The same request was accepted before, under this id.
    Duplicate(JobId),
    /// The key was used for another request, which became this job.
    Conflict(JobId),
    /// The pool takes no new work.
    Draining,
    /// A bound of the pool is reached.
    Full {
        /// Name of the setting.
        limit: String,
        /// Its value.
        value: u64,
        /// Observed time between two completions; none below three samples.
        retry_after_ms: Option<u64>,
    },
    /// It would not fit into an empty pool.
    Unsatisfiable {
        /// Name of the setting.
        limit: String,
        /// Its value.
        value: u64,
    },
}

impl Step for Submit {
    type Reply = SubmitReply;
    const SCRIPT: &'static Script = &script::SUBMIT;

    fn pool(&self) -> &PoolName {
        self.id.pool()
    }

    fn bind(&self, deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, self.pool());
        call.arg("deadline", deadline_ms)
            .arg("id", self.id.bare())
            .arg("tenant", self.tenant.as_str())
            .arg("class", self.class.as_str())
            .arg("priority", u64::from(self.priority))
            .arg("delay_ms", self.delay_ms)
            .arg("deadline_ms", self.deadline_ms)
            .arg("timeout_ms", self.timeout_ms)
            .arg("max_attempts", u64::from(self.max_attempts))
            .arg("model", self.model.as_str())
            .arg("bytes", self.envelope.len() as u64)
            .arg("idempotency", self.idempotency.key_hash.as_str())
            .arg("body_hash", self.idempotency.body_hash.as_str())
            .arg("envelope", self.envelope.as_slice());
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<SubmitReply, Corrupt> {
        let earlier = |reply: &mut Reply| {
            let bare = reply.text()?;
            JobId::from_bare(self.pool(), &bare).map_err(|e| reply.corrupt(e))
        };
        Ok(match tag {
            "accepted" => SubmitReply::Accepted,
            "duplicate" => SubmitReply::Duplicate(earlier(reply)?),
            "conflict" => SubmitReply::Conflict(earlier(reply)?),
            "draining" => SubmitReply::Draining,
            "full" => SubmitReply::Full {
                limit: reply.text()?,
                value: reply.number()?,
                retry_after_ms: reply.maybe_number()?,
            },
            "unsatisfiable" => SubmitReply::Unsatisfiable {
                limit: reply.text()?,
                value: reply.number()?,
            },
            other => return Err(unknown_tag(other, reply)),
        })
    }
}
