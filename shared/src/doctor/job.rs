//! What the facts of one job say. Each look is one script's: what it shows held at one moment.

use super::invariant::Against;
use super::invariant::Invariant::{I1, I2, I3, I4, I5, I6, I9, I10, I11, I13, I14};
use crate::domain::{DeliveryRecord, Job, JobId, PoolName, State};
use crate::protocol::Fact;

/// Ten passes of a reaper: what is over for longer has been left alone.
const LEFT_ALONE_MS: u64 = 10_000;

/// Ways in which a delivery ends its job for good.
const LAST_WORDS: [&str; 5] = ["succeed", "fail", "dead", "deadline", "cancelled"];

/// The moment of a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now_ms: u64,
    /// Leases up to this are not live.
    pub(super) lapsed_ms: u64,
}

/// A job's facts, read.
struct Seen<'a> {
    fact: &'a Fact,
    job: Job,
}

impl Seen<'_> {
    fn text(&self, name: &str) -> &str {
        self.fact.fields.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    fn is_in(&self, set: &str) -> bool {
        self.fact.places.iter().any(|place| place == set)
    }

    fn last(&self) -> Option<&DeliveryRecord> {
        self.job.deliveries.last()
    }
}

/// Whether there is a record at all.
pub(super) fn has_record(fact: &Fact) -> bool {
    !fact.fields.is_empty()
}

/// Judges an entry of an index: that it leads to a record, and that both say the same.
pub(super) fn entry(pool: &PoolName, index: &str, fact: &Fact, at: Moment) -> Vec<Against> {
    if !has_record(fact) {
        return vec![Against::fail(
            I9,
            format!("is in `{index}` and has no record"),
        )];
    }
    let Some(seen) = read(pool, fact) else {
        return vec![Against::fail(I1, "its record cannot be read")];
    };
    let mut found = Vec::new();
    let score: u64 = fact.score.parse().unwrap_or(0);
    let left_alone = at.now_ms.saturating_sub(LEFT_ALONE_MS);
    let mut must = |holds: bool, against: Against| {
        if !holds {
            found.push(against);
        }
    };
    match index.split_once(':').unwrap_or((index, "")) {
        ("jobs", _) => must(
            score == seen.job.seq,
            Against::fail(I9, "its place among all jobs is not its own"),
        ),
        ("leases", _) => {
            must(
                fact.owned == fact.id,
                Against::fail(I6, "has a lease and no owner"),
            );
            let live = at.lapsed_ms.saturating_sub(LEFT_ALONE_MS);
            must(
                score > live,
                Against::fail(I14, "its lease lapsed, and nobody took the job back"),
            );
        }
        ("due", _) => {
            must(
                Some(score) == seen.job.due_at_ms,
                Against::fail(I13, "it is due at another time than it says"),
            );
            must(
                score > left_alone,
                Against::fail(I14, "it is due, and nobody put it in line"),
            );
        }
        ("deadlines", _) => {
            must(
                Some(score) == seen.job.deadline_at_ms,
                Against::fail(I9, "its deadline is another than it says"),
            );
            must(
                !seen.job.state.is_terminal(),
                Against::fail(I9, "it ended, and its deadline is still watched"),
            );
            must(
                score > left_alone,
                Against::fail(I14, "its deadline came, and nobody ended it"),
            );
        }
        ("ready", _) => {
            let place = match seen.number("order") {
                0 => seen.job.seq,
                order => order,
            };
            must(
                score == place,
                Against::fail(I9, "its place in line is not its own"),
            );
        }
        ("owners", _) => must(
            fact.score == seen.text("owner") && seen.job.state == State::Running,
            Against::fail(
                I6,
                "an owner has it that it does not know: a slot is taken by nobody",
            ),
        ),
        ("tenant", tenant) => must(
            seen.job.tenant == tenant,
            Against::fail(I11, "it is in the index of a tenant that is not its own"),
        ),
        _ => {}
    }
    found
}

/// Judges a record by itself.
pub(super) fn record(pool: &PoolName, fact: &Fact) -> Vec<Against> {
    let Some(seen) = read(pool, fact) else {
        return vec![Against::fail(I1, "its record cannot be read")];
    };
    let mut found = places(&seen);
    found.extend(ending(&seen));
    found.extend(deliveries(&seen));
    found.extend(keeping(&seen));
    found
}

fn read<'a>(pool: &PoolName, fact: &'a Fact) -> Option<Seen<'a>> {
    let id = JobId::from_bare(pool, &fact.id).ok()?;
    let job = Job::from_fields(id, &fact.fields).ok()?;
    Some(Seen { fact, job })
}

