//! Bounded liveness as a rule of safety: from any state, once faults stop, everything is over within some ticks.
//!
//! The way on is one of health: each tick the reaper passes, and a new worker takes what there is and answers it.

use tidegate_shared::domain::Verdict;
use tidegate_shared::domain::step::{Action, Command, Reply, State, advance};
use tidegate_shared::protocol::{Claim, ClaimReply, Expire};

use super::setup::TICK_MS;
use super::world::{Handed, World};
use super::{names, places, wire};

/// First of the owners that only this mints.
const OWNERS_FROM: u8 = 100;
/// Of the worker that is well.
const HEALTHY: usize = 7;

/// Whether all that is owed ends within `ticks`.
pub(super) fn drains(world: &World, ticks: u8) -> bool {
    let (mut state, mut raw) = (world.store.state.clone(), world.raw);
    let mut owner = OWNERS_FROM;
    for _ in 0..ticks {
        if places::drained(&state) {
            return true;
        }
        raw += TICK_MS;
        does(
            &mut state,
            raw,
            Action::Expire(Expire {
                pool: names::pool(),
                limit: 100,
                lineage: String::new(),
            }),
        );
        while let Some(of) = claim(&mut state, raw, owner) {
            owner += 1;
            does(
                &mut state,
                raw,
                Action::Settle(wire::settle(of, Verdict::Succeed, None)),
            );
        }
    }
    places::drained(&state)
}

fn claim(state: &mut State, raw: u64, owner: u8) -> Option<Handed> {
    let claim = Claim {
        pool: names::pool(),
        worker: names::worker_id(HEALTHY, 0),
        owners: vec![names::owner(owner)],
    };
    let Reply::Claim(ClaimReply::Deliveries(taken)) = does(state, raw, Action::Claim(claim)) else {
        return None;
    };
    taken.first().map(|delivery| Handed {
        job: names::job_of(delivery.id.bare()),
        fence: delivery.fence.0,
        owner,
        serial: owner,
    })
}

fn does(state: &mut State, raw: u64, action: Action) -> Reply {
    let command = Command {
        deadline_ms: u64::MAX,
        action,
    };
    advance(state, &command, raw)
}
