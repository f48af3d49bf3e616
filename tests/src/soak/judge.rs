//! The verdict on a record: every promise, held against what the store recorded, what clients saw and how things stood.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

use tidegate_shared::audit::history::{self as audit_history, Effects, Phase, What};
use tidegate_shared::audit::{self, Replay};
use tidegate_shared::domain::step::{Action, State};
use tidegate_shared::domain::{JobId, PoolName};
use tidegate_shared::protocol::Idempotency;

use super::figures::Figures;
use super::history::{Asked, Came, Event, Shown};
use super::record::{Observed, Plan, Record};
use super::rest::{keys, standing};
use super::story::{Story, TENANTS};
use super::tally::{Before, Tally};
use super::windows::{Sources, WINDOWS};

/// Findings of one sort that are told; the rest is counted.
const TOLD: usize = 8;
/// What a record comes to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was run.
    pub plan: Plan,
    /// The version of the sources that ran.
    pub commit: String,
    /// What must not be; empty for a good run. The same for the same record.
    pub findings: Vec<String>,
    /// The numbers.
    pub figures: Figures,
}

impl Verdict {
    /// The verdict in words: the same for the same record.
    pub fn text(&self) -> String {
        let head = format!("seed {} of commit {}", self.plan.seed, self.commit);
        match self.findings.len() {
            0 => format!("{head}: everything holds"),
            some => format!("{head}: {some} findings\n{}", self.findings.join("\n")),
        }
    }

    /// How to see a failure again: from its record, and by a new run of its seed.
    pub fn again(&self, dir: &Path) -> String {
        let Plan {
            seed,
            jobs,
            faults,
            clients,
            watch_permille,
            ..
        } = self.plan;
        let profile = if cfg!(debug_assertions) {
            ""
        } else {
            "--release "
        };
        let soak = format!("cargo run {profile}-p tidegate-tests --bin soak --");
        format!(
            "the same failure from its record:  {soak} --replay {}\n\
             a new run of the same seed:        {soak} --first {seed} --seeds 1 --jobs {jobs} --faults {faults} --clients {clients} --watch {watch_permille} --least 0",
            dir.display()
        )
    }
}

/// What a replay leaves.
struct Replayed {
    replay: Replay,
    effects: Effects,
    tally: Tally,
    /// Terminals of lives before the last, by job.
    earlier: HashMap<String, Vec<(String, u64)>>,
}

/// Judges a record.
///
/// # Errors
/// Where it cannot be read.
pub fn judge(record: &Record) -> io::Result<Verdict> {
    let plan = record.plan()?;
    let (deeds, history, observed) = (record.deeds()?, record.history()?, record.observed()?);
    let mut findings = Vec::new();
    let pool: PoolName = "default".parse().map_err(io::Error::other)?;
    let mut replayed = Replayed {
        replay: Replay::new(pool),
        effects: Effects::default(),
        tally: Tally::new(deeds.clone()),
        earlier: HashMap::new(),
    };
    let sound = replay(record, &mut replayed)?;
    let mut figures = Figures::of(&plan, &replayed.replay, &observed, &deeds, &history);
    figures
        .recovered_ms
        .clone_from(&replayed.tally.recovered_ms);
    if let Some(what) = sound {
        figures.parted(&what);
        findings.push(format!("the record and the reference part at {what}"));
    } else {
        let state = replayed.replay.state();
        clients_agree(&plan, &history, &replayed, &mut findings);
        figures.lost = lost(state, &history, &observed, &mut findings);
        figures.duplicate_terminals = terminals_stay(&history, &replayed, &mut findings);
        figures.duplicate_terminals += lists_agree(state, &observed, &mut findings);
        figures.leaked_keys = keys(state, &observed, &mut findings);
    }
    let wrong = history.iter().filter(|event| !event.wrong.is_empty());
    let wrong = wrong.map(|event| format!("job {} call {}: {}", event.n, event.call, event.wrong));
    tell("answer", wrong.collect(), &mut findings);
    standing(&observed, &mut findings);
    let sources = Sources {
        counts: replayed.replay.counts(),
        tally: &replayed.tally,
        observed: &observed,
        deeds: &deeds,
        history: &history,
    };
    for window in &WINDOWS {
        figures
            .windows
            .insert(window.number, window.count(&sources));
    }
    Ok(Verdict {
        commit: record.commit()?,
        plan,
        findings,
        figures,
    })
}

/// Feeds the record to the reference. Gives where the two part.
fn replay(record: &Record, to: &mut Replayed) -> io::Result<Option<String>> {
    for piece in record.pieces()? {
        let (pool, entries) = audit::load(&piece)?;
        for entry in &entries {
            let requeue = (entry.step == "requeue")
                .then(|| entry.read(&pool).ok())
                .flatten();
            let named = requeue
                .as_ref()
                .and_then(|read| match &read.command.action {
                    Action::Requeue(step) => Some(&step.id),
                    _ => None,
                });
            let before = Before::of(to.replay.state(), entry, named);
            let end = named.and_then(|id| terminal(to.replay.state(), id));
            let read = match to.replay.feed(entry) {
                Ok(read) => read,
                Err(divergence) => return Ok(Some(divergence.to_string())),
            };
            if let (Some(end), Some(id)) = (end, named) {
                let ends = to.earlier.entry(id.bare().to_owned()).or_default();
                if !ends.contains(&end) {
                    ends.push(end);
                }
            }
            to.effects.note(&read);
            to.tally.take(entry, &read, &before, to.replay.state());
        }
    }
    Ok(to
        .replay
        .look()
        .err()
        .map(|what| format!("its end: {what}")))
}

