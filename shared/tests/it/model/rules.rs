//! The promises, each as a rule over one step or one state. A rule is judged by what the model saw happen, not by what the
//! store believes: which delivery is the job's current one, what was shown to whom, when the pool was silent.

use tidegate_shared::domain::DeadReason;
use tidegate_shared::domain::State as JobState;
use tidegate_shared::domain::step::{Record, Reply, State, pool_now_ms};
use tidegate_shared::protocol::{AppendReply, RenewStatus, SettleReply};

use super::names::{self, Job};
use super::seen::Event;
use super::setup::{LEASE_TICKS, TICK_MS};
use super::world::{Ask, Flight, Promised, Store, World};
use super::{Pool, places, wire};

/// Declares the rules with their bits and the properties that the checker knows them by.
macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// What must always hold.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Rule { $($(#[$doc])* $name,)+ }
        impl Rule {
            /// Its bit among the broken ones.
            pub(super) fn bit(self) -> u32 { 1 << (self as u32) }
            /// Its words.
            pub(super) fn text(self) -> &'static str { match self { $(Self::$name => $text,)+ } }
        }
        /// The rules as the checker takes them.
        pub(super) fn properties() -> Vec<stateright::Property<Pool>> {
            vec![$(stateright::Property::always($text, |_: &Pool, world: &World| world.broken & Rule::$name.bit() == 0),)+]
        }
    };
}

rules! {
    /// I1, I9, I14: nothing is stranded.
    Stranded = "each job is in the one set of its state, and each entry has its record",
    /// I2.
    TerminalChanged = "a terminal never changes",
    /// I3.
    PublishedTwice = "a life shows one terminal, from one delivery",
    /// I4.
    FenceFell = "fences rise with each delivery",
    /// Ownership does not rest on what a failover rewinds.
    OwnerRepeated = "no owner is given two deliveries",
    /// I5.
    StaleWrite = "only the current delivery writes",
    /// I5: nothing resurrects a lease.
    DeadLease = "only a live lease writes",
    /// I6, I12.
    Slots = "slots in use are the leases, at most the limit",
    /// I8 and the exact sum of bytes.
    Depth = "depth is within its bound, bytes are those owed",
    /// I13.
    TooEarly = "no job is claimed before it is due",
    /// No lease after cancel or deadline.
    ClaimedOver = "no job is claimed after its cancel, its deadline or its last attempt",
    /// A command that comes late does nothing.
    LateWrote = "past its deadline a command writes nothing",
    /// The answer to a cancel agrees with the final state.
    CancelBroken = "a cancel's answer holds",
    /// Live owners may renew after the store was away.
    GapTook = "a gap takes no lease that was live before it",
    /// An acknowledged job is never lost.
    AcceptedLost = "an accepted job is there",
    /// I12: what the model server sees.
    CallsOver = "calls at once are at most the slots",
    /// Lost leases and attempts are counted apart, each to its bound.
    Counts = "attempts and blame stay within their bounds",
    /// One suspect per worker.
    TwoSuspects = "a worker has one suspect at a time",
    /// A key stands for one job.
    KeyTwice = "one idempotency key is one job",
    /// The pool's clock.
    WentBack = "the pool's time never goes back",
}

/// Judges one step: `world` is already after it.
pub(super) fn follow(
    pool: &Pool,
    before: &Store,
    world: &mut World,
    flight: &Flight,
    reply: &Reply,
) {
    let mut broken = Broken(0);
    let now = pool_now_ms(&before.state, world.raw);
    if now > flight.deadline_ms && world.store.state != before.state {
        broken.add(Rule::LateWrote);
    }
    broken.when(
        *reply == Reply::Late && world.store.state != before.state,
        Rule::LateWrote,
    );
    broken.when(
        world.store.state.clock.last < before.state.clock.last,
        Rule::WentBack,
    );
    if *reply != Reply::Late {
        note_gap(before, world, now, reply);
    }
    judge_writer(pool, before, world, flight, reply, &mut broken);
    for job in 0..pool.setup.jobs {
        let id = names::bare(job);
        let was = before.state.jobs.get(&id);
        let is = world.store.state.jobs.get(&id).cloned();
        let (Some(was), Some(is)) = (was, is) else {
            continue;
        };
        judge_terminal(&was.clone(), &is, flight, world, job, &mut broken);
        if is.fence != was.fence {
            judge_claim(was, &is, now, job, world, pool, &mut broken);
        } else if is.state != JobState::Running {
            world.store.current[job] = None;
        }
        if is.lost > was.lost {
            judge_lapse(before, world, job, now, &mut broken);
        }
    }
    world.broken |= broken.0;
    super::seen::notice(pool, before, world, flight, reply);
}

