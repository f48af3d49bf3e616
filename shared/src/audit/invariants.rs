//! What holds after every command, whatever came before: the invariants of the protocol that a state can show, and those
//! that two states one after the other can. Each costs a walk over all jobs.

use std::collections::BTreeMap;

use crate::domain::step::{Record, State};
use crate::domain::{DeadReason, State as JobState};

/// Dead letters that one step drops; where the bound was lowered, the next ones drop the rest.
const DROPPED_LATER: u64 = 100;

/// Says which invariant does not hold after a command that led from `before` to `after`.
pub fn broken(before: &State, after: &State) -> Option<String> {
    standing(after).or_else(|| changes(before, after))
}

/// Says which invariant a state does not keep.
pub fn standing(state: &State) -> Option<String> {
    places(state).or_else(|| counts(state))
}

/// I1, I9, I14: each record is in the set of its state, and in no other; each set has records alone.
fn places(state: &State) -> Option<String> {
    let sets = &state.sets;
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let named = [
        ("due", &sets.due),
        ("leases", &sets.leases),
        ("dead", &sets.dead),
        ("ended", &sets.ended),
    ];
    let ready = sets.ready.values().map(|line| ("ready", line));
    for (name, set) in named.into_iter().chain(ready) {
        for (id, _) in set.iter() {
            found.entry(id).or_default().push(name);
        }
    }
    for (id, record) in &state.jobs {
        let should = match record.state {
            JobState::Queued => "ready",
            JobState::Scheduled => "due",
            JobState::Running => "leases",
            _ if record.dead.is_some() => "dead",
            _ => "ended",
        };
        if found.remove(id.as_str()) != Some(vec![should]) {
            return Some(format!("I1: {id} is not in `{should}` alone"));
        }
        let own = sets
            .tenants
            .get(&record.tenant)
            .and_then(|index| index.score(id));
        if own != Some(record.seq) || sets.jobs.score(id) != Some(record.seq) {
            return Some(format!("I9: {id} is not in its indexes"));
        }
        let owed = !record.state.is_terminal();
        let limited = owed && record.deadline_at > 0;
        if sets.deadlines.score(id) != limited.then_some(record.deadline_at) {
            return Some(format!("I9: deadline of {id}"));
        }
        if owed == record.record_until_raw_ms.is_some() {
            return Some(format!("I10: TTL of {id}"));
        }
    }
    let indexed: u64 = sets.tenants.values().map(|index| index.len()).sum();
    let records = state.jobs.len() as u64;
    if !found.is_empty() || sets.jobs.len() != records || indexed != records {
        return Some(format!("I9: entries without record: {found:?}"));
    }
    None
}

/// I6, I8: slots in use are live leases, each with its owner; bytes are those owed.
fn counts(state: &State) -> Option<String> {
    for (owner, id) in &state.owners {
        if state
            .jobs
            .get(id)
            .is_none_or(|record| record.owner != *owner)
        {
            return Some(format!("I5: the owner of {id} is not its own"));
        }
    }
    if state.owners.len() as u64 != state.sets.leases.len() {
        return Some("I6: owners are not leases".into());
    }
    let owed = || {
        state
            .jobs
            .values()
            .filter(|record| !record.state.is_terminal())
    };
    if owed().map(|record| record.bytes).sum::<u64>() != state.counters.bytes {
        return Some("I8: bytes owed".into());
    }
    if let Some(settings) = &state.settings {
        let dead = state.sets.dead.len();
        if owed().count() as u64 > settings.max_queued
            || dead > settings.max_dead_letters + DROPPED_LATER
        {
            return Some("I8: bounds".into());
        }
    }
    None
}

/// I1–I4 over two states.
fn changes(before: &State, after: &State) -> Option<String> {
    let evicted = after.counters.evicted > before.counters.evicted;
    before.jobs.iter().find_map(|(id, old)| {
        let new = after.jobs.get(id).map(Mark::of);
        Mark::of(old)
            .broken_by(new.as_ref(), evicted)
            .map(|what| format!("{what}: {id}"))
    })
}

/// What of a job's record may change in few ways alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where the job stands.
    pub state: JobState,
    /// Of its last delivery.
    pub fence: u64,
    /// Lives that people gave it.
    pub lives: u64,
    dead: Option<DeadReason>,
    ended_at: u64,
    settled_by: String,
    code: String,
}

impl Mark {
    /// Of a record.
    pub fn of(record: &Record) -> Self {
        Self {
            state: record.state,
            fence: record.fence,
            lives: record.lives,
            dead: record.dead,
            ended_at: record.ended_at,
            settled_by: record.settled_by.clone(),
            code: record.code.clone(),
        }
    }

    /// Says what one command may not have done to the job: I1, a job owed is never gone (`evicted`: it may have died and
    /// made room at once); I2 and I3, a terminal changes by a requeue alone; I4, fences rise.
    pub fn broken_by(&self, new: Option<&Self>, evicted: bool) -> Option<&'static str> {
        let Some(new) = new else {
            return (!self.state.is_terminal() && !evicted).then_some("I1: a job owed is gone");
        };
        // A settle may hand the same job out again.
        if new.fence < self.fence || new.fence > self.fence + 2 {
            return Some("I4: a fence");
        }
        if new.lives == self.lives {
            return (self.state.is_terminal() && self != new).then_some("I2: a terminal changed");
        }
        let given = new.lives == self.lives + 1 && self.dead.is_some();
        (!given || new.state != JobState::Queued).then_some("I3: a life that nobody gave")
    }
}
