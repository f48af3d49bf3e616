//! The protocol with one thing taken away: each is a known way to get it wrong, put around the product's own step.
//!
//! Nothing of it is in the product. A variant changes the command or the state just before the step, or the state just
//! after it, so that the guard in question has nothing to say.

use tidegate_shared::domain::Fence;
use tidegate_shared::domain::State as JobState;
use tidegate_shared::domain::step::{Action, Command, Reply, State, pool_now_ms, step};
use tidegate_shared::protocol::Settle;

use super::Pool;
use super::names;
use super::setup::TICK_MS;
use super::world::Flight;

/// First number of the owners that stand for workers, in `OwnerPerWorker`.
const WORKERS_FROM: u8 = 40;

/// One way to break the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// It is as it is.
    None,
    /// A settle is taken from whoever sends it.
    NoFence,
    /// A worker has one owner for all its deliveries, and that alone is compared.
    OwnerPerWorker,
    /// The owner is a counter kept in the store, the job's fence.
    OwnerCounter,
    /// A settle leaves the slot to a second command.
    SlotLater,
    /// Commands have no deadline.
    NoDeadline,
    /// A gap is not noticed.
    NoGrace,
    /// A settle that comes again is carried out again.
    SettleAgain,
    /// A settle does not look for a cancel.
    NoCancelCheck,
    /// A renewal brings a lapsed lease back.
    LateRenew,
    /// A submit does not look at the depth.
    NoDepth,
    /// A submit does not look for its key.
    NoKey,
    /// A claim takes what is not due yet.
    NotDue,
    /// A claim does not look for slots.
    NoSlots,
    /// The pool's clock is the server's.
    ClockAsIs,
    /// A worker may have two suspects.
    NoSuspects,
    /// Workers do not stop their calls by their own clock.
    NoSelfFence,
}

/// Runs a command as the variant does.
pub(super) fn run(
    pool: &Pool,
    state: &State,
    command: &Command,
    flight: &Flight,
    raw: u64,
) -> (State, Reply) {
    let variant = pool.setup.variant;
    if matches!(variant, Variant::None | Variant::NoSelfFence) {
        return step(state, command, raw);
    }
    let (mut state, mut command) = (state.clone(), command.clone());
    let late = pool_now_ms(&state, raw) > command.deadline_ms;
    if variant == Variant::NoDeadline {
        command.deadline_ms = u64::MAX;
    } else if !late {
        before(variant, &mut state, &mut command, flight, raw);
    }
    let slots = state.settings.as_ref().map(|s| (s.slots, s.max_queued));
    let held: Vec<(String, u64)> = state
        .sets
        .leases
        .iter()
        .map(|(id, at)| (id.to_owned(), at))
        .collect();
    if let (Variant::NoSlots | Variant::NoDepth, Some(settings)) = (variant, &mut state.settings) {
        (settings.slots, settings.max_queued) = (9, 9);
    }
    let (mut state, reply) = step(&state, &command, raw);
    if let (Some(settings), Some(before)) = (&mut state.settings, slots) {
        (settings.slots, settings.max_queued) = before;
    }
    if variant == Variant::SlotLater && matches!(command.action, Action::Settle(_)) {
        for (id, expiry) in held {
            state.sets.leases.put(&id, expiry);
        }
    }
    (state, reply)
}

fn before(variant: Variant, state: &mut State, command: &mut Command, flight: &Flight, raw: u64) {
    let now = pool_now_ms(state, raw);
    match (variant, &mut command.action) {
        (Variant::NoFence, Action::Settle(settle)) => take_current(state, settle),
        (Variant::OwnerPerWorker, action) => own_by_worker(state, action, flight),
        (Variant::OwnerCounter, Action::Claim(claim)) => {
            let fence = state
                .jobs
                .values()
                .map(|record| record.fence)
                .max()
                .unwrap_or(0);
            let next = u8::try_from(fence + 1).expect("few deliveries");
            claim.owners = vec![names::owner(next)];
        }
        (Variant::NoGrace, _) => {
            state.clock.last = now;
            (state.clock.grace_from, state.clock.grace_until) = (0, 0);
        }
        (Variant::SettleAgain, Action::Settle(settle)) => reopen(state, settle, now),
        (Variant::NoCancelCheck, Action::Settle(settle)) => {
            if let Some(record) = state.jobs.get_mut(settle.id.bare()) {
                record.cancel = false;
            }
        }
        (Variant::LateRenew, Action::Renew(renew)) => {
            for item in &renew.items {
                if state.sets.leases.score(item.id.bare()).is_some() {
                    state.sets.leases.put(item.id.bare(), now + TICK_MS);
                }
            }
        }
        (Variant::NoKey, Action::Submit(submit)) => submit.idempotency.key_hash.clear(),
        (Variant::NotDue, Action::Claim(_)) => {
            let due: Vec<String> = state.sets.due.iter().map(|(id, _)| id.to_owned()).collect();
            for id in due {
                state.sets.due.put(&id, now);
            }
        }
        (Variant::ClockAsIs, _) => {
            state.clock.last = state.clock.last.min(raw);
            state.clock.skew = 0;
        }
        (Variant::NoSuspects, Action::Claim(_)) => state.suspects.drop_up_to(u64::MAX),
        _ => {}
    }
}

/// The settle passes for the current delivery's.
fn take_current(state: &State, settle: &mut Settle) {
    let Some(record) = state.jobs.get(settle.id.bare()) else {
        return;
    };
    if record.state == JobState::Running {
        settle.fence = Fence(record.fence);
        settle.owner = names::owner(names::owner_no(&record.owner).expect("it runs"));
    }
}

/// Every owner is the worker's, and the fence is whatever the record says.
fn own_by_worker(state: &State, action: &mut Action, flight: &Flight) {
    let Some((worker, _)) = flight.from else {
        return;
    };
    let own = names::owner(WORKERS_FROM + u8::try_from(worker).expect("two workers"));
    let fence = |id: &str| state.jobs.get(id).map_or(0, |record| record.fence);
    match action {
        Action::Claim(claim) => claim.owners = vec![own],
        Action::Settle(settle) => {
            settle.fence = Fence(fence(settle.id.bare()));
            settle.owner = own;
        }
        Action::Renew(renew) => {
            for item in &mut renew.items {
                item.fence = Fence(fence(item.id.bare()));
                item.owner = own.clone();
            }
        }
        _ => {}
    }
}

/// A delivery that was settled is open again for the same settle.
fn reopen(state: &mut State, settle: &Settle, now: u64) {
    let id = settle.id.bare();
    let Some(record) = state.jobs.get_mut(id) else {
        return;
    };
    if record.settled_by != settle.owner.expose() || record.state == JobState::Running {
        return;
    }
    if record.state.is_terminal() {
        state.counters.bytes += record.bytes;
    }
    record.state = JobState::Running;
    record.owner = settle.owner.expose().to_owned();
    record.dead = None;
    state.owners.insert(record.owner.clone(), id.to_owned());
    for line in state.sets.ready.values_mut() {
        line.drop(id);
    }
    state.sets.due.drop(id);
    state.sets.ended.drop(id);
    state.sets.dead.drop(id);
    state.sets.leases.put(id, now + TICK_MS);
}
