//! The configurations, each explored to its end. What each must have met on the way is named: a rule that no case tried
//! would hold for nothing.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};
use tidegate_shared::domain::Verdict;

use super::Pool;
use super::seen::Event;
use super::setup::{Budget, Setup};

/// Explores the whole space, prints its size, and holds every rule and every expected case to it.
fn holds(setup: Setup, met: &[Event]) {
    let (name, began) = (setup.name, Instant::now());
    let checker = Pool::new(setup)
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::Any)
        .spawn_bfs()
        .join();
    println!(
        "model {name}: {} unique states, depth {}, {:.1} s, {} rules",
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64(),
        checker.model().properties().len(),
    );
    let seen = &checker.model().seen;
    for event in Event::ALL.iter().filter(|event| seen.count(**event) > 0) {
        println!("    {:>9} times: {}", seen.count(*event), event.text());
    }
    if let Some((rule, path)) = checker.discoveries().into_iter().next() {
        let acts: Vec<String> = path
            .into_actions()
            .iter()
            .map(|act| format!("{act:?}"))
            .collect();
        panic!("model {name}: `{rule}` is broken by\n{}", acts.join("\n"));
    }
    for event in met {
        assert!(
            seen.count(*event) > 0,
            "model {name}: never `{}`",
            event.text()
        );
    }
}

/// One job under leases: lost, delayed and doubled commands, a crash, retries.
pub(super) fn leases() -> Setup {
    let mut setup = Setup::new("leases");
    setup.verdicts = &[Verdict::Succeed, Verdict::Retry];
    setup.renews = true;
    setup.budget = Budget {
        ticks: 3,
        owners: 2,
        losses: 1,
        copies: 1,
        crashes: 1,
        ..Budget::default()
    };
    setup
}

#[test]
fn leases_hold_under_loss_delay_doubles_and_crash() {
    use Event::*;
    holds(
        leases(),
        &[
            Redelivered,
            StaleRefused,
            StaleRenewRefused,
            LateRefused,
            SettleAgain,
            ClaimAgain,
            Retried,
        ],
    );
}

/// A cancel against completion, retry, release, lapse and deadline.
pub(super) fn cancel() -> Setup {
    let mut setup = Setup::new("cancel");
    setup.verdicts = &[Verdict::Succeed, Verdict::Retry, Verdict::Release];
    setup.renews = true;
    setup.deadline_ticks = 3;
    setup.budget = Budget {
        ticks: 3,
        owners: 2,
        copies: 1,
        cancels: 1,
        ..Budget::default()
    };
    setup
}

#[test]
fn a_cancel_wins_or_loses_once() {
    use Event::*;
    holds(
        cancel(),
        &[
            CancelFirst,
            CompletionFirst,
            CancelledWaiting,
            CancelledByLapse,
            CancelledAtDeadline,
            Released,
        ],
    );
}

/// What the model server sees where no process dies or stands still.
pub(super) fn calls() -> Setup {
    let mut setup = leases();
    setup.name = "calls";
    setup.calls = true;
    setup.budget.crashes = 0;
    setup.budget.copies = 0;
    setup
}

#[test]
fn calls_at_once_are_at_most_the_slots() {
    holds(calls(), &[Event::Redelivered]);
}

/// Pieces of a stream, from a worker that is frozen past its lease.
pub(super) fn streams() -> Setup {
    let mut setup = Setup::new("streams");
    setup.budget = Budget {
        ticks: 3,
        owners: 2,
        copies: 1,
        freezes: 1,
        appends: 2,
        ..Budget::default()
    };
    setup
}

#[test]
fn a_frozen_workers_pieces_are_refused_once_another_has_its_job() {
    use Event::*;
    holds(streams(), &[StalePieceRefused, Redelivered]);
}

/// The server's clock goes back and ahead, and the pool is silent: what lives is spared.
pub(super) fn clocks() -> Setup {
    let mut setup = Setup::new("clocks");
    setup.renews = true;
    setup.budget = Budget {
        ticks: 3,
        owners: 2,
        backs: 1,
        aheads: 1,
        ..Budget::default()
    };
    setup
}

#[test]
fn a_clock_that_steps_takes_no_live_lease_and_brings_none_back() {
    use Event::*;
    holds(
        clocks(),
        &[
            ClockBack,
            GraceRenewed,
            GraceSettled,
            LapsedUnblamed,
            LateRefused,
        ],
    );
}

