//! The typed face of `lua/renew.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{Fence, JobId, Owner, PoolName};

/// A delivery to renew.
#[derive(Clone, Debug, PartialEq)]
pub struct RenewItem {
    /// The job.
    pub id: JobId,
    /// Of the delivery.
    pub fence: Fence,
    /// Of the delivery.
    pub owner: Owner,
    /// Output tokens so far.
    pub output_tokens: u64,
}

/// Extend the leases of many deliveries of one pool at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Renew {
    /// The pool of all items.
    pub pool: PoolName,
    /// Run's time-out of a job without its own.
    pub default_timeout_ms: u64,
    /// At most a few hundred, so that the script stays short.
    pub items: Vec<RenewItem>,
}

/// What became of one renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewStatus {
    /// The lease holds.
    Ok,
    /// The lease holds, and somebody reads along.
    Follow,
    /// The lease holds; the job is to be cancelled.
    Cancel,
    /// The delivery is not ours any more.
    Lost,
}

impl Step for Renew {
    type Reply = Vec<RenewStatus>;
    const SCRIPT: &'static Script = &script::RENEW;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, &self.pool);
        call.arg("deadline", deadline_ms)
            .arg("default_timeout_ms", self.default_timeout_ms);
        for item in &self.items {
            call.arg("deliveries", item.id.bare())
                .arg("deliveries", item.fence.0)
                .arg("deliveries", item.owner.expose())
                .arg("deliveries", item.output_tokens);
        }
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<Vec<RenewStatus>, Corrupt> {
        if tag != "renewed" {
            return Err(unknown_tag(tag, reply));
        }
        let mut all = Vec::with_capacity(self.items.len());
        for _ in &self.items {
            all.push(match reply.text()?.as_str() {
                "ok" => RenewStatus::Ok,
                "follow" => RenewStatus::Follow,
                "cancel" => RenewStatus::Cancel,
                "lost" => RenewStatus::Lost,
                other => return Err(reply.corrupt(format_args!("status `{other}`"))),
            });
        }
        Ok(all)
    }
}
