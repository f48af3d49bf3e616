//! The typed face of `lua/snapshot.lua`.

use std::collections::BTreeMap;

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::PoolName;

/// Counts of one pool, each read from the sets themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The pool.
    pub pool: PoolName,
}

/// Counts of one pool at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(
    missing_docs,
    reason = "the fields are the reply's; lua/snapshot.lua says where each comes from"
)]
pub struct SnapshotReply {
    pub now_ms: u64,
    pub version: u64,
    /// The definition as JSON.
    pub def: String,
    pub paused: bool,
    pub draining: bool,
    pub slots: u64,
    pub slots_used: u64,
    pub queued: u64,
    /// Delayed and backing off.
    pub scheduled: u64,
    /// Of those, due within the pool's `demand_horizon_ms`.
    pub scheduled_due: u64,
    pub dead: u64,
    /// Terminal jobs kept, dead letters aside.
    pub ended: u64,
    /// Every record.
    pub jobs: u64,
    pub owed_bytes: u64,
    /// Of the oldest at the head of a line.
    pub oldest_age_ms: u64,
    pub workers: u64,
    /// Dead letters dropped to make room, ever.
    pub evicted: u64,
    /// Jobs found to be poison, ever.
    pub poisoned: u64,
    /// Leases lapsed, ever.
    pub lapsed: u64,
    /// Mean time between completions; none below three samples.
    pub gap_ms: Option<u64>,
}

impl SnapshotReply {
    /// Everything owed that can be worked on within the horizon: what scaling is to follow.
    pub fn demand(&self) -> u64 {
        self.queued + self.slots_used + self.scheduled_due
    }
}

impl Step for Snapshot {
    type Reply = SnapshotReply;
    const SCRIPT: &'static Script = &script::SNAPSHOT;
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        Call::new(Self::SCRIPT, &self.pool)
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<SnapshotReply, Corrupt> {
        if tag != "snapshot" {
            return Err(unknown_tag(tag, reply));
        }
        let now_ms = reply.now_ms();
        let mut fields: BTreeMap<String, String> = reply.pairs()?;
        let def = fields.remove("def").unwrap_or_default();
        let number = |name: &str| -> Result<u64, Corrupt> {
            fields
                .get(name)
                .and_then(|v| v.parse().ok())
                .ok_or_else(|| reply.corrupt(format_args!("no number `{name}`")))
        };
        Ok(SnapshotReply {
            now_ms,
            version: number("version")?,
            def,
            paused: number("paused")? == 1,
            draining: number("draining")? == 1,
            slots: number("slots")?,
            slots_used: number("slots_used")?,
            queued: number("queued")?,
            scheduled: number("scheduled")?,
            scheduled_due: number("scheduled_due")?,
            dead: number("dead")?,
            ended: number("ended")?,
            jobs: number("jobs")?,
            owed_bytes: number("owed_bytes")?,
            oldest_age_ms: number("oldest_age_ms")?,
            workers: number("workers")?,
            evicted: number("evicted")?,
            poisoned: number("poisoned")?,
            lapsed: number("lapsed")?,
            gap_ms: fields.get("gap_ms").and_then(|v| v.parse().ok()),
        })
    }
}