struct Broken(u32);

impl Broken {
    fn add(&mut self, rule: Rule) {
        self.0 |= rule.bit();
    }

    fn when(&mut self, holds: bool, rule: Rule) {
        if holds {
            self.add(rule);
        }
    }
}

/// The pool was silent for more than half a lease, or another server goes on: leases that were live before are spared for one
/// renewal interval. A lease that an earlier gap spared was live.
fn note_gap(before: &Store, world: &mut World, now: u64, reply: &Reply) {
    let last = before.state.clock.last;
    let (from, until) = world.store.gap;
    let silent = 2 * (now - last) > u64::from(LEASE_TICKS) * TICK_MS;
    if silent {
        // For four leases at most: nobody may look at the pool for long.
        let recent = now - from <= 4 * u64::from(LEASE_TICKS) * TICK_MS;
        let dead = if last < until && recent { from } else { last };
        world.store.gap = (dead, now + TICK_MS);
    }
    if matches!(reply, Reply::Expire(pass) if pass.began) {
        let (from, until) = world.store.gap;
        let dead = if now < until { from } else { now };
        world.store.gap = (dead.min(last), now + TICK_MS);
    }
}

/// Whether a lease that ends at `expiry` was live at `now`.
fn was_live(world: &World, expiry: u64, now: u64) -> bool {
    let (from, until) = world.store.gap;
    expiry > now || (now < until && expiry > from)
}

/// Who wrote: the job's current delivery, under a live lease?
fn judge_writer(
    pool: &Pool,
    before: &Store,
    world: &World,
    flight: &Flight,
    reply: &Reply,
    broken: &mut Broken,
) {
    let of = match (flight.ask, reply) {
        (Ask::Settle { of, .. }, Reply::Settle(SettleReply { tag, .. })) if wire::taken(*tag) => of,
        (Ask::Append(of), Reply::Append(AppendReply::Appended)) => of,
        (Ask::Renew(of), Reply::Renew(statuses)) if *statuses != [RenewStatus::Lost] => of,
        _ => return,
    };
    let current = before.current[of.job] == Some(of.serial);
    broken.when(!current, Rule::StaleWrite);
    let expiry = before.state.sets.leases.score(&names::bare(of.job));
    let now = pool_now_ms(&before.state, world.raw);
    broken.when(
        current && !was_live(world, expiry.unwrap_or(0), now),
        Rule::DeadLease,
    );
    if current && flight.sent + 1 < world.tick {
        pool.seen.note(Event::OldCommandTaken);
    }
}

fn judge_terminal(
    was: &Record,
    is: &Record,
    flight: &Flight,
    world: &mut World,
    job: Job,
    broken: &mut Broken,
) {
    if !was.state.is_terminal() {
        return;
    }
    if is.lives != was.lives {
        let asked = matches!(flight.ask, Ask::Requeue(..));
        broken.when(!asked || was.dead.is_none(), Rule::TerminalChanged);
        world.past[job].promised = Promised::Nothing;
        return;
    }
    let same = is.state == was.state
        && is.result == was.result
        && is.code == was.code
        && is.attempts == was.attempts
        && is.settled_by == was.settled_by;
    broken.when(!same, Rule::TerminalChanged);
}

