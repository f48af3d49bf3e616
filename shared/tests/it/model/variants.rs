//! Each broken variant must be found out, by the rule that is for it.

use stateright::{Checker, HasDiscoveries, Model};

use super::Pool;
use super::broken::Variant;
use super::checks::{calls, cancel, clocks, depth, failover, leases, next, poison, submits, times};
use super::rules::Rule;
use super::setup::Setup;

/// The product's rules that a broken protocol breaks.
fn breaks(setup: Setup, variant: Variant, rules: &[Rule]) {
    let setup = setup.with(variant);
    let name = setup.name;
    let of_them = rules.iter().map(|rule| rule.text()).collect();
    let checker = Pool::new(setup)
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyOf(of_them))
        .spawn_bfs()
        .join();
    let found: Vec<&str> = checker.discoveries().into_keys().collect();
    println!(
        "model {name} with {variant:?}: {found:?} after {} unique states",
        checker.unique_state_count()
    );
    assert!(
        rules.iter().any(|rule| found.contains(&rule.text())),
        "{variant:?} is not found in {name}: {found:?}"
    );
}

#[test]
fn each_way_to_get_the_protocol_wrong_breaks_a_rule() {
    use Rule::*;
    breaks(leases(), Variant::NoFence, &[StaleWrite]);
    breaks(
        leases(),
        Variant::OwnerPerWorker,
        &[StaleWrite, OwnerRepeated],
    );
    breaks(leases(), Variant::SlotLater, &[Slots, Stranded]);
    breaks(leases(), Variant::NoDeadline, &[LateWrote]);
    breaks(
        leases(),
        Variant::SettleAgain,
        &[PublishedTwice, StaleWrite, TerminalChanged],
    );
    breaks(clocks(), Variant::LateRenew, &[DeadLease, StaleWrite]);
    breaks(clocks(), Variant::NoGrace, &[GapTook]);
    breaks(clocks(), Variant::ClockAsIs, &[WentBack]);
    breaks(cancel(), Variant::NoCancelCheck, &[CancelBroken]);
    breaks(poison(), Variant::NoSuspects, &[TwoSuspects]);
    breaks(next(), Variant::NoSlots, &[Slots]);
    breaks(calls(), Variant::NoSelfFence, &[CallsOver]);
    breaks(submits(), Variant::NoKey, &[KeyTwice]);
    breaks(depth(), Variant::NoDepth, &[Depth]);
    breaks(times(), Variant::NotDue, &[TooEarly]);
    breaks(
        failover(true),
        Variant::OwnerCounter,
        &[StaleWrite, OwnerRepeated],
    );
}

/// Inherent, and documented: what was shown before a replica held it may be taken back.
#[test]
fn what_is_shown_before_a_replica_holds_it_may_be_taken_back() {
    breaks(
        failover(false),
        Variant::None,
        &[Rule::PublishedTwice, Rule::AcceptedLost],
    );
}
