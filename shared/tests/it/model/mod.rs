//! The protocol, model checked: every order in which a few commands, crashes, losses, delays, clock steps and failovers can
//! happen around the product's own `domain::step`, within the bounds of each configuration.
//!
//! A state is the pool, the workers with what they believe, the commands in flight, and a ghost history that says what was
//! shown to whom. `rules` are the promises, `seen` the cases that they must have been tried in, `broken` the ways to get the
//! protocol wrong that the same rules must find.
//!
//! Two simplifications, both towards more behaviour than the product has: a client's or worker's time-out may come at any moment, and
//! a worker goes on with whatever it has while it waits. One towards less: the reaper's pass is not delayed; it takes nothing with
//! it from when it was sent.

mod acts;
mod broken;
mod checks;
mod drain;
mod names;
mod places;
mod rules;
mod seen;
mod setup;
mod variants;
mod view;
mod wire;
mod world;

use stateright::{Model, Property};
use tidegate_shared::domain::step::{Action, Command, State, step};
use tidegate_shared::protocol::{Apply, Expire};

use seen::{Event, Seen};
use setup::{Setup, TICK_MS};
use world::{Act, Past, Promised, Store, Worker, World};

/// Where the server's clock begins: far from 0, which the steps read as "never".
const START_MS: u64 = 100 * TICK_MS;

/// The model: one pool and those around it.
struct Pool {
    setup: Setup,
    seen: Seen,
}

impl Pool {
    fn new(setup: Setup) -> Self {
        Self {
            setup,
            seen: Seen::default(),
        }
    }

    fn drains(&self, world: &World) -> bool {
        let Some(ticks) = self.setup.drains_in else {
            return true;
        };
        if world.store.state.sets.owed() > 0 {
            self.seen.note(Event::Drained);
        }
        drain::drains(world, ticks)
    }

    fn start(&self) -> State {
        let mut state = State::default();
        let mut does = |action: Action| {
            let command = Command {
                deadline_ms: u64::MAX,
                action,
            };
            state = step(&state, &command, START_MS).0;
        };
        does(Action::Apply(Apply {
            pool: names::pool(),
            config: self.setup.pool.clone(),
        }));
        does(Action::Expire(Expire {
            pool: names::pool(),
            limit: 1,
            lineage: world::Side::First.name().to_owned(),
        }));
        if self.setup.preloaded {
            for job in 0..self.setup.jobs {
                does(Action::Submit(wire::submit(&self.setup, job)));
            }
        }
        state
    }
}

impl Model for Pool {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let store = Store {
            state: self.start(),
            current: [None; 2],
            gap: (0, 0),
        };
        let replicated = self.setup.budget.failovers > 0;
        let past = Past {
            replied: self.setup.preloaded,
            accepted: self.setup.preloaded,
            handed: 0,
            fence: 0,
            shown: None,
            promised: Promised::Nothing,
        };
        let mut world = World {
            replica: replicated.then(|| store.clone()),
            store,
            raw: START_MS,
            heard: START_MS,
            side: world::Side::First,
            tick: 0,
            workers: vec![Worker::default(); self.setup.workers],
            net: Vec::new(),
            left: self.setup.budget,
            minted: 0,
            issued: 0,
            past: [past; 2],
            broken: 0,
        };
        rules::look(self, &mut world);
        vec![world]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        acts::possible(&self.setup, world, acts);
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        Some(acts::next(self, world, act))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = rules::properties();
        if self.setup.drains_in.is_some() {
            properties.push(Property::always(DRAINS, |pool: &Pool, world: &World| {
                pool.drains(world)
            }));
        }
        properties
    }
}

/// Bounded liveness, judged per state.
const DRAINS: &str = "once faults stop, everything drains";