/// A delivery begins.
fn judge_claim(
    was: &Record,
    is: &Record,
    now: u64,
    job: Job,
    world: &mut World,
    pool: &Pool,
    broken: &mut Broken,
) {
    let past = &mut world.past[job];
    past.handed += 1;
    world.store.current[job] = (is.state == JobState::Running).then_some(past.handed);
    if pool.setup.budget.failovers == 0 {
        broken.when(is.fence <= past.fence, Rule::FenceFell);
    }
    past.fence = past.fence.max(is.fence);
    if let Some(owner) = names::owner_no(&is.owner) {
        let bit = 1 << owner;
        broken.when(world.issued & bit != 0, Rule::OwnerRepeated);
        world.issued |= bit;
    }
    broken.when(was.due_at > now, Rule::TooEarly);
    let over = was.deadline_at > 0 && was.deadline_at <= now;
    let spent = was.attempts >= was.max_attempts;
    broken.when(
        was.state.is_terminal() || was.cancel || over || spent,
        Rule::ClaimedOver,
    );
}

/// A lease was taken from its owner.
fn judge_lapse(before: &Store, world: &World, job: Job, now: u64, broken: &mut Broken) {
    let expiry = before
        .state
        .sets
        .leases
        .score(&names::bare(job))
        .unwrap_or(0);
    broken.when(was_live(world, expiry, now), Rule::GapTook);
}

/// What a failover took back.
pub(super) fn failed_over(pool: &Pool, before: &World, after: &World) {
    pool.seen.note(Event::FailedOver);
    for job in 0..pool.setup.jobs {
        let id = names::bare(job);
        let was = before.store.state.jobs.get(&id);
        let is = after.store.state.jobs.get(&id);
        if was != is {
            pool.seen.note(Event::FailoverRewound);
        }
        if was.is_some_and(|record| record.state.is_terminal())
            && is.is_some_and(|record| !record.state.is_terminal())
        {
            pool.seen.note(Event::FailoverTookTerminal);
        }
    }
}

/// Judges the state that an act led to.
pub(super) fn look(pool: &Pool, world: &mut World) {
    let mut broken = Broken(0);
    let state = &world.store.state;
    broken.when(!places::each_in_one(state), Rule::Stranded);
    broken.when(!places::slots_are_leases(state), Rule::Slots);
    broken.when(!places::within_depth(state), Rule::Depth);
    for job in 0..pool.setup.jobs {
        let past = &world.past[job];
        let record = state.jobs.get(&names::bare(job));
        broken.when(past.accepted && record.is_none(), Rule::AcceptedLost);
        if let Some(record) = record {
            broken.when(!promise_holds(past.promised, record), Rule::CancelBroken);
            broken.when(!counts_hold(state, record), Rule::Counts);
        }
    }
    broken.when(two_suspects(state), Rule::TwoSuspects);
    broken.when(pool.setup.one_key && state.jobs.len() > 1, Rule::KeyTwice);
    if pool.setup.calls {
        broken.when(
            calls(world) > state.settings.as_ref().map_or(0, |s| s.slots),
            Rule::CallsOver,
        );
    }
    world.broken |= broken.0;
}

/// Calls of workers that stand still are not counted: what they see of time is not in their hands.
fn calls(world: &World) -> u64 {
    let awake = world.workers.iter().filter(|worker| !worker.frozen);
    awake
        .map(|worker| worker.held.iter().filter(|held| held.calling).count() as u64)
        .sum()
}

fn promise_holds(promised: Promised, record: &Record) -> bool {
    match promised {
        Promised::Nothing => true,
        Promised::Cancelled => record.state == JobState::Cancelled,
        Promised::Cancelling => matches!(record.state, JobState::Running | JobState::Cancelled),
        Promised::Already(state) => record.state == state,
    }
}

fn counts_hold(state: &State, record: &Record) -> bool {
    let most_lost = state.settings.as_ref().map_or(0, |s| s.max_lost_leases);
    let poison = record.dead == Some(DeadReason::Poison);
    record.attempts <= record.max_attempts
        && record.blame <= record.lost
        && record.blame <= most_lost
        && poison == (record.blame == most_lost)
}

fn two_suspects(state: &State) -> bool {
    let most = state.settings.as_ref().map_or(0, |s| s.max_lost_leases);
    let suspects: Vec<_> = state
        .jobs
        .values()
        .filter(|r| r.state == JobState::Running && most > 1 && r.blame + 1 == most)
        .map(|r| &r.worker)
        .collect();
    suspects.len() == 2 && suspects[0] == suspects[1]
}
