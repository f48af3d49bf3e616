//! What makes two states the same: all that a later step or rule can depend on.
//!
//! The product's state keeps more than that: history, times of beginnings and ends, averages, texts, the TTLs of what the
//! reaper has long taken. Left in, they would only multiply states. A field may be left out here where no step reads it to
//! decide, or where the rest of the view fixes it; sets are fixed by the records' states and the scores that are hashed.

use std::hash::{Hash, Hasher};

use tidegate_shared::domain::State as JobState;
use tidegate_shared::domain::step::{Record, Scored, State};

use super::world::{Store, World};

impl Hash for World {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.store.view(self.raw, to);
        match &self.replica {
            Some(replica) => replica.view(self.raw, to),
            None => to.write_u8(0),
        }
        (self.side, self.tick, self.heard).hash(to);
        self.workers.hash(to);
        self.net.hash(to);
        self.left.hash(to);
        (self.minted, self.issued, self.broken).hash(to);
        self.past.hash(to);
    }
}

/// As a path is played back, states are told apart by more than their view.
impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.store.state == other.store.state
            && self.raw == other.raw
            && self.tick == other.tick
            && self.heard == other.heard
            && self.net == other.net
            && self.workers == other.workers
            && self.left == other.left
            && self.past == other.past
            && self.broken == other.broken
    }
}

impl Store {
    fn view<H: Hasher>(&self, raw: u64, to: &mut H) {
        view(&self.state, raw, to);
        self.current.hash(to);
        self.gap.hash(to);
    }
}

fn view<H: Hasher>(state: &State, raw: u64, to: &mut H) {
    let clock = state.clock;
    // Only their sum is ever read.
    raw.saturating_add_signed(clock.skew).hash(to);
    (clock.last, clock.grace_from, clock.grace_until).hash(to);
    (&state.epoch.lineage, &state.epoch.lineage_before).hash(to);
    state.counters.seq.hash(to);
    for (id, record) in &state.jobs {
        id.hash(to);
        view_record(record, to);
    }
    for set in [
        &state.sets.leases,
        &state.sets.due,
        &state.sets.deadlines,
        &state.suspects,
        &state.spent,
    ] {
        view_set(set, to);
    }
    state.idempotency.len().hash(to);
}

fn view_set<H: Hasher>(set: &Scored, to: &mut H) {
    to.write_u8(u8::try_from(set.len()).expect("small"));
    for entry in set.iter() {
        entry.hash(to);
    }
}

fn view_record<H: Hasher>(record: &Record, to: &mut H) {
    (
        record.state,
        record.dead,
        record.cancel,
        record.blame,
        record.attempts,
    )
        .hash(to);
    (record.seq, record.order, record.lives, record.fence).hash(to);
    (&record.owner, &record.settled_by, &record.requeued_by).hash(to);
    (record.deadline_at, record.requeued_at, record.events.len()).hash(to);
    // A worker counts for the blame of its delivery while that runs, and its suspect is in `suspects`.
    if record.state == JobState::Running {
        record.worker.hash(to);
    }
    if record.deadline_at > 0 {
        record.created_at.hash(to);
    }
}
