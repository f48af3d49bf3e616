//! What the checker came across: a rule that holds says nothing where the case it is for was never reached.
//!
//! Counted over transitions, in the model and not in its states: as part of a state each event would double their number.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_shared::domain::State as JobState;
use tidegate_shared::domain::step::Reply;
use tidegate_shared::protocol::{
    CancelReply, ClaimReply, RenewStatus, RequeueReply, SettleTag, SubmitReply,
};

use super::Pool;
use super::names;
use super::world::{Ask, Flight, Store, World};

/// Declares the events with the words they are printed by.
macro_rules! events {
    ($($name:ident = $text:literal,)+) => {
        /// A case that some rule is for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Event { $($name,)+ }
        impl Event {
            /// Every event.
            pub(super) const ALL: &'static [Self] = &[$(Self::$name,)+];
            /// Its words.
            pub(super) fn text(self) -> &'static str { match self { $(Self::$name => $text,)+ } }
        }
    };
}

events! {
    Redelivered = "a job was handed out again",
    StaleRefused = "a stale settle was refused",
    StaleRenewRefused = "a stale renewal was refused",
    StalePieceRefused = "a stale stream piece was refused",
    LateRefused = "a late command was refused",
    SettleAgain = "a settle sent again found its work done",
    ClaimAgain = "a claim sent again got the same delivery",
    SubmitAgain = "a submit sent again found its job",
    RequeueAgain = "a requeue sent again found its work done",
    Full = "a submit met the bound of the depth",
    CancelFirst = "a cancel came before the completion",
    CompletionFirst = "a completion came before the cancel",
    CancelledWaiting = "a waiting job was cancelled at once",
    CancelledByLapse = "a cancelled job ended with its lost lease",
    CancelledAtDeadline = "a cancelled job met its deadline",
    Retried = "a job backed off and ran again",
    Exhausted = "the last attempt was spent",
    Released = "a worker handed a job back",
    NextTaken = "a settle brought the next job",
    Poisoned = "a job became poison",
    Suspected = "a suspect was handed out",
    Shielded = "a lost lease was not blamed beside a suspect",
    GraceRenewed = "a renewal was taken within a grace, past the lease's end",
    GraceSettled = "a settle was taken within a grace, past the lease's end",
    LapsedUnblamed = "a lease was lost to a gap and nobody blamed",
    ClockBack = "the server's clock was behind the pool's",
    Expired = "a deadline came while the job waited",
    OverdueRunning = "a deadline came while the job ran",
    NewLife = "a dead letter began a new life",
    FailedOver = "a replica took over",
    FailoverRewound = "a failover took back what was done",
    FailoverTookTerminal = "a failover took a terminal back",
    OldOwnerRefused = "after a failover an owner from before it was refused",
    OldCommandTaken = "a command from an earlier tick was taken",
    Drained = "a state with work owed drained",
}

/// Counts of the events.
pub(super) struct Seen([AtomicU64; Event::ALL.len()]);

impl Default for Seen {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Event::ALL.len()])
    }
}

