//! The scripts against the reference, over random programs.

use std::cell::RefCell;

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
