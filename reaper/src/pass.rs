//! The passes: every pool, one bounded script at a time, at a steady interval.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use tidegate_shared::domain::PoolName;
use tidegate_shared::protocol::{Expire, ExpireReply};
use tidegate_shared::shutdown::Shutdown;
use tidegate_shared::store::{Store, StoreError};
use tidegate_shared::telemetry::Metrics;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::epoch;

/// Jobs of each kind that one script moves: some hundred microseconds of the server's time.
const LIMIT: u32 = 100;
/// Scripts that one pass may run for one pool: more waits for the next pass, so that no pool starves the others.
const ROUNDS: u32 = 50;

/// What a reaper remembers between passes: counters it has already reported.
#[derive(Default)]
struct Reported {
    evicted: HashMap<PoolName, u64>,
    poisoned: HashMap<PoolName, u64>,
    lapsed: HashMap<PoolName, u64>,
    epochs: epoch::Told,
}

/// Passes until shutdown.
pub(crate) async fn run(store: &Store, metrics: &Metrics, every: Duration, shutdown: &Shutdown) {
    let mut reported = Reported::default();
    let mut ticks = interval_at(Instant::now(), every);
    // After an outage one pass is enough; passes that were missed are not made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_down = false;
    loop {
        tokio::select! {
            () = shutdown.draining() => return,
            _ = ticks.tick() => {}
        }
        match pass(store, metrics, &mut reported).await {
            Ok(()) => {
                if was_down {
                    tracing::info!("the store answers again");
                }
                was_down = false;
            }
            Err(error) => {
                if !was_down {
                    tracing::warn!(%error, "the store does not answer; passes go on");
                }
                was_down = true;
            }
        }
    }
}

/// One pass over all pools. The first error ends it: the store is down for the others too.
async fn pass(store: &Store, metrics: &Metrics, reported: &mut Reported) -> Result<(), StoreError> {
    for pool in store.pools().await? {
        match reap(store, metrics, &pool, reported).await {
            // A pool in the directory that was never defined: an apply that was cut off between its two writes.
            Ok(()) | Err(StoreError::NoPool(_)) => {}
            Err(error @ StoreError::Corrupt(_)) => tracing::error!(%pool, %error, "pass failed"),
            Err(error) => return Err(error),
        }
        report(store, metrics, &pool, reported).await?;
    }
    Ok(())
}

async fn reap(
    store: &Store,
    metrics: &Metrics,
    pool: &PoolName,
    reported: &mut Reported,
) -> Result<(), StoreError> {
    let step = Expire {
        pool: pool.clone(),
        limit: LIMIT,
        lineage: epoch::lineage(store, pool).await?,
    };
    for _ in 0..ROUNDS {
        let done = store.expire(&step).await?;
        log(pool, &done);
        let asked = store.durability();
        epoch::tell(pool, &done, asked, metrics, &mut reported.epochs);
        if !done.more {
            return Ok(());
        }
    }
    Ok(())
}

fn log(pool: &PoolName, done: &ExpireReply) {
    if done.lapsed > 0 || done.overdue > 0 {
        tracing::info!(%pool, lapsed = done.lapsed, overdue = done.overdue, "jobs whose time was over");
    }
    if done.bodies > 0 || done.records > 0 || done.letters > 0 {
        tracing::debug!(%pool, bodies = done.bodies, records = done.records, letters = done.letters, "retention ended");
    }
}

/// Nothing is dropped unseen: dead letters that made room, and poison, are logged and counted, lapsed leases are counted.
/// The counts are the store's, so a reaper reports what happened while it watched and each reaper reports the same.
async fn report(
    store: &Store,
    metrics: &Metrics,
    pool: &PoolName,
    reported: &mut Reported,
) -> Result<(), StoreError> {
    let counts = match store.snapshot(pool).await {
        Ok(counts) => counts,
        Err(StoreError::NoPool(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let evicted = rise(&mut reported.evicted, pool, counts.evicted);
    if evicted > 0 {
        tracing::warn!(%pool, evicted, "dead letters dropped to make room; raise max_dead_letters or purge");
        metrics.dead_letters_evicted(pool.as_str(), evicted);
    }
    let poisoned = rise(&mut reported.poisoned, pool, counts.poisoned);
    if poisoned > 0 {
        tracing::warn!(%pool, poisoned, "jobs whose workers died too often are dead letters now");
        metrics.poisoned(pool.as_str(), poisoned);
    }
    // Those that a claim found are among them.
    let lapsed = rise(&mut reported.lapsed, pool, counts.lapsed);
    if lapsed > 0 {
        metrics.leases_expired(pool.as_str(), lapsed);
    }
    Ok(())
}

/// By how much a counter rose since the last look; 0 at the first.
fn rise(seen: &mut HashMap<PoolName, u64>, pool: &PoolName, now: u64) -> u64 {
    seen.insert(pool.clone(), now)
        .map_or(0, |before| now.saturating_sub(before))
}
