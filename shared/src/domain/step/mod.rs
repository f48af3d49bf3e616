//! The reference: what each step of the protocol does, as one pure function over plain maps.
//!
//! `lua/` runs, this says what it must do. One specification with three uses: the property test compares it with a real
//! server after every command, a model checker takes it as its transition, and the record of a run can be replayed
//! through it. It mirrors the scripts decision by decision, and names the one it mirrors at each place.
//!
//! Two things are left out. A TTL on a record is a backstop that comes an hour after the reaper should have: records do
//! not vanish here. Hints over pub/sub carry no truth; the marker that wakes a worker is kept as one flag.

mod clock;
mod deliveries;
mod expire;
mod lapse;
mod moves;
mod operate;
mod pool;
mod scored;
mod settle;
mod state;
mod submit;
mod take;
#[cfg(test)]
mod tests;

pub use moves::{BACKSTOP_MS, EVENTS_KEPT_MS, HISTORY};
pub use scored::Scored;
pub use state::{
    Clock, Counters, Epoch, Handing, Piece, Record, Remembered, Sets, Settings, State,
};
pub use take::{CLAIM_BYTES, SCAN, SWEEP};

use crate::protocol::{
    Append, AppendReply, Apply, ApplyReply, Beat, Cancel, CancelReply, Claim, ClaimReply, Expire,
    ExpireReply, Follow, FollowReply, Pause, Purge, PurgeReply, Renew, RenewStatus, Requeue,
    RequeueReply, Settle, SettleReply, Submit, SubmitReply,
};
use clock::Now;

/// One command as it reaches the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// After this time of the pool's clock the step refuses; steps without a deadline ignore it.
    pub deadline_ms: u64,
    /// What is asked.
    pub action: Action,
}

/// What may be asked of a pool, and what may happen to it.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    missing_docs,
    reason = "each is the step of its name, documented there"
)]
pub enum Action {
    Submit(Submit),
    Claim(Claim),
    Renew(Renew),
    Settle(Settle),
    Append(Append),
    Follow(Follow),
    Cancel(Cancel),
    Requeue(Requeue),
    Purge(Purge),
    Expire(Expire),
    Beat(Beat),
    Apply(Apply),
    Pause(Pause),
    /// A waiting worker takes the wake-up, and claims later or never.
    TakeMarker,
    /// Time passes without a command; below zero, the server's clock steps back.
    Jump {
        ms: i64,
    },
}

/// What the pool answers.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is the reply of the step of its name")]
pub enum Reply {
    /// It came after its deadline.
    Late,
    /// There is no such pool.
    NoPool,
    Submit(SubmitReply),
    Claim(ClaimReply),
    Renew(Vec<RenewStatus>),
    Settle(SettleReply),
    Append(AppendReply),
    Follow(FollowReply),
    Cancel(CancelReply),
    Requeue(RequeueReply),
    Purge(PurgeReply),
    Expire(ExpireReply),
    Apply(ApplyReply),
    /// The step replies that it is done, or nothing was sent.
    Done,
}

impl Action {
    /// Whether the step refuses after its deadline.
    fn has_deadline(&self) -> bool {
        !matches!(
            self,
            Self::Beat(_) | Self::Apply(_) | Self::Pause(_) | Self::TakeMarker | Self::Jump { .. }
        )
    }
}

/// What `command` does to a pool in `state`, at `raw_now_ms` of the server's clock (not made monotonic yet).
pub fn step(state: &State, command: &Command, raw_now_ms: u64) -> (State, Reply) {
    let mut state = state.clone();
    let reply = advance(&mut state, command, raw_now_ms);
    (state, reply)
}

/// The pool's time that a step acts at, at `raw_now_ms` of the server's clock.
pub fn pool_now_ms(state: &State, raw_now_ms: u64) -> u64 {
    Now::look(state, raw_now_ms).now
}

/// [`step`] in place, for those who keep no state but the last: its cost does not grow with the pool.
pub fn advance(state: &mut State, command: &Command, raw_now_ms: u64) -> Reply {
    match &command.action {
        Action::TakeMarker => {
            state.marker = false;
            return Reply::Done;
        }
        Action::Jump { ms } => {
            state.jump(*ms, raw_now_ms);
            return Reply::Done;
        }
        Action::Apply(apply) => return Reply::Apply(state.apply(apply)),
        _ => {}
    }
    let at = Now::look(state, raw_now_ms);
    if command.action.has_deadline() && at.now > command.deadline_ms {
        return Reply::Late;
    }
    let Some(settings) = state.settings.clone() else {
        return Reply::NoPool;
    };
    let mut turn = Turn {
        state: std::mem::take(state),
        settings,
        at,
        deadline_ms: command.deadline_ms,
    };
    let reply = turn.act(&command.action);
    *state = turn.state;
    reply
}

/// One script's run: the pool's settings and time are read once, the state is changed in place.
struct Turn {
    state: State,
    settings: Settings,
    at: Now,
    /// Of the command.
    deadline_ms: u64,
}

impl Turn {
    fn act(&mut self, action: &Action) -> Reply {
        match action {
            Action::Submit(step) => Reply::Submit(self.submit(step)),
            Action::Claim(step) => Reply::Claim(self.claim(step)),
            Action::Renew(step) => Reply::Renew(self.renew(step)),
            Action::Settle(step) => Reply::Settle(self.settle(step)),
            Action::Append(step) => Reply::Append(self.append(step)),
            Action::Follow(step) => Reply::Follow(self.follow(step)),
            Action::Cancel(step) => Reply::Cancel(self.cancel(step)),
            Action::Requeue(step) => Reply::Requeue(self.requeue(step)),
            Action::Purge(step) => Reply::Purge(self.purge(step)),
            Action::Expire(step) => Reply::Expire(self.expire(step)),
            Action::Beat(step) => {
                self.beat(step);
                Reply::Done
            }
            Action::Pause(step) => {
                self.pause(step);
                Reply::Done
            }
            Action::Apply(_) | Action::TakeMarker | Action::Jump { .. } => Reply::Done,
        }
    }
}
