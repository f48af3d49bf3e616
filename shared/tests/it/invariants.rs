//! What holds after every command, whatever the program: the invariants of the protocol that a state can show, and those
//! that two states one after the other can.

use std::collections::BTreeMap;

use tidegate_shared::domain::State as JobState;
use tidegate_shared::domain::step::{Record, State};

/// Says which invariant does not hold.
pub(crate) fn broken(before: &State, after: &State) -> Option<String> {
    places(after)
        .or_else(|| counts(after))
        .or_else(|| changes(before, after))
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
        let dropped_later = 100; // by the next dead letter, where the bound was lowered
        if owed().count() as u64 > settings.max_queued
            || dead > settings.max_dead_letters + dropped_later
        {
            return Some("I8: bounds".into());
        }
    }
    None
}

/// I2, I3, I4: a terminal changes by a requeue alone, and fences rise.
fn changes(before: &State, after: &State) -> Option<String> {
    let lasting = |r: &Record| {
        (
            r.state,
            r.dead,
            r.ended_at,
            r.fence,
            r.settled_by.clone(),
            r.code.clone(),
        )
    };
    for (id, old) in &before.jobs {
        let Some(new) = after.jobs.get(id) else {
            if !old.state.is_terminal() && after.counters.evicted == before.counters.evicted {
                return Some(format!("I1: {id} is gone"));
            }
            continue;
        };
        if new.fence < old.fence || new.fence > old.fence + 2 {
            return Some(format!("I4: the fence of {id}"));
        }
        if old.state.is_terminal() && new.lives == old.lives && lasting(old) != lasting(new) {
            return Some(format!("I2: {id} changed after its end"));
        }
        if new.lives != old.lives && (old.dead.is_none() || new.state != JobState::Queued) {
            return Some(format!("I3: {id} began a life that nobody gave it"));
        }
    }
    None
}
