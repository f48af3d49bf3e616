//! The invariants and what was found against them.

use std::collections::BTreeMap;

use super::{Finding, Status};

/// Examples told of one invariant.
const EXAMPLES: usize = 5;

/// An invariant of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "`title` says each")]
pub enum Invariant {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I13,
    I14,
}

use Invariant::{I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14};

impl Invariant {
    /// All, in order.
    pub const ALL: [Self; 14] = [I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14];

    /// What holds.
    pub fn title(self) -> &'static str {
        match self {
            I1 => "each job is in exactly one state and one set",
            I2 => "a terminal never changes",
            I3 => "one terminal for each life",
            I4 => "fences of a job strictly rise",
            I5 => "no write by a delivery that is not current",
            I6 => "slots in use are live leases, each with its one owner",
            I7 => "held tokens are the sum of live holds",
            I8 => "depth and bytes are within their bounds",
            I9 => "no index entry without record, no record without index entry",
            I10 => "every other key has a TTL",
            I11 => "each record is in its own tenant's index alone",
            I12 => "concurrency is within the slots",
            I13 => "no job is claimed before it is due",
            I14 => "nothing is stranded",
        }
    }

    /// What a pass rests on, where that is less than the title may seem to say.
    fn limits(self) -> &'static str {
        match self {
            I2 => " (a sample of ended jobs was read twice)",
            I7 => " (this release has no holds: the sum is 0)",
            I10 => " (a sample of keys)",
            I12 => {
                " (live leases were counted; what the model server itself sees cannot be seen from here)"
            }
            _ => "",
        }
    }

    /// What to do where it does not hold.
    fn fix(self) -> &'static str {
        match self {
            I8 | I12 => "raise the bound, or wait: what is there is finished, and nothing is added",
            I14 => {
                "check that a reaper runs and reaches the store; a job without its request can only be cancelled"
            }
            I10 => {
                "find out who wrote the keys; keys of ours that are left over may be deleted by hand"
            }
            _ => {
                "stop writers of the store that are not ours and keep a copy of the data; cancel or purge the jobs named"
            }
        }
    }
}

/// What was seen against the invariants.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    looked_at: u64,
    found: BTreeMap<Invariant, Found>,
}

#[derive(Clone, Debug)]
struct Found {
    status: Status,
    count: usize,
    examples: Vec<String>,
}

/// One thing against an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Against {
    pub(super) invariant: Invariant,
    pub(super) status: Status,
    pub(super) what: String,
}

impl Against {
    /// Something is broken.
    pub(super) fn fail(invariant: Invariant, what: impl Into<String>) -> Self {
        Self {
            invariant,
            status: Status::Fail,
            what: what.into(),
        }
    }

    /// Something that may have a good reason.
    pub(super) fn warn(invariant: Invariant, what: impl Into<String>) -> Self {
        Self {
            status: Status::Warn,
            ..Self::fail(invariant, what)
        }
    }
}

impl Tally {
    /// Counts jobs looked at.
    pub(super) fn look(&mut self, jobs: u64) {
        self.looked_at += jobs;
    }

    /// Notes what was found, `about` a job or a pool.
    pub(super) fn note(&mut self, about: &str, against: Against) {
        let found = self.found.entry(against.invariant).or_insert(Found {
            status: against.status,
            count: 0,
            examples: Vec::new(),
        });
        found.status = found.status.max(against.status);
        found.count += 1;
        let line = format!("{about}: {}", against.what);
        if found.examples.len() < EXAMPLES && !found.examples.contains(&line) {
            found.examples.push(line);
        }
    }

    /// A finding for each invariant.
    pub fn findings(&self) -> Vec<Finding> {
        Invariant::ALL
            .iter()
            .map(|&invariant| self.finding(invariant))
            .collect()
    }

    fn finding(&self, invariant: Invariant) -> Finding {
        let id = format!("{invariant:?}");
        let title = invariant.title();
        match self.found.get(&invariant) {
            None => Finding::pass(
                id,
                format!("{title}: {} jobs{}", self.looked_at, invariant.limits()),
            ),
            Some(found) => {
                let more = match found.count - found.examples.len() {
                    0 => String::new(),
                    more => format!("; and {more} more"),
                };
                Finding::new(
                    id,
                    found.status,
                    format!("{title}: NOT so: {}{more}", found.examples.join("; ")),
                    invariant.fix(),
                )
            }
        }
    }
}
