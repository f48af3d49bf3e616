//! What a record held, as numbers.

use std::collections::BTreeMap;

use crate::domain::State as JobState;

/// What a replay met. Each is a number of the whole record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries.
    pub entries: u64,
    /// Entries of each step.
    pub steps: BTreeMap<String, u64>,
    /// Jobs accepted.
    pub accepted: u64,
    /// Dead letters that began a new life.
    pub requeued: u64,
    /// Terminals of each kind, over all lives.
    pub terminals: BTreeMap<JobState, u64>,
    /// Jobs removed for good: retention, purge, and dead letters that made room.
    pub forgotten: u64,
    /// Leases that lapsed.
    pub lapsed: u64,
    /// Commands refused because they came after their deadline.
    pub late: u64,
    /// Settles, renewals and appends of deliveries that were not current, refused.
    pub stale_refused: u64,
    /// The same, accepted: 0 in every good run.
    pub stale_accepted: u64,
    /// Submits answered with the job that was there already.
    pub submits_again: u64,
    /// Settles answered as settled before.
    pub settles_again: u64,
    /// Claims answered with the deliveries of the same owners.
    pub claims_again: u64,
    /// A cancel and a settle of the same job within [`RACE_MS`]: the cancel came first.
    pub cancel_then_settle: u64,
    /// The same: the settle came first.
    pub settle_then_cancel: u64,
    /// Renewals, settles and appends that came within [`RACE_MS`] after the job's lease had been taken away.
    pub lapse_then_write: u64,
    /// Times that live leases got longer to be renewed, after a gap.
    pub graces: u64,
    /// Times that the server's clock stepped back.
    pub steps_back: u64,
    /// Deliveries, each with a fence of its own.
    pub fences: u64,
    /// Deliveries whose owner had been used before. A store remembers an owner until no copy of its claim can run any more,
    /// so there is none unless a caller sends an old claim anew.
    pub owners_again: u64,
    /// Most leases at once.
    pub peak_leases: u64,
}

/// Two commands this far apart race for a job, in ms.
pub const RACE_MS: u64 = 100;

impl Counts {
    /// Terminals of every kind.
    pub fn ended(&self) -> u64 {
        self.terminals.values().sum()
    }
}
