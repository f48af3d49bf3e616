//! How many deliveries this worker may hold.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// How many more deliveries a pool may get: what is left of the worker's `concurrency` (0: no bound of its own) and of
/// the pool's slots.
pub(crate) fn room(concurrency: usize, held: usize, slots: usize, held_of_pool: usize) -> usize {
    let by_slots = slots.saturating_sub(held_of_pool);
    if concurrency == 0 {
        by_slots
    } else {
        by_slots.min(concurrency.saturating_sub(held))
    }
}

#[derive(Debug, Default)]
struct Counts {
    held: usize,
    held_of_pool: Vec<usize>,
    /// Pools whose claimer waits for the worker's own room: their slots would leave some.
    waiting: Vec<bool>,
}

/// The room of one worker, shared by its pools. A permit is held from before the claim is sent to the stored verdict, so
/// deliveries, results that wait to be stored, and memory are bounded by it.
#[derive(Debug)]
pub(crate) struct Capacity {
    concurrency: usize,
    counts: Mutex<Counts>,
    freed: Notify,
}

/// Leave to hold one delivery of a pool.
#[derive(Debug)]
pub(crate) struct Permit {
    capacity: Arc<Capacity>,
    pool: usize,
}

impl Capacity {
    /// Room for `pools` pools; `concurrency` 0: whatever their slots allow.
    pub(crate) fn new(concurrency: usize, pools: usize) -> Arc<Self> {
        Arc::new(Self {
            concurrency,
            counts: Mutex::new(Counts {
                held: 0,
                held_of_pool: vec![0; pools],
                waiting: vec![false; pools],
            }),
            freed: Notify::new(),
        })
    }

    /// Waits until there is room for the pool with this number, and takes at most `most` of it. `slots` is asked anew
    /// whenever room is freed. Safe to cancel.
    pub(crate) async fn take(
        self: &Arc<Self>,
        pool: usize,
        slots: impl Fn() -> usize,
        most: usize,
    ) -> Vec<Permit> {
        let _waiting = Waiting {
            capacity: self,
            pool,
        };
        loop {
            let freed = self.freed.notified();
            let slots = slots();
            let permits = self.try_take(pool, slots, most);
            if !permits.is_empty() {
                return permits;
            }
            self.note_waiting(pool, slots);
            freed.await;
        }
    }

    fn note_waiting(&self, pool: usize, slots: usize) {
        let mut counts = self.counts();
        counts.waiting[pool] = slots > counts.held_of_pool[pool];
    }

    fn try_take(self: &Arc<Self>, pool: usize, slots: usize, most: usize) -> Vec<Permit> {
        let mut counts = self.counts();
        let room = room(
            self.concurrency,
            counts.held,
            slots,
            counts.held_of_pool[pool],
        );
        let taken = room.min(most);
        counts.held += taken;
        counts.held_of_pool[pool] += taken;
        let permit = || Permit {
            capacity: Arc::clone(self),
            pool,
        };
        std::iter::repeat_with(permit).take(taken).collect()
    }

    /// Whether another pool waits for room: then a delivery that ends gives its permit back instead of going on.
    pub(crate) fn others_wait(&self, pool: usize) -> bool {
        let counts = self.counts();
        (counts.waiting.iter().enumerate()).any(|(other, waits)| other != pool && *waits)
    }

    /// Wakes those who wait for room: the slots of a pool have changed.
    pub(crate) fn look_again(&self) {
        self.freed.notify_waiters();
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.capacity.counts();
        counts.held -= 1;
        counts.held_of_pool[self.pool] -= 1;
        drop(counts);
        self.capacity.freed.notify_waiters();
    }
}

/// Takes the mark of a waiting pool away, also where its wait was cancelled.
struct Waiting<'a> {
    capacity: &'a Arc<Capacity>,
    pool: usize,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.capacity.counts().waiting[self.pool] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn room_is_what_the_worker_and_the_pool_both_leave() {
        for (concurrency, held, slots, held_of_pool, left) in [
            (0, 0, 4, 0, 4),
            (0, 9, 4, 3, 1),
            (0, 9, 4, 4, 0),
            (0, 9, 2, 4, 0),
            (3, 0, 4, 0, 3),
            (3, 2, 4, 0, 1),
            (3, 3, 4, 0, 0),
            (3, 5, 4, 0, 0),
            (9, 1, 0, 0, 0),
        ] {
            assert_eq!(
                room(concurrency, held, slots, held_of_pool),
                left,
                "{concurrency} {held} {slots} {held_of_pool}"
            );
        }
    }

    #[tokio::test]
    async fn a_permit_given_back_wakes_the_pool_that_waits() {
        let capacity = Capacity::new(2, 2);
        let mut first = capacity.take(0, || 8, 8).await;
        assert_eq!(first.len(), 2);
        assert!(!capacity.others_wait(0));
        let waiter = tokio::spawn({
            let capacity = Arc::clone(&capacity);
            async move { capacity.take(1, || 8, 8).await.len() }
        });
        while !capacity.others_wait(0) {
            tokio::task::yield_now().await;
        }
        assert!(!capacity.others_wait(1), "only other pools count");
        first.pop();
        assert_eq!(waiter.await.ok(), Some(1));
        assert!(!capacity.others_wait(0));
    }

    #[tokio::test]
    async fn a_pool_that_waits_for_its_own_slots_asks_nobody_to_yield() {
        let capacity = Capacity::new(4, 2);
        let _held = capacity.take(0, || 8, 1).await;
        let wait = capacity.take(1, || 0, 1);
        tokio::pin!(wait);
        assert!(
            tokio::time::timeout(Duration::from_millis(1), &mut wait)
                .await
                .is_err()
        );
        assert!(!capacity.others_wait(0));
    }

    #[tokio::test]
    async fn a_cancelled_wait_holds_nothing_and_waits_no_more() {
        let capacity = Capacity::new(1, 2);
        let held = capacity.take(0, || 1, 1).await;
        let wait = capacity.take(1, || 1, 1);
        assert!(
            tokio::time::timeout(Duration::from_millis(1), wait)
                .await
                .is_err()
        );
        assert!(!capacity.others_wait(0));
        drop(held);
        assert_eq!(capacity.take(1, || 1, 1).await.len(), 1);
    }
}