impl Seen {
    /// It happened.
    pub(super) fn note(&self, event: Event) {
        self.0[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often it happened.
    pub(super) fn count(&self, event: Event) -> u64 {
        self.0[event as usize].load(Ordering::Relaxed)
    }
}

/// Notes what a step shows.
pub(super) fn notice(pool: &Pool, before: &Store, world: &World, flight: &Flight, reply: &Reply) {
    let note = |event| pool.seen.note(event);
    if *reply == Reply::Late {
        return note(Event::LateRefused);
    }
    if world.store.state.clock.skew > before.state.clock.skew {
        note(Event::ClockBack);
    }
    notice_reply(pool, before, world, flight, reply);
    for job in 0..pool.setup.jobs {
        notice_job(pool, before, world, job, reply);
    }
}

fn notice_reply(pool: &Pool, before: &Store, world: &World, flight: &Flight, reply: &Reply) {
    let note = |event| pool.seen.note(event);
    match (flight.ask, reply) {
        (Ask::Submit(_), Reply::Submit(SubmitReply::Duplicate(_))) => note(Event::SubmitAgain),
        (Ask::Submit(_), Reply::Submit(SubmitReply::Full { .. })) => note(Event::Full),
        (Ask::Claim { .. }, Reply::Claim(ClaimReply::Deliveries(all))) => {
            let before = &before.state.owners;
            if all
                .iter()
                .all(|delivery| before.contains_key(delivery.owner.expose()))
            {
                note(Event::ClaimAgain);
            }
        }
        (Ask::Renew(of), Reply::Renew(statuses)) => match statuses.first() {
            Some(RenewStatus::Lost) => note(Event::StaleRenewRefused),
            _ if past_end(before, world, of.job) => note(Event::GraceRenewed),
            _ => {}
        },
        (Ask::Append(_), Reply::Append(tidegate_shared::protocol::AppendReply::Lost)) => {
            note(Event::StalePieceRefused);
        }
        (Ask::Settle { of, .. }, Reply::Settle(answer)) => {
            if answer.next.is_some() {
                note(Event::NextTaken);
            }
            match answer.tag {
                SettleTag::Lost => {
                    note(Event::StaleRefused);
                    if pool.setup.budget.failovers > world.left.failovers {
                        note(Event::OldOwnerRefused);
                    }
                }
                SettleTag::Duplicate => note(Event::SettleAgain),
                SettleTag::Cancelled => note(Event::CancelFirst),
                SettleTag::Settled if past_end(before, world, of.job) => note(Event::GraceSettled),
                SettleTag::Settled => {}
            }
        }
        (Ask::Cancel(_), Reply::Cancel(CancelReply::Cancelled)) => note(Event::CancelledWaiting),
        (Ask::Cancel(_), Reply::Cancel(CancelReply::Already(JobState::Succeeded))) => {
            note(Event::CompletionFirst);
        }
        (Ask::Requeue(..), Reply::Requeue(RequeueReply::Requeued)) => {
            let same = before.state.jobs == world.store.state.jobs;
            note(if same {
                Event::RequeueAgain
            } else {
                Event::NewLife
            });
        }
        _ => {}
    }
}

/// Whether the job's lease had ended by the pool's clock.
fn past_end(before: &Store, world: &World, job: usize) -> bool {
    let expiry = before.state.sets.leases.score(&names::bare(job));
    expiry.is_some_and(|at| at <= world.store.state.clock.last)
}

fn notice_job(pool: &Pool, before: &Store, world: &World, job: usize, reply: &Reply) {
    let note = |event| pool.seen.note(event);
    let id = names::bare(job);
    let (Some(was), Some(is)) = (before.state.jobs.get(&id), world.store.state.jobs.get(&id))
    else {
        return;
    };
    if is.fence > was.fence {
        if is.fence > 1 {
            note(Event::Redelivered);
        }
        if was.attempts > 0 {
            note(Event::Retried);
        }
        if world.store.state.suspects.score(&is.worker).is_some() && is.blame > 0 {
            note(Event::Suspected);
        }
    }
    if is.stops > was.stops {
        note(Event::Released);
    }
    if is.lost > was.lost && is.blame == was.blame {
        let end = before.state.sets.leases.score(&id).unwrap_or(0);
        let clock = world.store.state.clock;
        let gap = end > clock.grace_from && end <= clock.grace_until;
        note(if gap {
            Event::LapsedUnblamed
        } else {
            Event::Shielded
        });
    }
    if was.state.is_terminal() || !is.state.is_terminal() {
        return;
    }
    match (is.state, is.dead, is.code.as_str()) {
        (JobState::Cancelled, ..) if is.lost > was.lost => note(Event::CancelledByLapse),
        (JobState::Failed, _, "poison") => note(Event::Poisoned),
        (JobState::Failed, _, "deadline_exceeded") if was.state == JobState::Running => {
            note(Event::OverdueRunning)
        }
        (JobState::Expired, ..) => note(Event::Expired),
        (JobState::Failed, Some(_), _) if is.attempts == is.max_attempts => note(Event::Exhausted),
        _ => {}
    }
    if was.cancel
        && matches!(reply, Reply::Expire(_))
        && was.deadline_at > 0
        && was.deadline_at <= world.store.state.clock.last
    {
        note(Event::CancelledAtDeadline);
    }
}
