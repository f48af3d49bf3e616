//! The scripts against the reference, over random programs.

use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use tidegate_shared::domain::WorkerId;

use crate::program::program;
use crate::rig::Rig;
use crate::run::{Run, Seen};

/// Programs of a run; `PROPTEST_CASES` asks for more.
const CASES: u32 = 256;

/// What a run that means anything has met.
const MET: [&str; 49] = [
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
    "Cancel(Already(Succeeded",
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
    "suspect",
];

#[test]
fn the_scripts_do_what_the_reference_says() {
    let config = Config {
        cases: std::env::var("PROPTEST_CASES")
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(CASES),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/it/reference.regressions",
        ))),
        ..Config::default()
    };
    let mut rig = Rig::start();
    let workers = [WorkerId::mint(), WorkerId::mint(), WorkerId::mint()];
    let mut seen = Seen::new();
    let cell = std::cell::RefCell::new((&mut rig, &mut seen));
    let result = TestRunner::new(config).run(&program(), |program| {
        let mut both = cell.borrow_mut();
        let (rig, seen) = &mut *both;
        Run::program(rig, &workers, &program, seen).map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let missed: Vec<_> = MET
        .iter()
        .filter(|what| !seen.contains_key(**what))
        .collect();
    assert!(missed.is_empty(), "never met: {missed:?}\nmet: {seen:#?}");
}
