//! What we believe the pools' clocks to say, to give each command its deadline.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::domain::PoolName;

/// Last reply of each pool: the pool's time, and when the reply came, by our monotonic clock.
#[derive(Default)]
pub(super) struct Clocks(Mutex<HashMap<PoolName, (u64, Instant)>>);

impl Clocks {
    /// A reply said `now_ms`.
    pub(super) fn heard(&self, pool: &PoolName, now_ms: u64) {
        let mut clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.insert(pool.clone(), (now_ms, Instant::now()));
    }

    /// The pool's time, never ahead of the truth by more than drift: the reply was sent before it came.
    pub(super) fn now_ms(&self, pool: &PoolName) -> Option<u64> {
        let clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let &(now_ms, at) = clocks.get(pool)?;
        Some(now_ms + u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX / 4))
    }
}
