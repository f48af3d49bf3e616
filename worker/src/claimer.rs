//! Claims for one pool: as many deliveries as there is room for, each handed to an executor of its own.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use tidegate_shared::domain::Owner;
use tidegate_shared::protocol::{Claim, ClaimReply, Delivery};
use tidegate_shared::retry::Retry;
use tidegate_shared::store::StoreError;
use tokio::time::Instant;

use crate::executor;
use crate::live::Claimed;
use crate::pool::Pool;

/// Most deliveries of one claim: keeps its script, and the reply with the requests in it, short.
const MAX_CLAIM: usize = 32;
/// Without a wake-up a claimer looks again after so many ms, drawn anew each time: a lost hint costs no more, and idle
/// workers do not come together.
const LOOK_AGAIN_MS: std::ops::Range<u64> = 1_000..5_000;
/// Pause after a reply that makes no sense, or where the pool is gone.
const PAUSE: Duration = Duration::from_secs(1);

/// What a claim came to.
enum Claims {
    /// Deliveries, at least one.
    Some(Vec<Claimed>),
    /// Nothing now; in how many ms the next job is due, if that is known.
    None(Option<u64>),
    /// No use to ask again at once.
    Trouble,
}

/// Claims until the drain starts.
pub(crate) async fn run(pool: Arc<Pool>) {
    tokio::select! {
        () = pool.stages.drain.cancelled() => return,
        _ = pool.settled_settings() => {}
    }
    let mut waiter = pool.store.work_waiter(&pool.name);
    let drain = pool.stages.drain.clone();
    while !drain.is_cancelled() {
        let permits = tokio::select! {
            () = drain.cancelled() => return,
            permits = room(&pool) => permits,
        };
        // Not cut off by the drain: what was asked for may be ours already.
        let wait = match claim(&pool, permits.len()).await {
            Claims::Some(deliveries) => {
                for (claimed, permit) in deliveries.into_iter().zip(permits) {
                    executor::start(&pool, claimed, permit);
                }
                continue;
            }
            Claims::None(due_in_ms) => {
                drop(permits);
                idle_wait(due_in_ms, rand::rng().random_range(LOOK_AGAIN_MS))
            }
            Claims::Trouble => {
                drop(permits);
                tokio::select! {
                    () = drain.cancelled() => return,
                    () = tokio::time::sleep(PAUSE) => continue,
                }
            }
        };
        tokio::select! {
            () = drain.cancelled() => return,
            () = waiter.wait(wait) => {}
        }
    }
}

/// Waits until the pool's model servers take calls and there is room, and takes it.
async fn room(pool: &Arc<Pool>) -> Vec<crate::capacity::Permit> {
    loop {
        let permits = pool
            .capacity
            .take(pool.number, || pool.slots(), MAX_CLAIM)
            .await;
        match rest(pool) {
            None => return permits,
            Some(rest) => {
                drop(permits);
                tokio::time::sleep(rest).await;
            }
        }
    }
}

/// How long the pool's model servers have asked to be left alone.
pub(crate) fn rest(pool: &Pool) -> Option<Duration> {
    pool.settings()?.backends.rest()
}

/// How long an idle claimer waits at most: until the next job is due, or until it looks again anyway.
fn idle_wait(due_in_ms: Option<u64>, look_again_ms: u64) -> Duration {
    // One more, because the store cuts to whole milliseconds.
    let due_ms = due_in_ms.map_or(look_again_ms, |ms| ms.saturating_add(1));
    Duration::from_millis(due_ms.min(look_again_ms))
}

/// One claim. Where its reply is unknown it is sent again with the same owners, for half a lease: what it may have taken is
/// replied again, and none of it is left to lapse in nobody's hands. After that it is left to, and the next claim has owners
/// of its own: an owner is good for one delivery.
async fn claim(pool: &Pool, most: usize) -> Claims {
    let step = Claim {
        pool: pool.name.clone(),
        worker: pool.worker.clone(),
        owners: std::iter::repeat_with(Owner::mint).take(most).collect(),
    };
    let retry = Retry::new(Duration::from_millis(50), Duration::from_secs(2));
    let first_sent = Instant::now();
    let mut attempt = 0;
    loop {
        let sent = Instant::now();
        match pool.store.claim(&step).await {
            Ok(ClaimReply::Deliveries(deliveries)) => {
                let claimed = |delivery: Delivery| Claimed {
                    delivery,
                    sent,
                    first_sent,
                };
                return Claims::Some(deliveries.into_iter().map(claimed).collect());
            }
            Ok(ClaimReply::None { due_in_ms, .. }) => return Claims::None(due_in_ms),
            Err(StoreError::Unavailable { trouble, detail }) => {
                let lease = pool.settings().map(|settings| settings.lease());
                if lease.is_none_or(|lease| first_sent.elapsed() >= lease / 2) {
                    return Claims::Trouble;
                }
                attempt += 1;
                tracing::debug!(pool = %pool.name, trouble = trouble.as_str(), detail, "claim not answered; sent again");
                tokio::select! {
                    () = pool.stages.give_up.cancelled() => return Claims::Trouble,
                    () = tokio::time::sleep(retry.delay(attempt)) => {}
                }
            }
            Err(error) => {
                tracing::error!(pool = %pool.name, %error, "claim failed");
                return Claims::Trouble;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_claimer_wakes_for_the_next_due_job_and_looks_again_anyway() {
        for (due_in_ms, look_again_ms, waits_ms) in [
            (None, 3_000, 3_000),
            (Some(0), 3_000, 1),
            (Some(200), 3_000, 201),
            (Some(9_000), 3_000, 3_000),
            (Some(u64::MAX), 3_000, 3_000),
        ] {
            assert_eq!(
                idle_wait(due_in_ms, look_again_ms),
                Duration::from_millis(waits_ms),
                "{due_in_ms:?}"
            );
        }
    }
}
