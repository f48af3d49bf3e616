//! The typed face of `lua/expire.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::PoolName;

/// The reaper's pass over one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Expire {
    /// The pool.
    pub pool: PoolName,
    /// Most jobs moved of each kind, so that the script stays short.
    pub limit: u32,
    /// Of the pool's server, as [`super::Lineage`] gave it; empty: not known.
    pub lineage: String,
}

/// What a pass moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpireReply {
    /// Scheduled jobs that are due now.
    pub promoted: u64,
    /// Leases that lapsed.
    pub lapsed: u64,
    /// Jobs whose deadline came.
    pub overdue: u64,
    /// Ended jobs whose request and result were dropped.
    pub bodies: u64,
    /// Ended jobs that were dropped whole.
    pub records: u64,
    /// Dead letters that were dropped.
    pub letters: u64,
    /// A limit was reached: there is more.
    pub more: bool,
    /// How often the pool's server was found restarted or replaced.
    pub epoch: u64,
    /// This pass found it so.
    pub began: bool,
    /// The pool's time that the last epoch began to lose at: what was written until then was all there. 0: never.
    pub lost_from_ms: u64,
}

impl Step for Expire {
    type Reply = ExpireReply;
    const SCRIPT: &'static Script = &script::EXPIRE;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, &self.pool);
        call.arg("deadline", deadline_ms)
            .arg("limit", u64::from(self.limit))
            .arg("lineage", self.lineage.as_str());
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<ExpireReply, Corrupt> {
        if tag != "expired" {
            return Err(unknown_tag(tag, reply));
        }
        Ok(ExpireReply {
            promoted: reply.number()?,
            lapsed: reply.number()?,
            overdue: reply.number()?,
            bodies: reply.number()?,
            records: reply.number()?,
            letters: reply.number()?,
            more: reply.text()? == "1",
            epoch: reply.number()?,
            began: reply.text()? == "1",
            lost_from_ms: reply.number()?,
        })
    }
}
