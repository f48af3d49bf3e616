//! What a pool's counts and settings say.

use super::invariant::Against;
use super::invariant::Invariant::{I8, I12, I14};
use super::{Finding, Status};
use crate::config::PoolConfig;
use crate::domain::PoolName;
use crate::protocol::SnapshotReply;
use crate::store::PoolDef;

/// Renewals that must fit into a lease, so that one may fail.
const RENEWALS_IN_A_LEASE: u64 = 3;

/// Judges a pool's counts against its bounds. Where settings were never changed, nothing explains more than a bound.
pub(super) fn counts(counts: &SnapshotReply, config: &PoolConfig) -> Vec<Against> {
    let mut found = Vec::new();
    let mut at_most = |invariant, what: &str, is: u64, bound: u64| {
        if is > bound {
            let text = format!("{is} {what} where {bound} are allowed");
            found.push(if counts.version > 1 {
                Against::warn(
                    invariant,
                    format!("{text} (the bound may have been lowered)"),
                )
            } else {
                Against::fail(invariant, text)
            });
        }
    };
    let owed = counts.jobs.saturating_sub(counts.ended + counts.dead);
    at_most(I8, "jobs owed", owed, config.max_queued);
    at_most(I8, "bytes owed", counts.owed_bytes, config.max_queued_bytes);
    at_most(I8, "dead letters", counts.dead, config.max_dead_letters);
    at_most(
        I12,
        "live leases",
        counts.slots_used,
        u64::from(config.slots),
    );
    found
}

/// Judges the bytes of all records against the counter, where nothing moved in between.
pub(super) fn bytes(
    before: &SnapshotReply,
    after: &SnapshotReply,
    of_records: u64,
) -> Option<Against> {
    let still = |s: &SnapshotReply| {
        (
            s.jobs,
            s.ended,
            s.dead,
            s.owed_bytes,
            s.queued,
            s.scheduled,
            s.slots_used,
        )
    };
    if still(before) != still(after) || of_records == after.owed_bytes {
        return None;
    }
    Some(Against::fail(
        I8,
        format!(
            "{of_records} bytes are owed and {} are counted",
            after.owed_bytes
        ),
    ))
}

/// Judges whether claims look at every line that has a job.
pub(super) fn level(priority: u8, waiting: u64, is_level: bool) -> Option<Against> {
    (waiting > 0 && !is_level).then(|| {
        Against::fail(
            I14,
            format!("{waiting} jobs of priority {priority} wait where no claim looks"),
        )
    })
}

/// Judges a pool's settings and whether somebody serves it.
pub(super) fn settings(
    pool: &PoolName,
    def: &PoolDef,
    counts: &SnapshotReply,
    file: Option<&PoolConfig>,
) -> Vec<Finding> {
    let id = format!("pools.{pool}.settings");
    let config = &def.config;
    let mut found = Vec::new();
    if counts.slots != u64::from(config.slots) {
        let text = format!(
            "its definition says {} slots and the steps read {}",
            config.slots, counts.slots
        );
        found.push(Finding::fail(
            &id,
            text,
            "apply the pool again with another value, then with this one",
        ));
    }
    if config.renew_ms * RENEWALS_IN_A_LEASE > config.lease_ms || config.renew_ms == 0 {
        let text = format!(
            "renewals every {} ms do not fit three times into a lease of {} ms",
            config.renew_ms, config.lease_ms
        );
        found.push(Finding::fail(
            &id,
            text,
            format!("set pools.{pool}.renew_ms to a third of lease_ms or less"),
        ));
    }
    if file.is_some_and(|file| file != config) {
        let text = "the store has other settings than the file";
        found.push(Finding::warn(
            &id,
            text,
            format!("`tidegate pool apply` the file, or correct pools.{pool} in it"),
        ));
    }
    if found.is_empty() {
        let text = format!(
            "version {}: {} slots, lease {} ms",
            def.version, config.slots, config.lease_ms
        );
        found.push(Finding::pass(&id, text));
    }
    found.push(service(pool, def, counts));
    found
}

/// Whether what waits is worked on.
fn service(pool: &PoolName, def: &PoolDef, counts: &SnapshotReply) -> Finding {
    let id = format!("pools.{pool}.workers");
    let waiting = counts.queued + counts.scheduled_due;
    let (message, fix) = if waiting > 0 && counts.workers == 0 {
        (
            "no worker is there",
            format!("start a worker that serves {pool}"),
        )
    } else if waiting > 0 && def.paused {
        (
            "the pool is paused",
            format!("`tidegate pool resume {pool}`"),
        )
    } else if waiting > 0 && counts.slots == 0 {
        ("the pool has no slots", format!("set pools.{pool}.slots"))
    } else {
        let text = format!("{} workers, {waiting} jobs wait", counts.workers);
        return Finding::new(id, Status::Pass, text, "");
    };
    Finding::warn(id, format!("{waiting} jobs wait and {message}"), fix)
}
