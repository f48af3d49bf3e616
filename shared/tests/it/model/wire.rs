//! From the model's short commands to the product's steps, and from replies to what workers and clients believe.

use tidegate_shared::domain::step::{Action, Command, Reply};
use tidegate_shared::domain::{DeadReason, Fence, Verdict};
use tidegate_shared::protocol::{
    Append, AppendReply, Cancel, CancelReply, Claim, ClaimReply, Delivery, Expire, Idempotency,
    NextClaim, Renew, RenewItem, RenewStatus, Requeue, Settle, SettleTag, Submit, SubmitReply,
};

use super::names::{self, Job};
use super::setup::{LEASE_TICKS, Setup, TICK_MS};
use super::world::{Ask, Flight, Handed, Held, World};

/// Runs have no time-out here: a renewal is bounded by nothing but ticks.
const NO_TIMEOUT_MS: u64 = 1 << 40;

/// The product's command.
pub(super) fn command(setup: &Setup, flight: &Flight) -> Command {
    let worker = || {
        let (worker, life) = flight.from.expect("only workers send this");
        names::worker_id(worker, life)
    };
    let action = match flight.ask {
        Ask::Submit(job) => Action::Submit(submit(setup, job)),
        Ask::Claim { first, count } => Action::Claim(Claim {
            pool: names::pool(),
            worker: worker(),
            owners: (first..first + count).map(names::owner).collect(),
        }),
        Ask::Renew(of) => Action::Renew(Renew {
            pool: names::pool(),
            default_timeout_ms: NO_TIMEOUT_MS,
            items: vec![RenewItem {
                id: names::job_id(of.job),
                fence: Fence(of.fence),
                owner: names::owner(of.owner),
                output_tokens: 0,
            }],
        }),
        Ask::Append(of) => Action::Append(Append {
            id: names::job_id(of.job),
            fence: Fence(of.fence),
            owner: names::owner(of.owner),
            first: 1,
            max_bytes: 1 << 20,
            pieces: vec![vec![of.serial]],
        }),
        Ask::Settle { of, verdict, next } => {
            let next = next.map(|owner| NextClaim {
                worker: worker(),
                owner: names::owner(owner),
            });
            Action::Settle(settle(of, verdict, next))
        }
        Ask::Cancel(job) => Action::Cancel(Cancel {
            id: names::job_id(job),
            tenant: None,
        }),
        Ask::Requeue(job, operation) => Action::Requeue(Requeue {
            id: names::job_id(job),
            operation: operation.to_string(),
        }),
        Ask::Expire(side) => Action::Expire(Expire {
            pool: names::pool(),
            limit: 100,
            lineage: side.name().to_owned(),
        }),
    };
    Command {
        deadline_ms: flight.deadline_ms,
        action,
    }
}

/// The submit of a job.
pub(super) fn submit(setup: &Setup, job: Job) -> Submit {
    let key = if setup.one_key { "key" } else { "" };
    Submit {
        id: names::job_id(job),
        tenant: "acme".into(),
        class: "default".into(),
        priority: 0,
        delay_ms: if job == 1 {
            setup.delay_ticks * TICK_MS
        } else {
            0
        },
        deadline_ms: setup.deadline_ticks * TICK_MS,
        timeout_ms: 0,
        max_attempts: setup.max_attempts,
        model: String::new(),
        idempotency: Idempotency {
            key_hash: key.into(),
            body_hash: key.into(),
        },
        envelope: vec![1],
    }
}

/// A settle; its result says which delivery published it.
pub(super) fn settle(of: Handed, verdict: Verdict, next: Option<NextClaim>) -> Settle {
    Settle {
        id: names::job_id(of.job),
        fence: Fence(of.fence),
        owner: names::owner(of.owner),
        verdict,
        delay_ms: TICK_MS,
        reason: DeadReason::AttemptsExhausted,
        code: String::new(),
        error: String::new(),
        usage: None,
        content_type: String::new(),
        result: if verdict == Verdict::Succeed {
            vec![of.serial]
        } else {
            Vec::new()
        },
        next,
    }
}

