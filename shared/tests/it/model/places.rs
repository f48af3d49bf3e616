//! Where jobs are kept: I1, I6, I8, I9 and I14 over a state, written from the sets and not from the moves between them.

use tidegate_shared::domain::State as JobState;
use tidegate_shared::domain::step::State;

/// Each record is in the one set of its state and in no other; each entry of a set has a record.
pub(super) fn each_in_one(state: &State) -> bool {
    let sets = &state.sets;
    let alone = state.jobs.iter().all(|(id, record)| {
        let line = sets.ready.get(&record.priority);
        let places = [
            (
                JobState::Queued,
                line.is_some_and(|line| line.score(id).is_some()),
            ),
            (JobState::Scheduled, sets.due.score(id).is_some()),
            (JobState::Running, sets.leases.score(id).is_some()),
        ];
        let over = sets.dead.score(id).is_some() != sets.ended.score(id).is_some();
        let dead = record.dead.is_some() == sets.dead.score(id).is_some();
        places
            .iter()
            .all(|(here, there)| (record.state == *here) == *there)
            && record.state.is_terminal() == over
            && dead
            && sets.jobs.score(id).is_some()
            && (record.state != JobState::Queued || sets.levels.contains(&record.priority))
    });
    let waiting: u64 = sets.ready.values().map(|line| line.len()).sum();
    let entries = waiting + sets.due.len() + sets.leases.len() + sets.dead.len() + sets.ended.len();
    let jobs = state.jobs.len() as u64;
    let deadlines = state.jobs.iter().all(|(id, record)| {
        let owed = record.deadline_at > 0 && !record.state.is_terminal();
        owed == sets.deadlines.score(id).is_some()
    });
    alone && deadlines && entries == jobs && sets.jobs.len() == jobs
}

/// Leases are the running jobs, within the limit, each with the owner that can be asked for it.
pub(super) fn slots_are_leases(state: &State) -> bool {
    let most = state.settings.as_ref().map_or(0, |s| s.slots);
    let running = state
        .jobs
        .iter()
        .filter(|(_, r)| r.state == JobState::Running);
    let owned = running
        .clone()
        .all(|(id, record)| state.owners.get(&record.owner) == Some(id));
    let running = running.count() as u64;
    owned
        && state.sets.leases.len() == running
        && state.owners.len() as u64 == running
        && running <= most
}

/// Depth as it is derived is what is owed, within its bound; bytes are those of what is owed.
pub(super) fn within_depth(state: &State) -> bool {
    let most = state.settings.as_ref().map_or(0, |s| s.max_queued);
    let owed = || state.jobs.values().filter(|r| !r.state.is_terminal());
    let count = owed().count() as u64;
    let bytes: u64 = owed().map(|r| r.bytes).sum();
    count <= most && state.sets.owed() == count && state.counters.bytes == bytes
}

/// Whether nothing is owed and nothing is held.
pub(super) fn drained(state: &State) -> bool {
    state.sets.owed() == 0
        && state.sets.leases.is_empty()
        && state.sets.due.is_empty()
        && state.owners.is_empty()
        && state.counters.bytes == 0
}
