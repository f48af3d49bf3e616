//! The record of a run, and what it must be.
//!
//! Where `store.audit` is on, each script that may write appends one entry to the pool's stream `audit`: what it was asked,
//! when, and what it replied. Scripts run one after another, so the stream is the true order. [`Replay`] feeds it to the
//! reference and names the first entry at which the two part; [`history`] holds what clients saw against it.

mod counts;
pub mod dump;
mod entry;
pub mod history;
pub mod invariants;
mod ledger;
mod packed;
mod replay;
mod unbind;

#[cfg(test)]
pub(crate) use unbind::command as recorded;

pub use counts::{Counts, RACE_MS};
pub use entry::{Entry, Read, load, save};
pub use replay::{Divergence, Replay, Wrong};

/// Key of a pool's record.
pub fn key(pool: &crate::domain::PoolName) -> String {
    format!("{}:audit", crate::protocol::base(pool))
}
