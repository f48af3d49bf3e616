//! Held answers and their release.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Most tags remembered as released; beyond, the memory of all is dropped, for a server that runs for weeks.
const RELEASED_MAX: usize = 100_000;

#[derive(Debug, Default)]
struct State {
    released: HashSet<String>,
    held: HashMap<String, usize>,
}

/// One gate per tag. A released gate stays open until the reset, so a release that comes before its call is not lost.
#[derive(Debug, Default)]
pub(super) struct Gates {
    state: Mutex<State>,
    changed: Notify,
}

impl Gates {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `tag` is released. Dropping the future is the caller's giving up.
    pub(super) async fn wait(&self, tag: &str) {
        *self.state().held.entry(tag.to_owned()).or_default() += 1;
        let _held = Held { gates: self, tag };
        loop {
            let changed = self.changed.notified();
            if self.state().released.contains(tag) {
                return;
            }
            changed.await;
        }
    }

    /// Opens the gate; gives the number of calls that were waiting at it.
    pub(super) fn release(&self, tag: &str) -> usize {
        let mut state = self.state();
        if state.released.len() >= RELEASED_MAX {
            state.released.clear();
        }
        state.released.insert(tag.to_owned());
        let held = state.held.get(tag).copied().unwrap_or(0);
        drop(state);
        self.changed.notify_waiters();
        held
    }

    /// Closes all gates for calls to come.
    pub(super) fn reset(&self) {
        self.state().released.clear();
    }
}

struct Held<'a> {
    gates: &'a Gates,
    tag: &'a str,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.gates.state();
        if let Some(count) = state.held.get_mut(self.tag) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(self.tag);
            }
        }
    }
}
