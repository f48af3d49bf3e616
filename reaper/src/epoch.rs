//! A server of the store that was restarted or replaced is not passed over in silence: one line says what may be lost.

use std::collections::HashMap;

use tidegate_shared::config::Durability;
use tidegate_shared::domain::PoolName;
use tidegate_shared::protocol::{ExpireReply, Lineage};
use tidegate_shared::store::{Store, StoreError, Trouble};
use tidegate_shared::telemetry::Metrics;

/// Epochs already told, by pool.
pub(crate) type Told = HashMap<PoolName, u64>;

/// The lineage of a pool's server; empty where we are not allowed to ask (`INFO`).
pub(crate) async fn lineage(store: &Store, pool: &PoolName) -> Result<String, StoreError> {
    let step = Lineage { pool: pool.clone() };
    match store.lineage(&step).await {
        Err(StoreError::Unavailable {
            trouble: Trouble::Denied,
            ..
        }) => Ok(String::new()),
        other => other,
    }
}

/// Tells of an epoch that this pass began, or that another reaper began since our last pass.
pub(crate) fn tell(
    pool: &PoolName,
    done: &ExpireReply,
    asked: Durability,
    metrics: &Metrics,
    told: &mut Told,
) {
    let before = told.insert(pool.clone(), done.epoch);
    let new = match before {
        Some(before) => done.epoch.saturating_sub(before),
        // Those before our first pass were told by whoever ran then.
        None => u64::from(done.began),
    };
    if new == 0 {
        return;
    }
    metrics.store_epochs(pool.as_str(), new);
    tracing::warn!(
        %pool,
        epoch = done.epoch,
        since_ms = done.lost_from_ms,
        "the store was restarted or replaced: {}",
        may_be_lost(asked)
    );
}

/// What of the writes since the last pass may be lost, under what was asked of the store.
fn may_be_lost(asked: Durability) -> &'static str {
    match asked {
        Durability::Strict => {
            "a restart loses nothing that was acknowledged; a replica that took over may lack what it had not received"
        }
        Durability::Relaxed => {
            "the last two seconds before it may be lost, and what a replica that took over had not received"
        }
        Durability::Replicated => {
            "nothing that was acknowledged is lost where a replica that confirmed it took over"
        }
    }
}