/// A settle that takes the next job in the same trip.
pub(super) fn next() -> Setup {
    let mut setup = Setup::new("next");
    setup.jobs = 2;
    setup.next = true;
    setup.budget = Budget {
        ticks: 2,
        owners: 3,
        losses: 1,
        copies: 1,
        ..Budget::default()
    };
    setup
}

#[test]
fn a_settle_that_takes_the_next_job_takes_it_once() {
    use Event::*;
    holds(next(), &[NextTaken, SettleAgain, ClaimAgain, LateRefused]);
}

/// Workers that die with two jobs: one is poison, the other is not blamed.
pub(super) fn poison() -> Setup {
    let mut setup = Setup::new("poison");
    setup.jobs = 2;
    setup.room = 2;
    setup.pool.slots = 2;
    setup.pool.max_lost_leases = 2;
    setup.budget = Budget {
        ticks: 6,
        owners: 6,
        crashes: 3,
        ..Budget::default()
    };
    setup.workers = 1;
    setup
}

#[test]
fn a_job_that_kills_its_workers_is_poison_and_its_neighbour_is_not_blamed() {
    use Event::*;
    holds(poison(), &[Poisoned, Suspected, Shielded, Redelivered]);
}

/// Submits under one key, lost and doubled.
pub(super) fn submits() -> Setup {
    let mut setup = Setup::new("submits");
    setup.jobs = 2;
    setup.preloaded = false;
    setup.one_key = true;
    setup.workers = 1;
    setup.budget = Budget {
        ticks: 2,
        owners: 1,
        losses: 1,
        copies: 2,
        submits: 3,
        ..Budget::default()
    };
    setup
}

#[test]
fn one_key_is_one_job_however_often_it_is_sent() {
    use Event::*;
    holds(submits(), &[SubmitAgain, LateRefused]);
}

/// Two jobs where one has room.
pub(super) fn depth() -> Setup {
    let mut setup = submits();
    setup.name = "depth";
    setup.one_key = false;
    setup.pool.max_queued = 1;
    setup
}

#[test]
fn the_depth_is_never_passed() {
    use Event::*;
    holds(depth(), &[Full, SubmitAgain]);
}

/// A delayed job and deadlines.
pub(super) fn times() -> Setup {
    let mut setup = Setup::new("times");
    setup.jobs = 2;
    setup.delay_ticks = 1;
    setup.deadline_ticks = 2;
    setup.budget = Budget {
        ticks: 3,
        owners: 2,
        copies: 1,
        ..Budget::default()
    };
    setup
}

#[test]
fn nothing_runs_before_it_is_due_or_after_its_deadline() {
    use Event::*;
    holds(times(), &[Expired, OverdueRunning]);
}

/// Dead letters that are requeued.
pub(super) fn letters() -> Setup {
    let mut setup = Setup::new("letters");
    setup.verdicts = &[Verdict::Succeed, Verdict::Dead];
    setup.max_attempts = 1;
    setup.budget = Budget {
        ticks: 2,
        owners: 2,
        losses: 1,
        copies: 1,
        requeues: 2,
        cancels: 1,
        ..Budget::default()
    };
    setup
}

#[test]
fn a_dead_letter_begins_one_new_life_for_each_requeue() {
    use Event::*;
    holds(letters(), &[NewLife, Exhausted, SettleAgain, StaleRefused]);
}

/// From every state, once faults stop, all that is owed ends.
#[test]
fn whatever_happened_all_is_done_once_faults_stop() {
    let mut setup = leases();
    setup.name = "drains";
    setup.budget.copies = 0;
    setup.drains_in = Some(8);
    holds(setup, &[Event::Drained, Event::Redelivered]);
}

/// A replica takes over, with all it was sent or with less.
pub(super) fn failover(wait: bool) -> Setup {
    let mut setup = Setup::new(if wait { "confirmed" } else { "failover" });
    setup.wait = wait;
    setup.budget = Budget {
        ticks: 3,
        owners: 2,
        failovers: 1,
        crashes: 1,
        ..Budget::default()
    };
    setup
}

#[test]
fn what_is_shown_once_a_replica_holds_it_survives_a_failover() {
    use Event::*;
    holds(
        failover(true),
        &[
            FailedOver,
            FailoverRewound,
            FailoverTookTerminal,
            OldOwnerRefused,
        ],
    );
}
