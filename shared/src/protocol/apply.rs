//! The typed face of `lua/apply.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::config::PoolConfig;
use crate::domain::PoolName;

/// Give a pool its settings, by a version that only rises.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    /// The pool; it is made where there is none.
    pub pool: PoolName,
    /// Its settings.
    pub config: PoolConfig,
}

/// What became of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyReply {
    /// The pool has these settings now, at this version.
    Applied(u64),
    /// It had them already.
    Unchanged(u64),
}

impl Step for Apply {
    type Reply = ApplyReply;
    const SCRIPT: &'static Script = &script::APPLY;
    // It has no deadline: the version only rises, and the pool's clock may not have started.
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        let def = serde_json::to_string(&self.config).expect("settings always serialise");
        let c = &self.config;
        let settings = [
            ("slots", u64::from(c.slots)),
            ("max_queued", c.max_queued),
            ("max_queued_bytes", c.max_queued_bytes),
            ("lease_ms", c.lease_ms),
            ("renew_ms", c.renew_ms),
            ("max_lost_leases", u64::from(c.max_lost_leases)),
            ("result_retention_ms", c.result_retention_ms),
            ("record_retention_ms", c.record_retention_ms),
            ("idempotency_ms", c.idempotency_ms),
            ("max_dead_letters", c.max_dead_letters),
            ("dead_letter_retention_ms", c.dead_letter_retention_ms),
            ("demand_horizon_ms", c.demand_horizon_ms),
        ];
        let mut call = Call::new(Self::SCRIPT, &self.pool);
        call.arg("def", def.as_str());
        for (name, value) in settings {
            call.arg("settings", name).arg("settings", value);
        }
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<ApplyReply, Corrupt> {
        // This step's second item is the version, not the time: the pool may not exist yet.
        match tag {
            "applied" => Ok(ApplyReply::Applied(reply.now_ms())),
            "unchanged" => Ok(ApplyReply::Unchanged(reply.now_ms())),
            other => Err(unknown_tag(other, reply)),
        }
    }
}