/// I1, I9, I11, I14: the sets that it is in are those of its state.
fn places(seen: &Seen) -> Vec<Against> {
    let mut found = Vec::new();
    let should = match seen.job.state {
        State::Queued => format!("ready:{}", seen.job.priority),
        State::Scheduled => "due".into(),
        State::Running => "leases".into(),
        _ if seen.job.dead.is_some() => "dead".into(),
        _ => "ended".into(),
    };
    let kept: Vec<&str> = seen
        .fact
        .places
        .iter()
        .map(String::as_str)
        .filter(|place| {
            matches!(*place, "due" | "leases" | "dead" | "ended") || place.starts_with("ready:")
        })
        .collect();
    let state = seen.job.state;
    if kept.is_empty() && !state.is_terminal() {
        found.push(Against::fail(
            I14,
            format!("{state}, and in no set: nobody will find it"),
        ));
    } else if kept != [should.as_str()] {
        found.push(Against::fail(
            I1,
            format!(
                "{state}, and in `{}`, not in `{should}` alone",
                kept.join("`, `")
            ),
        ));
    }
    if !seen.is_in("jobs") {
        found.push(Against::fail(I9, "its record is not among all jobs"));
    }
    if !seen.is_in("tenant") {
        found.push(Against::fail(I11, "it is not in its tenant's index"));
    }
    let watched = seen.job.deadline_at_ms.is_some() && !state.is_terminal();
    if watched && !seen.is_in("deadlines") {
        found.push(Against::fail(I9, "its deadline is not watched"));
    }
    found
}

/// I2, I3: a terminal is whole, and came once.
fn ending(seen: &Seen) -> Vec<Against> {
    let mut found = Vec::new();
    let job = &seen.job;
    if job.state.is_terminal() != job.finished_at_ms.is_some() {
        found.push(Against::fail(
            I2,
            format!("{}, and its end is not as that", job.state),
        ));
    }
    if job.dead.is_some() && job.state != State::Failed {
        found.push(Against::fail(
            I2,
            format!("{}, and a dead letter", job.state),
        ));
    }
    let lives = 1 + seen.number("lives");
    let ends = job
        .deliveries
        .iter()
        .filter(|d| {
            d.outcome
                .as_deref()
                .is_some_and(|o| LAST_WORDS.contains(&o))
        })
        .count() as u64;
    if ends > lives {
        found.push(Against::fail(I3, format!("{ends} ends in {lives} lives")));
    }
    let answered = seen.last().and_then(|d| d.outcome.as_deref()) == Some("succeed");
    if answered != (job.state == State::Succeeded) {
        found.push(Against::fail(
            I3,
            format!("{}, and its last delivery says otherwise", job.state),
        ));
    }
    found
}

/// I4, I5, I13: its deliveries are in order, and the current one alone is open.
fn deliveries(seen: &Seen) -> Vec<Against> {
    let mut found = Vec::new();
    let job = &seen.job;
    let newest = seen.last().map_or(0, |d| d.fence.0);
    let in_order = job.deliveries.windows(2).all(|pair| {
        pair[0].fence < pair[1].fence && pair[0].claimed_at_ms <= pair[1].claimed_at_ms
    });
    if newest != job.fence.0 || !in_order {
        found.push(Against::fail(
            I4,
            format!("its fence is {} after delivery {newest}", job.fence.0),
        ));
    }
    let owner = seen.text("owner");
    if job.state == State::Running {
        let open = seen
            .last()
            .is_some_and(|d| d.outcome.is_none() && Some(&d.worker) == job.worker.as_ref());
        if owner.is_empty() || !open {
            found.push(Against::fail(I5, "it runs, and no delivery of it is open"));
        }
        if seen.fact.owned != seen.fact.id {
            found.push(Against::fail(I6, "it runs, and its owner has no slot"));
        }
        let due_at_ms = job.due_at_ms.unwrap_or(0);
        if seen.last().is_some_and(|d| d.claimed_at_ms < due_at_ms) {
            found.push(Against::fail(I13, "it was claimed before it was due"));
        }
    } else if !owner.is_empty() {
        found.push(Against::fail(
            I5,
            format!("{}, and somebody still owns it", job.state),
        ));
    }
    let closed = job
        .deliveries
        .iter()
        .rev()
        .skip(usize::from(job.state == State::Running));
    if closed.clone().any(|d| d.outcome.is_none()) {
        found.push(Against::fail(
            I5,
            "a delivery that is not current is still open",
        ));
    }
    found
}

/// I10, I14: what is owed stays, and with its request; what ended goes by itself.
fn keeping(seen: &Seen) -> Vec<Against> {
    let mut found = Vec::new();
    let ended = seen.job.state.is_terminal();
    if ended && seen.fact.ttl_ms < 0 {
        found.push(Against::fail(I10, "it ended, and its record has no TTL"));
    }
    if !ended && seen.fact.ttl_ms >= 0 {
        found.push(Against::fail(I10, "it is owed, and its record has a TTL"));
    }
    if !ended && !seen.fact.has_envelope {
        found.push(Against::fail(I14, "its request is gone: it cannot be run"));
    }
    found
}

/// Judges two looks at an ended job, one after the other.
pub(super) fn twice(before: &Fact, after: &Fact) -> Option<Against> {
    const LASTING: [&str; 7] = [
        "state",
        "dead",
        "ended_at",
        "code",
        "fence",
        "settled_by",
        "output_tokens",
    ];
    // It may have gone, or been given a new life by a person.
    if !has_record(after) || before.fields.get("lives") != after.fields.get("lives") {
        return None;
    }
    let changed = LASTING
        .iter()
        .find(|name| before.fields.get(**name) != after.fields.get(**name))?;
    Some(Against::fail(
        I2,
        format!("`{changed}` changed after the end"),
    ))
}