impl World {
    /// What the sender learns from a reply.
    pub(super) fn hear(&mut self, flight: &Flight, reply: &Reply) {
        if let Reply::Submit(SubmitReply::Accepted | SubmitReply::Duplicate(_)) = reply
            && let Ask::Submit(job) = flight.ask
        {
            let job = match reply {
                Reply::Submit(SubmitReply::Duplicate(id)) => names::job_of(id.bare()),
                _ => job,
            };
            self.past[job].replied = true;
        }
        let Some((worker, life)) = flight.from else {
            return;
        };
        if self.workers[worker].life != life || self.workers[worker].frozen {
            return;
        }
        match (flight.ask, reply) {
            (Ask::Claim { first, count }, Reply::Claim(answer)) => {
                self.hear_claim(worker, flight, first, count, answer);
            }
            (Ask::Renew(of), Reply::Renew(statuses)) => {
                self.hear_renew(worker, flight, of, statuses)
            }
            (Ask::Append(of), Reply::Append(AppendReply::Lost)) => {
                self.workers[worker].held.retain(|held| held.what != of);
            }
            (Ask::Settle { of, next, .. }, Reply::Settle(answer)) => {
                self.workers[worker].held.retain(|held| held.what != of);
                match &answer.next {
                    Some(delivery) => self.hold(worker, flight.sent, delivery),
                    None => self.unmint(next.unwrap_or(0), u8::from(next.is_some())),
                }
            }
            _ => {}
        }
    }

    fn hear_claim(
        &mut self,
        worker: usize,
        flight: &Flight,
        first: u8,
        count: u8,
        answer: &ClaimReply,
    ) {
        if self.workers[worker].claiming != Some((first, count)) {
            return; // it waits for this no longer
        }
        self.workers[worker].claiming = None;
        match answer {
            ClaimReply::Deliveries(deliveries) => {
                for delivery in deliveries {
                    self.hold(worker, flight.sent, delivery);
                }
            }
            ClaimReply::None { .. } => self.unmint(first, count),
        }
    }

    /// A delivery begins: its lease counts from before the command was sent, and its call with it. One that comes again within a
    /// grace may have nothing left.
    fn hold(&mut self, worker: usize, sent: u8, delivery: &Delivery) {
        let job = names::job_of(delivery.id.bare());
        let granted = delivery.expires_at_ms.saturating_sub(delivery.now_ms) / TICK_MS;
        let ends = sent + u8::try_from(granted).expect("a lease is some ticks");
        let what = Handed {
            job,
            fence: delivery.fence.0,
            owner: names::owner_no(delivery.owner.expose()).expect("a delivery has an owner"),
            serial: self.store.current[job].expect("it was handed out just now"),
        };
        let worker = &mut self.workers[worker];
        if worker.held.iter().all(|held| held.what != what) && ends > self.tick {
            worker.held.push(Held {
                what,
                ends,
                calling: true,
                verdict: None,
                next: None,
                asked: 0,
            });
        }
    }

    fn hear_renew(&mut self, worker: usize, flight: &Flight, of: Handed, statuses: &[RenewStatus]) {
        let held = &mut self.workers[worker].held;
        match statuses.first() {
            Some(RenewStatus::Ok | RenewStatus::Follow) => {
                for held in held.iter_mut().filter(|held| held.what == of) {
                    held.ends = held.ends.max(flight.sent + LEASE_TICKS);
                }
            }
            Some(RenewStatus::Cancel) => {
                for held in held.iter_mut().filter(|held| held.what == of) {
                    held.calling = false;
                    held.verdict = held.verdict.or(Some(Verdict::Release));
                }
            }
            _ => held.retain(|held| held.what != of || held.verdict.is_some()),
        }
    }

    /// An owner that got nothing, and that no copy of a command carries, is as good as never minted: the next to be minted
    /// takes its number, so that claims of an empty pool make no new states.
    fn unmint(&mut self, first: u8, count: u8) {
        let carried = self.net.iter().any(|flight| match flight.ask {
            Ask::Claim { first: f, .. } => f == first,
            Ask::Settle { next, .. } => next == Some(first),
            _ => false,
        });
        if count > 0 && !carried && first + count - 1 == self.minted {
            self.minted -= count;
            self.left.owners += count;
        }
    }

    /// Whether a cancel's answer came before the terminal.
    pub(super) fn promise(&mut self, job: Job, reply: CancelReply) {
        use super::world::Promised;
        self.past[job].promised = match reply {
            CancelReply::Cancelled => Promised::Cancelled,
            CancelReply::Cancelling => Promised::Cancelling,
            CancelReply::Already(state) => Promised::Already(state),
            CancelReply::Unknown => Promised::Nothing,
        };
    }
}

/// Whether a settle was taken.
pub(super) fn taken(tag: SettleTag) -> bool {
    matches!(tag, SettleTag::Settled | SettleTag::Cancelled)
}
