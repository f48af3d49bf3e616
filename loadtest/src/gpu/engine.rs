//! The timing model: slots, KV room, a bounded queue, and speeds that fall with concurrency.
//!
//! A call waits until it is first in line, a slot is free and its KV need fits; then it runs at
//! `speed / (1 + slowdown * (running - 1))`, the usual shape of continuous batching: each call slower, all together faster,
//! towards `speed / slowdown`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Config;

/// A pace never catches up on more than this, so a caller that reads slowly gets no burst.
const CATCH_UP: Duration = Duration::from_millis(5);

/// Why a call was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The queue is full; later there may be room.
    QueueFull,
    /// The call alone needs more KV room than there is.
    NeverFits,
}

/// What the engine has done and is doing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) running: usize,
    pub(super) waiting: usize,
    pub(super) kv_used: u64,
    pub(super) peak: usize,
    pub(super) total: u64,
}

#[derive(Debug, Default)]
struct State {
    load: Load,
    line: VecDeque<u64>,
    next_ticket: u64,
}

#[derive(Debug)]
pub(super) struct Engine {
    slots: usize,
    queue: usize,
    kv_tokens: u64,
    prefill_per_s: f64,
    decode_per_s: f64,
    slowdown: f64,
    state: Mutex<State>,
    freed: Notify,
}

impl Engine {
    pub(super) fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self {
            slots: config.slots,
            queue: config.queue,
            kv_tokens: config.kv_tokens,
            prefill_per_s: config.prefill_tokens_per_s,
            decode_per_s: config.decode_tokens_per_s,
            slowdown: config.slowdown,
            state: Mutex::default(),
            freed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn load(&self) -> Load {
        let state = self.state();
        Load {
            waiting: state.line.len(),
            ..state.load
        }
    }

    pub(super) fn kv_tokens(&self) -> u64 {
        self.kv_tokens
    }

    /// Forgets the peak and the total; what runs now is the new peak.
    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.load.peak = state.load.running;
        state.load.total = 0;
    }

    /// Waits in line for a slot and `kv_need` tokens of KV room. Dropping the future leaves the line.
    pub(super) async fn enter(self: &Arc<Self>, kv_need: u64) -> Result<Slot, Refused> {
        if kv_need > self.kv_tokens {
            return Err(Refused::NeverFits);
        }
        let Some(place) = self.join_line(kv_need) else {
            return Err(Refused::QueueFull);
        };
        loop {
            // Created before the look at the state: a release in between still wakes it.
            let freed = self.freed.notified();
            if let Some(slot) = self.try_start(place.ticket, kv_need) {
                return Ok(slot);
            }
            freed.await;
        }
    }

    fn fits(&self, state: &State, kv_need: u64) -> bool {
        state.load.running < self.slots && kv_need <= self.kv_tokens - state.load.kv_used
    }

    fn join_line(self: &Arc<Self>, kv_need: u64) -> Option<Place> {
        let mut state = self.state();
        let starts_now = state.line.is_empty() && self.fits(&state, kv_need);
        if !starts_now && state.line.len() >= self.queue {
            return None;
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.line.push_back(ticket);
        Some(Place {
            engine: Arc::clone(self),
            ticket,
        })
    }

    fn try_start(self: &Arc<Self>, ticket: u64, kv_need: u64) -> Option<Slot> {
        let mut state = self.state();
        if state.line.front() != Some(&ticket) || !self.fits(&state, kv_need) {
            return None;
        }
        state.line.pop_front();
        state.load.running += 1;
        state.load.kv_used += kv_need;
        state.load.total += 1;
        state.load.peak = state.load.peak.max(state.load.running);
        drop(state);
        // The next in line may fit as well.
        self.freed.notify_waiters();
        Some(Slot {
            engine: Arc::clone(self),
            kv_need,
        })
    }

    /// How much slower than alone a call runs now.
    fn drag(&self) -> f64 {
        let others = self.state().load.running.saturating_sub(1);
        1.0 + self.slowdown * f64::from(u32::try_from(others).unwrap_or(u32::MAX))
    }

    /// Time to read a prompt at the present concurrency.
    pub(super) fn prefill(&self, input_tokens: u64) -> Duration {
        seconds(input_tokens as f64 * self.drag() / self.prefill_per_s)
    }

    /// Time to write one output token at the present concurrency.
    pub(super) fn decode_step(&self, output_tokens: u64) -> Duration {
        seconds(output_tokens as f64 * self.drag() / self.decode_per_s)
    }
}

/// Bounded by a day, so that no configuration overflows a clock.
fn seconds(s: f64) -> Duration {
    let day = Duration::from_secs(86_400);
    Duration::try_from_secs_f64(s).map_or(day, |d| d.min(day))
}

/// A place in the line, left when dropped.
struct Place {
    engine: Arc<Engine>,
    ticket: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.engine.state().line.retain(|t| *t != self.ticket);
        self.engine.freed.notify_waiters();
    }
}

