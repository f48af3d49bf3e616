//! A state of the model: the pool, its replica, the workers and what they believe, the network, and the ghost history.

use tidegate_shared::domain::State as JobState;
use tidegate_shared::domain::Verdict;
use tidegate_shared::domain::step::State;

use super::names::{Job, OwnerNo};
use super::setup::Budget;

/// The pool as the server has it, with what a failover takes back together with it.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// The product's own state.
    pub(super) state: State,
    /// The delivery that each job is in, by its number in the whole run.
    pub(super) current: [Option<u8>; 2],
    /// The last gap seen: from when, and until when live leases were to be spared, in the pool's time.
    pub(super) gap: (u64, u64),
}

/// Which server it is: the first one, or the replica that took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Side {
    First,
    Promoted,
}

impl Side {
    /// Name of its history.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Promoted => "promoted",
        }
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ask {
    /// Accept the job.
    Submit(Job),
    /// Take jobs: as many as owners, numbered on from the first.
    Claim { first: OwnerNo, count: u8 },
    /// Extend the lease.
    Renew(Handed),
    /// Store one piece of a stream.
    Append(Handed),
    /// Close the delivery, and perhaps take the next job.
    Settle {
        of: Handed,
        verdict: Verdict,
        next: Option<OwnerNo>,
    },
    /// Cancel the job.
    Cancel(Job),
    /// A new life for a dead letter, by the operation of this number.
    Requeue(Job, u8),
    /// The reaper's pass, which knows the server.
    Expire(Side),
}

/// A delivery as its worker knows it, with its number in the whole run, which the worker does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Handed {
    pub(super) job: Job,
    pub(super) fence: u64,
    pub(super) owner: OwnerNo,
    pub(super) serial: u8,
}

/// A command in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Flight {
    pub(super) ask: Ask,
    /// Worker and its life; clients and the reaper are nobody.
    pub(super) from: Option<(usize, u8)>,
    /// Tick of sending.
    pub(super) sent: u8,
    /// After this time of the pool's clock it must do nothing.
    pub(super) deadline_ms: u64,
}

/// A delivery that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) what: Handed,
    /// Tick at which the lease may be over by the worker's own clock.
    pub(super) ends: u8,
    /// The model is being called.
    pub(super) calling: bool,
    /// What the call came to; kept until the store has taken or refused it.
    pub(super) verdict: Option<Verdict>,
    /// Owner minted for the next delivery, in the trip of the settle.
    pub(super) next: Option<OwnerNo>,
    /// The tick in which it was sent first.
    pub(super) asked: u8,
}

/// A worker's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) life: u8,
    pub(super) frozen: bool,
    /// Owners of a claim that is not answered: sent again as they are.
    pub(super) claiming: Option<(OwnerNo, u8)>,
    /// The tick in which they were sent first.
    pub(super) since: u8,
    pub(super) held: Vec<Held>,
}

/// What the answer to a cancel has promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Promised {
    Nothing,
    Cancelled,
    Cancelling,
    Already(JobState),
}

/// What happened to a job, whatever the store remembers of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Past {
    /// A reply said that it is accepted, shown or not.
    pub(super) replied: bool,
    /// Its client was told that it is accepted.
    pub(super) accepted: bool,
    /// Deliveries handed out.
    pub(super) handed: u8,
    /// The highest fence handed out.
    pub(super) fence: u64,
    /// The life, terminal and publisher that readers have seen.
    pub(super) shown: Option<(u64, JobState, Option<OwnerNo>)>,
    /// What a cancel was answered.
    pub(super) promised: Promised,
}

/// A state of the model.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) store: Store,
    /// What a failover would go on from.
    pub(super) replica: Option<Store>,
    /// The server's clock, in ms.
    pub(super) raw: u64,
    /// The pool's clock as replies have taught it, in ms: what the deadlines of commands are made of.
    pub(super) heard: u64,
    /// Which server answers.
    pub(super) side: Side,
    /// True time.
    pub(super) tick: u8,
    pub(super) workers: Vec<Worker>,
    /// Sorted: a set.
    pub(super) net: Vec<Flight>,
    pub(super) left: Budget,
    /// Owners minted so far.
    pub(super) minted: OwnerNo,
    /// Owners that were given a delivery, one bit each.
    pub(super) issued: u64,
    pub(super) past: [Past; 2],
    /// Rules broken on the way here, one bit each.
    pub(super) broken: u32,
}

/// What becomes of a command and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It runs now and is answered.
    Answered,
    /// It runs now; the reply is lost.
    Lost,
    /// It runs now and is answered, and the network has a copy.
    Doubled,
    /// It is in flight.
    Later,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Act {
    /// A tick of true time; the server's clock goes with it.
    Tick,
    /// The server's clock steps back.
    Back,
    /// The server's clock jumps ahead.
    Ahead,
    /// The replica catches up.
    Sync,
    /// The replica takes over.
    Failover,
    /// Somebody sends a command.
    Send(Option<usize>, Ask, Fate),
    /// A command in flight runs; its reply may reach who waits for it.
    Arrive(usize, bool),
    /// A call of the model ends.
    Finish(usize, usize, Verdict),
    /// A worker stops waiting for the answer to a claim.
    GiveUp(usize),
    /// A worker's process ends and another one starts.
    Crash(usize),
    /// A worker's process stands still.
    Freeze(usize),
    /// It goes on.
    Thaw(usize),
}
