//! The check of a history.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Effects, Event, Phase, What};
use crate::domain::step::{Record, State};
use crate::domain::{JobId, State as JobState};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations by how they ended; one without an end counts as unknown.
    pub ok: u64,
    /// Refused.
    pub failed: u64,
    /// Open.
    pub unknown: u64,
    /// Unknown submits that did become a job.
    pub unknown_accepted: u64,
    /// What must not be; empty for a good run.
    pub problems: Vec<String>,
    /// Operations that were told `ok` and are not in the record. Filled for a run with a failover alone, where such a loss
    /// is to be listed; without one each is a problem.
    pub lost: Vec<String>,
}

/// One operation from its invoke to its end.
struct Op<'a> {
    number: u64,
    invoked_at: u64,
    /// None: it never ended.
    ended_at: Option<u64>,
    phase: Phase,
    what: &'a What,
}

struct Check<'a> {
    effects: &'a Effects,
    state: &'a State,
    failover: bool,
    report: Report,
}

/// Holds the history of one pool against the record's effects and the state that the record ends with.
///
/// `failover`: the store went on from a copy that may have lacked the last writes; then what was told `ok` and is gone is
/// listed in [`Report::lost`].
pub fn check(events: &[Event], effects: &Effects, state: &State, failover: bool) -> Report {
    let mut check = Check {
        effects,
        state,
        failover,
        report: Report::default(),
    };
    let ops = check.pair(events);
    check.submits(&ops);
    for op in &ops {
        match op.phase {
            Phase::Ok => check.done(op),
            Phase::Fail | Phase::Unknown | Phase::Invoke => {}
        }
    }
    check.refusals(&ops);
    check.reads(&ops);
    check.report
}

impl<'a> Check<'a> {
    fn problem(&mut self, op: &Op<'_>, what: &str) {
        let problem = format!("operation {} {:?}: {what}", op.number, op.what);
        self.report.problems.push(problem);
    }

    /// It was told `ok`, and the record lacks it.
    fn missing(&mut self, op: &Op<'_>, what: &str) {
        if self.failover {
            let lost = format!("operation {} {:?}: {what}", op.number, op.what);
            self.report.lost.push(lost);
        } else {
            self.problem(op, what);
        }
    }

