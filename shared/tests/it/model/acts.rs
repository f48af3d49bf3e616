//! What may happen in a state, and what comes of it.

use tidegate_shared::domain::step::{Reply, pool_now_ms};

use super::broken::{self, Variant};
use super::names;
use super::setup::{LEASE_TICKS, PATIENCE_MS, Setup, TICK_MS};
use super::wire;
use super::world::{Act, Ask, Fate, Flight, World};
use super::{Pool, rules};

/// What may happen next, in a fixed order.
pub(super) fn possible(setup: &Setup, world: &World, acts: &mut Vec<Act>) {
    if world.broken != 0 {
        return; // one counterexample is enough
    }
    let left = &world.left;
    let mut may = |budget: u8, act: Act| {
        if budget > 0 {
            acts.push(act);
        }
    };
    may(left.ticks, Act::Tick);
    may(left.backs, Act::Back);
    may(left.aheads, Act::Ahead);
    may(u8::from(world.replica.is_some()), Act::Sync);
    may(left.failovers, Act::Failover);
    acts.push(Act::Send(None, Ask::Expire(world.side), Fate::Answered));
    for (index, flight) in world.net.iter().enumerate() {
        // Later than in the tick of sending nobody waits any more.
        if flight.sent == world.tick {
            acts.push(Act::Arrive(index, true));
        }
        acts.push(Act::Arrive(index, false));
    }
    let mut asks = Vec::new();
    clients(setup, world, &mut asks);
    for worker in 0..world.workers.len() {
        processes(setup, world, worker, acts);
        if !world.workers[worker].frozen {
            workers(setup, world, worker, &mut asks);
        }
    }
    for (from, ask) in asks {
        acts.push(Act::Send(from, ask, Fate::Answered));
        if left.losses > 0 {
            acts.push(Act::Send(from, ask, Fate::Lost));
        }
        if left.copies > 0 {
            acts.push(Act::Send(from, ask, Fate::Doubled));
            acts.push(Act::Send(from, ask, Fate::Later));
        }
    }
}

fn clients(setup: &Setup, world: &World, asks: &mut Vec<(Option<usize>, Ask)>) {
    for job in 0..setup.jobs {
        if world.left.submits > 0 && !world.past[job].accepted {
            asks.push((None, Ask::Submit(job)));
        }
        let known = world.store.state.jobs.get(&names::bare(job));
        if world.left.cancels > 0 && known.is_some() {
            asks.push((None, Ask::Cancel(job)));
        }
        if world.left.requeues > 0 && known.is_some_and(|record| record.dead.is_some()) {
            asks.push((None, Ask::Requeue(job, world.left.requeues)));
        }
    }
}

/// What happens to processes, whatever they are at.
fn processes(setup: &Setup, world: &World, worker: usize, acts: &mut Vec<Act>) {
    let me = &world.workers[worker];
    let busy = !me.held.is_empty() || me.claiming.is_some();
    if world.left.crashes > 0 && busy {
        acts.push(Act::Crash(worker));
    }
    if me.frozen {
        acts.push(Act::Thaw(worker));
    } else {
        if world.left.freezes > 0 && busy {
            acts.push(Act::Freeze(worker));
        }
        if me.claiming.is_some() {
            acts.push(Act::GiveUp(worker));
        }
    }
    // The answer of the model server waits in the socket of a frozen worker too.
    for (place, _) in me.held.iter().enumerate().filter(|(_, held)| held.calling) {
        for verdict in setup.verdicts {
            acts.push(Act::Finish(worker, place, *verdict));
        }
    }
}

fn workers(setup: &Setup, world: &World, worker: usize, asks: &mut Vec<(Option<usize>, Ask)>) {
    let me = &world.workers[worker];
    let mut ask = |ask: Ask| asks.push((Some(worker), ask));
    let room = setup.room - me.held.len();
    if let Some((first, count)) = me.claiming {
        // For half a lease: what it may have taken lapses after that, and its owners are used up.
        if world.tick <= me.since + LEASE_TICKS / 2 {
            ask(Ask::Claim { first, count });
        }
    } else if room > 0 && world.left.owners > 0 {
        let count = world
            .left
            .owners
            .min(u8::try_from(room).expect("a small room"));
        let first = world.minted + 1;
        ask(Ask::Claim { first, count });
    }
    for held in &me.held {
        if held.calling {
            let renewed_now = held.ends >= world.tick + LEASE_TICKS;
            if setup.renews && !renewed_now {
                ask(Ask::Renew(held.what));
            }
            if world.left.appends > 0 {
                ask(Ask::Append(held.what));
            }
        }
        let Some(verdict) = held.verdict else {
            continue;
        };
        let settle = |next| Ask::Settle {
            of: held.what,
            verdict,
            next,
        };
        // The next job is asked for during half a lease, see the claim above.
        let brief = |_: &u8| world.tick <= held.asked + LEASE_TICKS / 2;
        ask(settle(held.next.filter(brief)));
        if setup.next && held.next.is_none() && world.left.owners > 0 {
            ask(settle(Some(world.minted + 1)));
        }
    }
}

