//! Renewals, on tasks of their own: one extends all leases of a pool in turn, one answers hints.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_shared::protocol::{Renew, RenewStatus};
use tidegate_shared::store::Hint;
use tokio::time::Instant;

use crate::live::Held;
use crate::pool::{Pool, Settings};
use crate::verdict::Stop;

/// Deliveries in one renewal, so that its script stays short.
const MAX_ITEMS: usize = 200;
/// After a renewal that was not answered the next one comes so soon, if the interval is not shorter.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Renews all leases of the pool, each interval, counted from start to start.
pub(crate) async fn run(pool: Arc<Pool>) {
    loop {
        let started = Instant::now();
        let Some(settings) = pool.settings() else {
            tokio::select! {
                () = pool.stages.end.cancelled() => return,
                _ = pool.settled_settings() => continue,
            }
        };
        let every = settings.renew_every();
        let answered = renew(&pool, &settings, pool.live.all()).await;
        let next = if answered {
            started + every
        } else {
            Instant::now() + AGAIN_AFTER.min(every)
        };
        tokio::select! {
            () = pool.stages.end.cancelled() => return,
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// Looks at once at deliveries that a hint names: a cancel, a reader or a deadline need not wait for the interval.
pub(crate) async fn answer_hints(pool: Arc<Pool>) {
    let mut watch = pool.store.hints().worker(&pool.name, &pool.worker).await;
    loop {
        let hint = tokio::select! {
            () = pool.stages.end.cancelled() => return,
            hint = watch.next() => hint,
        };
        let named = match hint {
            Hint::Message(bare) => pool.live.of_job(&bare),
            // Hints may have been missed.
            Hint::Resync => pool.live.all(),
        };
        if let Some(settings) = pool.settings() {
            renew(&pool, &settings, named).await;
        }
    }
}

/// Renews these deliveries. False where the store did not answer for all of them.
async fn renew(pool: &Pool, settings: &Settings, deliveries: Vec<Arc<Held>>) -> bool {
    let batches = deliveries
        .chunks(MAX_ITEMS)
        .map(|batch| renew_batch(pool, settings, batch));
    join_all(batches).await.into_iter().all(|answered| answered)
}

async fn renew_batch(pool: &Pool, settings: &Settings, batch: &[Arc<Held>]) -> bool {
    // Settings that were shortened since must not end the lease of a run that began under longer ones.
    let longest = batch.iter().map(|held| held.timeout).max();
    let longest_ms = longest.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    });
    let step = Renew {
        pool: pool.name.clone(),
        default_timeout_ms: longest_ms.max(settings.config.total_ms),
        items: batch.iter().map(|held| held.renewal()).collect(),
    };
    let sent = Instant::now();
    match pool.store.renew(&step).await {
        Ok(statuses) => {
            for (held, status) in batch.iter().zip(statuses) {
                take_note(pool, settings, held, status, sent);
            }
            true
        }
        Err(error) => {
            tracing::warn!(pool = %pool.name, deliveries = batch.len(), %error, "renewal not answered");
            false
        }
    }
}

fn take_note(pool: &Pool, settings: &Settings, held: &Held, status: RenewStatus, sent: Instant) {
    match status {
        RenewStatus::Ok => held.renewed(sent, settings.lease()),
        RenewStatus::Follow => {
            held.renewed(sent, settings.lease());
            held.follow();
        }
        RenewStatus::Cancel => {
            held.renewed(sent, settings.lease());
            if held.stop(Stop::Cancelled) {
                tracing::info!(job = %held.id, fence = held.fence.0, "the job is to be cancelled: closing its call");
            }
        }
        RenewStatus::Lost => {
            if held.stop(Stop::Lost) {
                pool.metrics.stale_write(pool.name.as_str(), "renew");
                tracing::warn!(job = %held.id, fence = held.fence.0, "lease lost: closing its call, publishing nothing");
            }
        }
    }
}
