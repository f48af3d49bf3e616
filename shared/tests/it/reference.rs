//! The scripts against the reference, over random programs.

use std::cell::{Cell, RefCell};

use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use tidegate_shared::domain::WorkerId;

use crate::program::program;
use crate::rig::Rig;
use crate::run::Run;
use crate::seen::Seen;

/// Programs of a run; `PROPTEST_CASES` asks for more.
const CASES: u32 = 512;

/// What a run that means anything has met.
const MET: [&str; 51] = [
    "Late",
    "NoPool",
    "Submit(Accepted",
    "Submit(Duplicate(JobId",
    "Submit(Conflict(JobId",
    "Submit(Draining",
    "Submit(Full",
    "Submit(Unsatisfiable",
    "Claim(Deliveries(",
    "claim Empty",
    "claim Slots",
    "claim Paused",
    "renew Ok",
    "renew Follow",
    "renew Cancel",
    "renew Lost",
    "settle Settled Some(Succeeded) None",
    "settle Settled Some(Failed) None",
    "settle Settled Some(Failed) Some(Upstream)",
    "settle Settled Some(Failed) Some(Deadline)",
    "settle Settled Some(Scheduled) None",
    "settle Settled Some(Queued) None",
    "settle Cancelled Some(Cancelled) None",
    "settle Duplicate Some(Succeeded) None",
    "settle Lost None None",
    "settle Lost Some(Queued) None",
    "Append(Appended",
    "Append(Lost",
    "Follow(Following(Running",
    "Follow(Unknown",
    "Cancel(Cancelled",
    "Cancel(Cancelling",
    "Cancel(Already(Cancelled",
    "Cancel(Unknown",
    "Requeue(Requeued",
    "Requeue(NotDead(Queued",
    "Requeue(Full",
    "Requeue(Unknown",
    "Purge(Purged",
    "Purge(NotDead(Queued",
    "expire bodies",
    "expire records",
    "expire letters",
    "expire overdue",
    "lapsed",
    "poisoned",
    "evicted",
    "grace",
    "epoch",
    "suspect",
    "idempotency over",
];

#[test]
fn the_scripts_do_what_the_reference_says() {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(CASES);
    let config = Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/it/reference.regressions",
        ))),
        ..Config::default()
    };
    let mut seen = Seen::new();
    compare(&mut Rig::start(), config, &mut seen)
        .unwrap_or_else(|difference| panic!("{difference}"));
    let missed: Vec<_> = MET
        .iter()
        .filter(|what| !seen.contains_key(**what))
        .collect();
    assert!(missed.is_empty(), "never met: {missed:?}\nmet: {seen:#?}");
}

/// Runs random programs; says where scripts and reference part.
fn compare(rig: &mut Rig, config: Config, seen: &mut Seen) -> Result<(), String> {
    let workers = [WorkerId::mint(), WorkerId::mint(), WorkerId::mint()];
    let cell = RefCell::new((rig, seen));
    TestRunner::new(config)
        .run(&program(), |program| {
            let mut both = cell.borrow_mut();
            let (rig, seen) = &mut *both;
            Run::program(rig, &workers, &program, seen)
                .map(drop)
                .map_err(TestCaseError::fail)
        })
        .map_err(|error| error.to_string())
}

/// Faults a script may have: each a line of it, and what stands there instead.
const FAULTS: [(&str, &str, &str); 14] = [
    (
        "any owner may settle",
        "and job.owner == owner and int(job.fence) == fence",
        "and int(job.fence) == fence",
    ),
    (
        "any fence may settle",
        "and job.owner == owner and int(job.fence) == fence",
        "and job.owner == owner",
    ),
    (
        "a lapsed lease settles",
        "if current and expiry > P.lapsed then",
        "if current then",
    ),
    (
        "a verdict beats a cancel",
        "tag = job.cancel and 'cancelled' or 'settled'",
        "tag = 'settled'",
    ),
    (
        "a settle sent again is lost",
        "elseif job and job.settled_by == owner then",
        "elseif false then",
    ),
    (
        "attempts have no end",
        "if verdict == 'retry' and job.attempts < job.max_attempts and",
        "if verdict == 'retry' and",
    ),
    (
        "any owner may renew",
        "if job[1] == owner and job[2] == fence and",
        "if job[2] == fence and",
    ),
    (
        "renewals have no end",
        "math.min(now + P.lease_ms, last)",
        "now + P.lease_ms",
    ),
    (
        "depth has no bound",
        "if owed() >= P.max_queued then",
        "if false then",
    ),
    (
        "another tenant cancels",
        "(tenant ~= '' and job.tenant ~= tenant)",
        "false",
    ),
    (
        "the clock goes back",
        "  if P.now < P.last then",
        "  if false then",
    ),
    (
        "no grace after a gap",
        "if P.now < P.grace_until then P.lapsed",
        "if false then P.lapsed",
    ),
    (
        "everybody is to blame",
        "if not store_gap and (suspect or until_ms <= P.now) then",
        "if true then",
    ),
    (
        "bytes are not given back",
        "P.bytes = P.bytes - job.bytes",
        "",
    ),
];

#[test]
fn a_fault_in_a_script_is_found() {
    let mut unfound = Vec::new();
    for (fault, line, instead) in FAULTS {
        let met = Cell::new(false);
        let mut rig = Rig::start_with(|_, source| {
            met.set(met.get() || source.contains(line));
            source.replace(line, instead)
        });
        assert!(met.get(), "{fault}: no script has `{line}` any more");
        let config = Config {
            cases: CASES,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..Config::default()
        };
        if compare(&mut rig, config, &mut Seen::new()).is_ok() {
            unfound.push(fault);
        }
    }
    assert!(unfound.is_empty(), "not found: {unfound:?}");
}