/// The state after `act`.
pub(super) fn next(pool: &Pool, world: &World, act: Act) -> World {
    let mut after = world.clone();
    match act {
        Act::Tick => after.passes(&pool.setup),
        Act::Back => {
            after.left.backs -= 1;
            after.raw -= 2 * TICK_MS;
        }
        Act::Ahead => {
            after.left.aheads -= 1;
            after.raw += 3 * TICK_MS;
        }
        Act::Sync => after.replica = Some(after.store.clone()),
        Act::Failover => {
            after.left.failovers -= 1;
            after.store = after.replica.take().expect("it was possible");
            after.side = super::world::Side::Promoted;
            rules::failed_over(pool, world, &after);
        }
        Act::Send(from, ask, fate) => after.sends(pool, from, ask, fate),
        Act::Arrive(index, heard) => {
            let flight = after.net.remove(index);
            after.runs(pool, &flight, heard);
        }
        Act::Finish(worker, place, verdict) => {
            let held = &mut after.workers[worker].held[place];
            held.calling = false;
            held.verdict = Some(verdict);
        }
        Act::GiveUp(worker) => after.workers[worker].claiming = None,
        Act::Crash(worker) => {
            after.left.crashes -= 1;
            let worker = &mut after.workers[worker];
            *worker = super::world::Worker {
                life: worker.life + 1,
                ..Default::default()
            };
        }
        Act::Freeze(worker) => {
            after.left.freezes -= 1;
            after.workers[worker].frozen = true;
        }
        Act::Thaw(worker) => {
            after.workers[worker].frozen = false;
            after.fence_self(&pool.setup, worker);
        }
    }
    after.show(pool);
    rules::look(pool, &mut after);
    after
}

impl World {
    fn passes(&mut self, setup: &Setup) {
        self.left.ticks -= 1;
        self.tick += 1;
        self.raw += TICK_MS;
        self.heard += TICK_MS;
        for worker in 0..self.workers.len() {
            if !self.workers[worker].frozen {
                self.fence_self(setup, worker);
            }
        }
    }

    /// A call stops when its lease may be over; without an answer the delivery is given up.
    fn fence_self(&mut self, setup: &Setup, worker: usize) {
        if setup.variant == Variant::NoSelfFence {
            return;
        }
        let tick = self.tick;
        self.workers[worker]
            .held
            .retain(|held| held.ends > tick || held.verdict.is_some());
    }

    fn sends(&mut self, pool: &Pool, from: Option<usize>, ask: Ask, fate: Fate) {
        let flight = Flight {
            ask,
            from: from.map(|worker| (worker, self.workers[worker].life)),
            sent: self.tick,
            deadline_ms: self.heard + PATIENCE_MS,
        };
        self.pay(from, ask);
        if matches!(fate, Fate::Doubled | Fate::Later) {
            self.left.copies -= 1;
            if let Err(place) = self.net.binary_search(&flight) {
                self.net.insert(place, flight);
            }
        }
        match fate {
            Fate::Answered | Fate::Doubled => self.runs(pool, &flight, true),
            Fate::Lost => {
                self.left.losses -= 1;
                self.runs(pool, &flight, false);
            }
            Fate::Later => {}
        }
    }

    /// What sending costs, and what the sender notes before it sends.
    fn pay(&mut self, from: Option<usize>, ask: Ask) {
        match ask {
            Ask::Submit(_) => self.left.submits -= 1,
            Ask::Cancel(_) => self.left.cancels -= 1,
            Ask::Requeue(..) => self.left.requeues -= 1,
            Ask::Append(_) => self.left.appends -= 1,
            Ask::Claim { first, count } => {
                let worker = from.expect("a worker claims");
                let tick = self.tick;
                let me = &mut self.workers[worker];
                if me.claiming.is_none() {
                    me.since = tick;
                }
                me.claiming = Some((first, count));
                self.mint(first, count);
            }
            Ask::Settle {
                of,
                next: Some(owner),
                ..
            } => {
                let worker = from.expect("a worker settles");
                let tick = self.tick;
                for held in &mut self.workers[worker].held {
                    if held.what == of {
                        if held.next.is_none() {
                            held.asked = tick;
                        }
                        held.next = Some(owner);
                    }
                }
                self.mint(owner, 1);
            }
            _ => {}
        }
    }

    /// Counts owners that were not minted before.
    fn mint(&mut self, first: u8, count: u8) {
        if first > self.minted {
            self.minted += count;
            self.left.owners -= count;
        }
    }

    /// A command reaches the pool.
    fn runs(&mut self, pool: &Pool, flight: &Flight, heard: bool) {
        let command = wire::command(&pool.setup, flight);
        let (state, reply) = broken::run(pool, &self.store.state, &command, flight, self.raw);
        let before = self.store.clone();
        self.heard = pool_now_ms(&state, self.raw);
        self.store.state = state;
        rules::follow(pool, &before, self, flight, &reply);
        if let (Ask::Cancel(job), Reply::Cancel(answer)) = (flight.ask, &reply) {
            self.promise(job, *answer);
        }
        if heard {
            self.hear(flight, &reply);
        }
    }

    /// Readers see each terminal, and clients each acceptance, as soon as the durability mode lets them.
    fn show(&mut self, pool: &Pool) {
        for job in 0..pool.setup.jobs {
            let id = names::bare(job);
            let record = self.store.state.jobs.get(&id);
            let on_replica = self.replica.as_ref().map(|store| store.state.jobs.get(&id));
            let safe = |same: bool| !pool.setup.wait || same;
            let past = &mut self.past[job];
            let kept = on_replica.is_none_or(|copy| copy.is_some());
            past.accepted |= past.replied && record.is_some() && safe(kept);
            let Some(record) = record.filter(|record| record.state.is_terminal()) else {
                continue;
            };
            let same = on_replica.is_none_or(|copy| copy == Some(record));
            if !safe(same) {
                continue;
            }
            let seen = (
                record.lives,
                record.state,
                names::owner_no(&record.settled_by),
            );
            match past.shown {
                Some(shown) if shown.0 == seen.0 && shown != seen => {
                    self.broken |= rules::Rule::PublishedTwice.bit();
                }
                _ => past.shown = Some(seen),
            }
        }
    }
}
