//! The deliveries this worker holds, and how its tasks tell them what happens.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tidegate_shared::domain::{Fence, JobId, Owner};
use tidegate_shared::protocol::{Delivery, RenewItem};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lease;
use crate::verdict::Stop;

/// A delivery as a claim brought it.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// The delivery.
    pub(crate) delivery: Delivery,
    /// Before the step that brought it was sent for the last time: the reply's remaining times count from here.
    pub(crate) sent: Instant,
    /// Before it was sent for the first time: no claim of it is older.
    pub(crate) first_sent: Instant,
}

/// One delivery in hand.
#[derive(Debug)]
pub(crate) struct Held {
    /// The job.
    pub(crate) id: JobId,
    /// Of the delivery.
    pub(crate) fence: Fence,
    /// Of the delivery.
    pub(crate) owner: Owner,
    /// When the call must have stopped, by our own clock.
    lease_end: watch::Sender<Instant>,
    /// Of the run: the store extends its lease for so long and a lease more.
    pub(crate) timeout: Duration,
    /// The store extends the lease no further.
    latest: Instant,
    output_tokens: AtomicU64,
    follow: watch::Sender<bool>,
    stop: OnceLock<Stop>,
    /// The call is to be closed.
    pub(crate) closing: CancellationToken,
    settling: AtomicBool,
}

impl Held {
    /// Takes a delivery in hand. `lease` is the pool's, `timeout` the run's.
    pub(crate) fn new(claimed: &Claimed, lease: Duration, timeout: Duration) -> Self {
        let delivery = &claimed.delivery;
        let granted = Duration::from_millis(delivery.expires_at_ms.saturating_sub(delivery.now_ms));
        let latest = lease::latest(claimed.first_sent, timeout, lease);
        let end = lease::local_end(claimed.sent, granted, lease, latest);
        Self {
            id: delivery.id.clone(),
            fence: delivery.fence,
            owner: delivery.owner.clone(),
            lease_end: watch::Sender::new(end),
            timeout,
            latest,
            output_tokens: AtomicU64::new(0),
            follow: watch::Sender::new(delivery.follow),
            stop: OnceLock::new(),
            closing: CancellationToken::new(),
            settling: AtomicBool::new(false),
        }
    }

    /// The lease was renewed by a step sent at `sent`.
    pub(crate) fn renewed(&self, sent: Instant, lease: Duration) {
        let end = lease::local_end(sent, lease, lease, self.latest);
        self.lease_end.send_if_modified(|held| {
            let later = end > *held;
            if later {
                *held = end;
            }
            later
        });
    }

    /// Returns when the lease may be over by our own clock. Safe to cancel.
    pub(crate) async fn lease_over(&self) {
        let mut end = self.lease_end.subscribe();
        loop {
            let at = *end.borrow_and_update();
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(at) => return,
                _ = end.changed() => {}
            }
        }
    }

    /// Somebody reads along.
    pub(crate) fn follow(&self) {
        self.follow
            .send_if_modified(|follow| !std::mem::replace(follow, true));
    }

    /// Whether somebody reads along.
    pub(crate) fn is_followed(&self) -> bool {
        *self.follow.borrow()
    }

    /// Returns once somebody reads along. Safe to cancel.
    pub(crate) async fn followed(&self) {
        let mut follow = self.follow.subscribe();
        // The sender lives as long as `self`.
        let _ = follow.wait_for(|follow| *follow).await;
    }

    /// Stops the delivery: its call is closed. The first reason stays. Nothing happens where the call is over already:
    /// then the settlement's reply tells.
    pub(crate) fn stop(&self, reason: Stop) -> bool {
        if self.settling.load(Ordering::Acquire) {
            return false;
        }
        let first = self.stop.set(reason).is_ok();
        self.closing.cancel();
        first
    }

    /// Why the delivery is to stop, once it is.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.stop.get().copied()
    }

    /// Returns once the delivery is to stop. Safe to cancel.
    pub(crate) async fn stopping(&self) -> Stop {
        self.closing.cancelled().await;
        // It is set before the token is cancelled.
        self.stopped().unwrap_or(Stop::Planned)
    }

    /// The call is over; its verdict is on the way.
    pub(crate) fn start_settling(&self) {
        self.settling.store(true, Ordering::Release);
    }

    /// Output tokens so far; never fewer than before.
    pub(crate) fn progress(&self, output_tokens: u64) {
        self.output_tokens
            .fetch_max(output_tokens, Ordering::Relaxed);
    }

    /// Output tokens so far.
    pub(crate) fn output_tokens(&self) -> u64 {
        self.output_tokens.load(Ordering::Relaxed)
    }

    /// What a renewal of it says.
    pub(crate) fn renewal(&self) -> RenewItem {
        RenewItem {
            id: self.id.clone(),
            fence: self.fence,
            owner: self.owner.clone(),
            output_tokens: self.output_tokens(),
        }
    }
}