/// A call being worked on; dropping it frees its slot and its KV room.
#[derive(Debug)]
pub(super) struct Slot {
    engine: Arc<Engine>,
    kv_need: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.engine.state();
        state.load.running -= 1;
        state.load.kv_used -= self.kv_need;
        drop(state);
        self.engine.freed.notify_waiters();
    }
}

/// Keeps a steady pace: steps add up exactly, however coarse the timer is.
#[derive(Debug)]
pub(super) struct Pace {
    due: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            due: Instant::now(),
        }
    }

    /// When a step that takes `step` is over.
    pub(super) fn next(&mut self, step: Duration) -> Instant {
        let now = Instant::now();
        let floor = now.checked_sub(CATCH_UP).unwrap_or(now);
        self.due = self.due.max(floor) + step;
        self.due
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn engine(slots: usize, queue: usize, kv_tokens: u64) -> Arc<Engine> {
        Engine::new(&Config {
            slots,
            queue,
            kv_tokens,
            slowdown: 0.5,
            decode_tokens_per_s: 10.0,
            ..Config::default()
        })
    }

    #[tokio::test]
    async fn a_call_beyond_slots_and_queue_is_refused_and_the_line_moves_when_a_slot_is_freed() {
        let engine = engine(1, 1, 1_000);
        let first = engine.enter(10).await.unwrap();
        let second = tokio::spawn({
            let engine = Arc::clone(&engine);
            async move { engine.enter(10).await }
        });
        while engine.load().waiting == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(engine.enter(10).await.unwrap_err(), Refused::QueueFull);
        drop(first);
        let slot = second.await.unwrap().unwrap();
        assert_eq!(
            (
                engine.load().running,
                engine.load().waiting,
                engine.load().peak
            ),
            (1, 0, 1)
        );
        drop(slot);
        assert_eq!(
            (
                engine.load().running,
                engine.load().kv_used,
                engine.load().total
            ),
            (0, 0, 2)
        );
    }

    #[tokio::test]
    async fn kv_room_holds_a_call_back_though_slots_are_free() {
        let engine = engine(8, 8, 100);
        assert_eq!(engine.enter(101).await.unwrap_err(), Refused::NeverFits);
        let first = engine.enter(60).await.unwrap();
        let mut second = Box::pin(engine.enter(60));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        assert!(second.await.is_ok());
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_leaves_the_line_to_the_next() {
        let engine = engine(1, 8, 100);
        let first = engine.enter(1).await.unwrap();
        let mut gives_up = Box::pin(engine.enter(1));
        let mut next = Box::pin(engine.enter(1));
        assert!(futures_util::poll!(&mut gives_up).is_pending());
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(first);
        drop(gives_up);
        assert!(next.await.is_ok());
    }

    #[tokio::test]
    async fn each_call_is_slower_and_all_together_faster_with_concurrency() {
        let engine = engine(4, 0, 100);
        let mut slots = vec![engine.enter(1).await.unwrap()];
        let alone = engine.decode_step(1);
        slots.push(engine.enter(1).await.unwrap());
        slots.push(engine.enter(1).await.unwrap());
        let of_three = engine.decode_step(1);
        assert_eq!(alone, Duration::from_millis(100));
        assert_eq!(of_three, Duration::from_millis(200));
        assert!(of_three < alone * 3);
    }
}