/// Status and end of a job that is over.
fn terminal(state: &State, id: &JobId) -> Option<(String, u64)> {
    let record = state.jobs.get(id.bare())?;
    let over = record.state.is_terminal();
    over.then(|| (record.state.to_string(), record.ended_at))
}

/// What clients were told, against the record.
fn clients_agree(plan: &Plan, history: &[Event], replayed: &Replayed, findings: &mut Vec<String>) {
    let mut events = Vec::new();
    let mut tenants: HashMap<u32, usize> = HashMap::new();
    for event in history {
        let tenant = *tenants
            .entry(event.n)
            .or_insert_with(|| Story::draw(plan.seed, event.n, 0).tenant);
        events.extend(converted(event, TENANTS[tenant]));
    }
    let state = replayed.replay.state();
    let report = audit_history::check(&events, &replayed.effects, state, false);
    tell("client history", report.problems, findings);
}

/// An event as the check of histories takes it; none of what is checked here alone.
fn converted(event: &Event, tenant: &str) -> Option<audit_history::Event> {
    let id: Option<JobId> = event.job.parse().ok();
    let state = event.said.parse().ok();
    let what = match event.asked {
        Asked::Submit => What::Submit {
            key_hash: Some(Idempotency::key_hash_of(
                tenant,
                &format!("soak-{}", event.n),
            )),
            id,
        },
        Asked::SubmitOnce => What::Submit { key_hash: None, id },
        Asked::Read => What::Read {
            id: id?,
            state,
            result: None,
        },
        Asked::Cancel => What::Cancel { id: id?, state },
        Asked::Requeue => What::Requeue { id: id? },
        Asked::Follow | Asked::Peek => return None,
    };
    Some(audit_history::Event {
        op: event.call,
        client: event.n,
        at_ms: event.at_us / 1_000,
        phase: match event.came {
            Came::Invoke => Phase::Invoke,
            Came::Ok => Phase::Ok,
            Came::Fail => Phase::Fail,
            Came::Unknown => Phase::Unknown,
        },
        what,
    })
}

/// Every job that a client was told of, or that the store accepted, has ended, and is shown.
fn lost(state: &State, history: &[Event], observed: &Observed, findings: &mut Vec<String>) -> u64 {
    let mut owed: BTreeSet<String> = BTreeSet::new();
    let told = history
        .iter()
        .filter(|event| event.came == Came::Ok && !event.job.is_empty());
    owed.extend(told.map(|event| event.job.clone()));
    let pool: PoolName = "default".parse().expect("a pool's name");
    let accepted = state
        .jobs
        .keys()
        .filter_map(|bare| JobId::from_bare(&pool, bare).ok());
    owed.extend(accepted.map(|id| id.to_string()));
    let mut lost = Vec::new();
    for id in owed {
        let bare = id
            .parse()
            .map(|id: JobId| id.bare().to_owned())
            .unwrap_or_default();
        match state.jobs.get(&bare) {
            None => lost.push(format!("{id} was accepted and is nowhere")),
            Some(record) if !record.state.is_terminal() => {
                lost.push(format!("{id} is {} for ever", record.state))
            }
            Some(_) if observed.lists.iter().any(|list| !list.contains_key(&id)) => {
                lost.push(format!("{id} is not listed"));
            }
            Some(_) => {}
        }
    }
    let count = lost.len() as u64;
    tell("lost", lost, findings);
    count
}

/// Each terminal that a client was shown is one that the job has had.
fn terminals_stay(history: &[Event], replayed: &Replayed, findings: &mut Vec<String>) -> u64 {
    let state = replayed.replay.state();
    let mut wrong = Vec::new();
    let mut seen: HashMap<(&str, u64), &Shown> = HashMap::new();
    for event in history {
        let (Some(shown), Ok(id)) = (&event.shown, event.job.parse::<JobId>()) else {
            continue;
        };
        let this = (shown.status.clone(), shown.finished_at_ms);
        let earlier = replayed
            .earlier
            .get(id.bare())
            .is_some_and(|ends| ends.contains(&this));
        if !earlier && terminal(state, &id).as_ref() != Some(&this) {
            wrong.push(format!(
                "job {} was shown as {this:?}, which it never was",
                event.n
            ));
        }
        let before = seen
            .entry((&event.job, shown.finished_at_ms))
            .or_insert(shown);
        if *before != shown {
            wrong.push(format!(
                "a terminal of job {} changed: {before:?} then {shown:?}",
                event.n
            ));
        }
    }
    let count = wrong.len() as u64;
    tell("terminal", wrong, findings);
    count
}

/// Both looks at all jobs show what the record ends with.
fn lists_agree(state: &State, observed: &Observed, findings: &mut Vec<String>) -> u64 {
    let mut wrong = Vec::new();
    for list in &observed.lists {
        for (id, shown) in list {
            let Ok(id) = id.parse::<JobId>() else {
                wrong.push(format!("`{id}` is listed"));
                continue;
            };
            let shown = shown.as_ref().map(|s| (s.status.clone(), s.finished_at_ms));
            let end = terminal(state, &id);
            if shown != end {
                wrong.push(format!("{id} is listed as {shown:?} and is {end:?}"));
            }
        }
    }
    if observed.lists.len() == 2 && observed.lists[0] != observed.lists[1] {
        wrong.push("the second look at all jobs differs from the first".into());
    }
    let count = wrong.len() as u64;
    tell("list", wrong, findings);
    count
}

/// The first of a sort, and how many more there are.
pub(super) fn tell(sort: &str, mut all: Vec<String>, findings: &mut Vec<String>) {
    let more = all.len().saturating_sub(TOLD);
    all.truncate(TOLD);
    findings.extend(all.into_iter().map(|what| format!("{sort}: {what}")));
    if more > 0 {
        findings.push(format!("{sort}: and {more} more"));
    }
}