/// All deliveries of one pool in this worker's hands. By owner: one job may be here twice, once lost and once claimed
/// again.
#[derive(Debug, Default)]
pub(crate) struct Live(Mutex<HashMap<Owner, Arc<Held>>>);

/// Keeps a delivery among the live ones.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    live: &'a Live,
    held: Arc<Held>,
}

impl Live {
    /// Lists a delivery until the returned value is dropped: it is renewed meanwhile.
    pub(crate) fn list(&self, held: &Arc<Held>) -> Listed<'_> {
        self.all_by_owner()
            .insert(held.owner.clone(), Arc::clone(held));
        Listed {
            live: self,
            held: Arc::clone(held),
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Held>> {
        self.all_by_owner().values().cloned().collect()
    }

    /// Those of one job, by the part of its id that hints carry.
    pub(crate) fn of_job(&self, bare: &str) -> Vec<Arc<Held>> {
        let all = self.all_by_owner();
        all.values()
            .filter(|held| held.id.bare() == bare)
            .cloned()
            .collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all_by_owner().len()
    }

    fn all_by_owner(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Held>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.live.all_by_owner().remove(&self.held.owner);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tidegate_shared::domain::PoolName;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A delivery claimed now, with a lease of `lease_ms`.
    pub(crate) fn claimed(lease_ms: u64) -> Claimed {
        let pool: PoolName = "default".parse().unwrap();
        let sent = Instant::now();
        Claimed {
            delivery: Delivery {
                id: JobId::mint(&pool),
                fence: Fence(1),
                owner: Owner::mint(),
                expires_at_ms: 1_000 + lease_ms,
                attempts: 0,
                max_attempts: 3,
                tenant: "acme".into(),
                class: "default".into(),
                created_at_ms: 900,
                deadline_at_ms: None,
                timeout_ms: None,
                follow: false,
                model: "m".into(),
                envelope: Vec::new(),
                now_ms: 1_000,
            },
            sent,
            first_sent: sent,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_not_renewed_is_over_before_the_store_says_so() {
        let held = Held::new(&claimed(2_000), ms(2_000), ms(60_000));
        let started = Instant::now();
        held.lease_over().await;
        assert_eq!(started.elapsed(), ms(1_900));
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_counts_from_when_it_was_sent_and_an_older_one_changes_nothing() {
        let held = Held::new(&claimed(2_000), ms(2_000), ms(60_000));
        let started = Instant::now();
        let over = held.lease_over();
        tokio::pin!(over);
        assert!(tokio::time::timeout(ms(1_500), &mut over).await.is_err());
        held.renewed(started + ms(1_000), ms(2_000));
        held.renewed(started + ms(500), ms(2_000));
        over.await;
        assert_eq!(started.elapsed(), ms(2_900));
    }

    #[test]
    fn the_first_reason_to_stop_stays_and_none_counts_once_the_call_is_over() {
        let held = Held::new(&claimed(2_000), ms(2_000), ms(60_000));
        assert!(held.stop(Stop::Deadline));
        assert!(!held.stop(Stop::Lost));
        assert_eq!(held.stopped(), Some(Stop::Deadline));
        assert!(held.closing.is_cancelled());
        let over = Held::new(&claimed(2_000), ms(2_000), ms(60_000));
        over.start_settling();
        assert!(!over.stop(Stop::Lost));
        assert_eq!(over.stopped(), None);
    }

    #[tokio::test]
    async fn a_reader_is_noticed_whenever_it_comes() {
        let held = Held::new(&claimed(2_000), ms(2_000), ms(60_000));
        assert!(!held.is_followed());
        held.follow();
        held.follow();
        held.followed().await;
        assert!(held.is_followed());
    }

    #[test]
    fn a_delivery_is_listed_as_long_as_it_is_in_hand() {
        let live = Live::default();
        let held = Arc::new(Held::new(&claimed(2_000), ms(2_000), ms(60_000)));
        let listed = live.list(&held);
        assert_eq!((live.len(), live.of_job(held.id.bare()).len()), (1, 1));
        assert!(live.of_job("another").is_empty());
        drop(listed);
        assert_eq!(live.len(), 0);
    }
}