    /// Brings invokes and ends together.
    fn pair(&mut self, events: &'a [Event]) -> Vec<Op<'a>> {
        let mut ops: BTreeMap<u64, Op<'a>> = BTreeMap::new();
        for event in events {
            let known = ops.get_mut(&event.op);
            match (event.phase, known) {
                (Phase::Invoke, None) => {
                    let op = Op {
                        number: event.op,
                        invoked_at: event.at_ms,
                        ended_at: None,
                        phase: Phase::Unknown,
                        what: &event.what,
                    };
                    ops.insert(event.op, op);
                }
                (Phase::Ok | Phase::Fail | Phase::Unknown, Some(op)) if op.ended_at.is_none() => {
                    op.ended_at = Some(event.at_ms);
                    op.phase = event.phase;
                    op.what = &event.what;
                }
                _ => {
                    let problem = format!("operation {}: its lines do not fit", event.op);
                    self.report.problems.push(problem);
                }
            }
        }
        for op in ops.values() {
            match op.phase {
                Phase::Ok => self.report.ok += 1,
                Phase::Fail => self.report.failed += 1,
                Phase::Unknown | Phase::Invoke => self.report.unknown += 1,
            }
        }
        ops.into_values().collect()
    }

    /// Each accepted job is one that a client was told of, or may be one that it was not.
    fn submits(&mut self, ops: &[Op<'_>]) {
        let mut told: HashSet<&JobId> = HashSet::new();
        let mut open_keys: HashSet<&str> = HashSet::new();
        let mut open = 0u64;
        for op in ops {
            let What::Submit { key_hash, id } = op.what else {
                continue;
            };
            match (op.phase, id, key_hash) {
                (Phase::Ok, Some(id), _) => {
                    told.insert(id);
                }
                (Phase::Unknown, _, Some(key)) => {
                    open_keys.insert(key);
                }
                (Phase::Unknown, _, None) => open += 1,
                _ => {}
            }
        }
        let effects = self.effects;
        let with_key: HashMap<&JobId, &str> = effects
            .by_key
            .iter()
            .flat_map(|(key, ids)| ids.iter().map(move |id| (id, key.as_str())))
            .collect();
        let mut spare = 0;
        let mut accepted: Vec<_> = effects.accepted.iter().collect();
        accepted.sort_unstable();
        for (id, times) in accepted {
            if *times > 1 {
                let problem = format!("{id} was accepted {times} times");
                self.report.problems.push(problem);
            }
            if told.contains(id) {
                continue;
            }
            let by_key = with_key.get(id).is_some_and(|key| open_keys.contains(key));
            if !by_key {
                spare += 1;
            }
            self.report.unknown_accepted += 1;
        }
        if spare > open {
            let problem = format!(
                "{spare} jobs were accepted that nobody was told of, by {open} submits without an answer"
            );
            self.report.problems.push(problem);
        }
        self.keys();
    }

    /// One key is one job.
    fn keys(&mut self) {
        let mut twice: Vec<_> = self
            .effects
            .by_key
            .iter()
            .filter(|(_, ids)| ids.len() > 1)
            .collect();
        twice.sort_unstable();
        for (key, ids) in twice {
            let problem = format!("key {key} became {} jobs: {ids:?}", ids.len());
            self.report.problems.push(problem);
        }
    }

    /// An `ok` is in the record.
    fn done(&mut self, op: &Op<'_>) {
        let effects = self.effects;
        match op.what {
            What::Submit { id: None, .. } => self.problem(op, "it became no job"),
            What::Submit { id: Some(id), .. } => {
                if !effects.accepted.contains_key(id) {
                    self.missing(op, "the job was never accepted");
                }
            }
            What::Cancel { id, state } => {
                if !effects.cancel_met.contains(id) {
                    self.missing(op, "no cancel met the job");
                } else if let Some(state) = state {
                    self.cancelled(op, id, *state);
                }
            }
            What::Requeue { id } => {
                if !effects.requeued.contains_key(id) {
                    self.missing(op, "the job was never requeued");
                }
            }
            What::Purge { id } => {
                if !effects.purged.contains(id) {
                    self.missing(op, "the job was never purged");
                }
            }
            What::Settle { id, owner, tag } => {
                let told = effects.settles.get(&(id.clone(), owner.clone()));
                let tag = tag.as_deref().unwrap_or_default();
                if !told.is_some_and(|tags| tags.contains(tag)) {
                    self.missing(op, "no settle of that delivery was told so");
                }
            }
            What::Read { .. } => {}
        }
    }

    /// The answer to a cancel agrees with the job's end for ever.
    fn cancelled(&mut self, op: &Op<'_>, id: &JobId, state: JobState) {
        let Some(record) = self.only_life(id) else {
            return;
        };
        let end = record.state;
        if state.is_terminal() && end != state {
            self.problem(op, &format!("the job ended as {end}"));
        }
        if !state.is_terminal() && end == JobState::Succeeded {
            self.problem(op, "the job was to be cancelled, and succeeded");
        }
    }

    /// A job that is kept, and was never given another life.
    fn only_life(&self, id: &JobId) -> Option<&'a Record> {
        let record = self.state.jobs.get(id.bare())?;
        (!self.effects.lived_again(id)).then_some(record)
    }

    /// What was refused each time was not done; what was asked so often was not done more often.
    fn refusals(&mut self, ops: &[Op<'_>]) {
        let mut cancels: HashMap<&JobId, (bool, &Op<'_>)> = HashMap::new();
        let mut requeues: HashMap<&JobId, (u64, &Op<'_>)> = HashMap::new();
        for op in ops {
            let refused = op.phase == Phase::Fail;
            match op.what {
                What::Cancel { id, .. } => {
                    let all = cancels.entry(id).or_insert((true, op));
                    all.0 &= refused;
                }
                What::Requeue { id } => {
                    let may_be = requeues.entry(id).or_insert((0, op));
                    may_be.0 += u64::from(!refused);
                }
                // A purge whose reply was lost is sent again, and then told that there is no such job.
                _ => {}
            }
        }
        let effects = self.effects;
        for (id, (refused, op)) in cancels {
            if refused && effects.cancelled.contains(id) {
                self.problem(op, "it was refused, and the job was cancelled");
            }
        }
        for (id, (may_be, op)) in requeues {
            let lives = effects.lives(id);
            if lives > may_be {
                self.problem(op, &format!("{lives} lives of {may_be} requeues"));
            }
        }
    }

    /// What was read once stays so, and is what the record says.
    fn reads(&mut self, ops: &[Op<'_>]) {
        let mut by_job: BTreeMap<&JobId, Vec<&Op<'_>>> = BTreeMap::new();
        let mut acknowledged: HashMap<&JobId, u64> = HashMap::new();
        for op in ops.iter().filter(|op| op.phase == Phase::Ok) {
            match op.what {
                What::Read { id, .. } => by_job.entry(id).or_default().push(op),
                What::Submit { id: Some(id), .. } => {
                    let at = acknowledged.entry(id).or_insert(u64::MAX);
                    *at = (*at).min(op.ended_at.unwrap_or(u64::MAX));
                }
                _ => {}
            }
        }
        for (id, reads) in by_job {
            for op in &reads {
                self.agrees(op, id, acknowledged.get(id).copied());
            }
            if !self.effects.lived_again(id) {
                self.stays(id, reads);
            }
        }
    }

    /// A read is what the record says.
    fn agrees(&mut self, op: &Op<'_>, id: &JobId, acknowledged: Option<u64>) {
        let What::Read { state, .. } = op.what else {
            return;
        };
        let Some(state) = state else {
            let owed = acknowledged.is_some_and(|at| at < op.invoked_at);
            if owed && self.state.jobs.contains_key(id.bare()) {
                self.problem(op, "the job is there, and was not found");
            }
            return;
        };
        if !self.effects.accepted.contains_key(id) {
            return self.missing(op, "a job was read that was never accepted");
        }
        let end = self.only_life(id).map(|record| record.state);
        if state.is_terminal() && end.is_some_and(|end| end != *state) {
            self.problem(op, &format!("the job ended as {}", end.unwrap_or(*state)));
        }
    }

    /// A terminal that was read is what every later look reads, result and all.
    fn stays(&mut self, id: &JobId, mut reads: Vec<&Op<'_>>) {
        reads.sort_by_key(|op| op.ended_at);
        let mut first: Option<(u64, JobState)> = None;
        let mut results = BTreeSet::new();
        for op in reads {
            let What::Read { state, result, .. } = op.what else {
                continue;
            };
            let Some(state) = *state else { continue };
            results.extend(result.as_deref());
            match first {
                Some((at, seen)) if op.invoked_at >= at && state != seen => {
                    self.problem(op, &format!("it was read as {seen} before"));
                }
                None if state.is_terminal() => {
                    first = Some((op.ended_at.unwrap_or(u64::MAX), state));
                }
                _ => {}
            }
        }
        if results.len() > 1 {
            let problem = format!("{id} was read with {} different results", results.len());
            self.report.problems.push(problem);
        }
    }
}
