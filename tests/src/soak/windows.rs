//! The windows of races that queues usually get wrong, and how often a run was in each. One that was never met proves
//! nothing, so a soak that misses one fails.

use tidegate_shared::audit::Counts;

use super::fault::{Fault, Role};
use super::history::{Event, GIVEN_UP};
use super::record::{Deed, Observed};
use super::story::LEASE_MS;
use super::tally::Tally;

/// What a run left to count in.
pub(crate) struct Sources<'a> {
    pub(crate) counts: &'a Counts,
    pub(crate) tally: &'a Tally,
    pub(crate) observed: &'a Observed,
    pub(crate) deeds: &'a [Deed],
    pub(crate) history: &'a [Event],
}

/// One window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its number.
    pub number: u8,
    /// What may go wrong in it.
    pub name: &'static str,
    /// What is counted.
    pub counted: &'static str,
    count: fn(&Sources<'_>) -> u64,
}

impl Window {
    pub(crate) fn count(&self, sources: &Sources<'_>) -> u64 {
        (self.count)(sources)
    }
}

/// Numbers 13, 14, 16 and 22 are closed by design; what is counted there is how often the record was compared.
#[rustfmt::skip]
pub const WINDOWS: [Window; 28] = [
    Window { number: 1, name: "a submit is stored and its caller does not know",
        counted: "submits answered with the job that was there already: one script stores key, job and place, nothing is reserved",
        count: |s| s.counts.submits_again },
    Window { number: 2, name: "a mutating command times out or its connection ends: done, or not?",
        counted: "replies of steps that were done, lost or cut on their way",
        count: |s| met(s, "lost") + met(s, "a reply cut") },
    Window { number: 3, name: "a command runs after its caller gave it up",
        counted: "commands refused because they came after their deadline",
        count: |s| s.counts.late },
    Window { number: 4, name: "a completion by one who is not the owner any more",
        counted: "settles refused",
        count: |s| s.tally.get("settles refused") },
    Window { number: 5, name: "writes beside the completion by one who is not the owner any more",
        counted: "renewals and pieces of streams refused",
        count: |s| s.tally.get("renewals refused") + s.tally.get("appends refused") },
    Window { number: 6, name: "a renewal against the reaper",
        counted: "renewals refused within a lease of the loss of theirs",
        count: |s| s.tally.get("renewals of lapsed leases") },
    Window { number: 7, name: "a worker believes in its lease longer than the store",
        counted: "calls that workers closed by their own clock",
        count: |s| said(s, "closed by its own clock") },
    Window { number: 8, name: "work that takes longer than a fixed visibility time-out",
        counted: "answers published after more than a lease, in one delivery",
        count: |s| s.tally.get("calls longer than a lease") },
    Window { number: 9, name: "cancel, completion and loss of a lease at once",
        counted: "a cancel within 5 ms of a settle or a lost lease of the same job, or the other way round",
        count: |s| s.tally.get("cancel against settle or lapse") },
    Window { number: 10, name: "a server that goes on from another history",
        counted: "epochs begun: the server was restarted or promoted",
        count: |s| s.tally.get("epochs") },
    Window { number: 11, name: "the store's clock steps back",
        counted: "steps that read an earlier time than the one before",
        count: |s| s.counts.steps_back },
    Window { number: 12, name: "the store stood still, and every lease looks over",
        counted: "graces begun over live leases",
        count: |s| s.tally.get("graces over live leases") },
    Window { number: 13, name: "TIME moves inside a script",
        counted: "steps whose reply has the one time that they read",
        count: |s| s.counts.entries },
    Window { number: 14, name: "a script fails between two writes",
        counted: "scripts that the server refused before their first write (memory, read-only, replicas)",
        count: |s| errors(s, &["OOM", "READONLY", "NOREPLICAS"]) },
    Window { number: 15, name: "memory is full, and only ended work gives some back",
        counted: "settles taken while memory was full",
        count: |s| s.tally.get("settled while memory was full") },
    Window { number: 16, name: "numbers lose digits on their way through Lua",
        counted: "replies compared number by number",
        count: |s| s.counts.entries },
    Window { number: 17, name: "the server is busy with a script",
        counted: "commands answered BUSY",
        count: |s| errors(s, &["BUSY"]) },
    Window { number: 18, name: "the server has forgotten the scripts",
        counted: "commands answered NOSCRIPT",
        count: |s| errors(s, &["NOSCRIPT"]) },
    Window { number: 19, name: "hints are lost, and are not sent again",
        counted: "times that the server, its hints or all connections went away",
        count: |s| deeds(s, |f| matches!(f, Fault::StoreKill(_) | Fault::KillSubscribers | Fault::ResetAll | Fault::Refuse(_))) },
    Window { number: 20, name: "a caller leaves while its command is on the way",
        counted: "submits given up by their client, sent again under the same key",
        count: |s| s.history.iter().filter(|e| e.said == GIVEN_UP).count() as u64 },
    Window { number: 21, name: "a message is cut in its middle",
        counted: "requests and replies cut after their first bytes",
        count: |s| met(s, "cut in its middle") },
    Window { number: 22, name: "the request of a job is gone before its turn",
        counted: "deliveries, each with the whole request: no record of owed work has a TTL",
        count: |s| s.counts.fences },
    Window { number: 23, name: "a blocking pop while the wall clock steps",
        counted: "workers that were blocked when the store's clock stepped",
        count: |s| s.deeds.iter().filter(|d| matches!(d.fault, Fault::ClockStep(_))).map(|d| d.met).sum() },
    Window { number: 24, name: "a settle is sent again while the first is on its way",
        counted: "settles answered as settled before",
        count: |s| s.counts.settles_again },
    Window { number: 25, name: "a reaper that slept acts on what it knew",
        counted: "reapers thawed after more than a lease, and their commands that came too late",
        count: |s| s.tally.late("expire")
            + deeds(s, |f| matches!(f, Fault::Freeze(Role::Reaper, ms) if *ms > LEASE_MS)) },
    Window { number: 26, name: "a planned stop with work in hand",
        counted: "deliveries handed back",
        count: |s| s.tally.get("releases") },
    Window { number: 27, name: "a waiter misses the hint of its job",
        counted: "clients that waited when hints were cut off",
        count: |s| s.deeds.iter().filter(|d| matches!(d.fault, Fault::KillSubscribers)).map(|d| d.met).sum() },
    Window { number: 28, name: "two requeues of one dead letter at once",
        counted: "requeues that found the letter gone, or themselves done already",
        count: |s| s.tally.get("requeues refused") + s.tally.get("requeues again") },
];

fn met(sources: &Sources<'_>, words: &str) -> u64 {
    let of = sources.observed.proxy.iter();
    of.filter(|met| met.kind.contains(words))
        .map(|met| met.count)
        .sum()
}

fn said(sources: &Sources<'_>, what: &str) -> u64 {
    sources.observed.said.get(what).copied().unwrap_or(0)
}

fn errors(sources: &Sources<'_>, kinds: &[&str]) -> u64 {
    let errors = &sources.observed.errors;
    kinds.iter().filter_map(|kind| errors.get(*kind)).sum()
}

/// Faults of a kind, each at its beginning.
fn deeds(sources: &Sources<'_>, of: impl Fn(&Fault) -> bool) -> u64 {
    let begun = sources.deeds.iter().filter(|deed| !deed.over);
    begun.filter(|deed| of(&deed.fault)).count() as u64
}
