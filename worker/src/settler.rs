//! Brings a verdict to the store, and takes the next delivery on the way back.

use std::time::Duration;

use tidegate_shared::domain::{DeadReason, JobError, Owner, State, Verdict};
use tidegate_shared::protocol::{NextClaim, Settle, SettleReply, SettleTag};
use tidegate_shared::retry::Retry;
use tidegate_shared::store::StoreError;
use tidegate_shared::telemetry::metrics::Outcome;
use tokio::time::Instant;

use crate::claimer;
use crate::live::{Claimed, Held};
use crate::pool::Pool;
use crate::problem;
use crate::verdict::Settlement;

/// A verdict that the store does not take is kept for two leases and this much longer: an outage that short is survived
/// by leases alone where the store's grace allows it, and beyond it the job has long been handed to another.
const KEEP_BEYOND: Duration = Duration::from_secs(60);

/// What the settlement is of, for counting.
pub(crate) struct Subject<'a> {
    /// The delivery.
    pub(crate) held: &'a Held,
    /// The job's class.
    pub(crate) class: &'a str,
    /// When it was claimed, at the earliest.
    pub(crate) since: Instant,
    /// Time bound of the pool's leases.
    pub(crate) lease: Duration,
}

/// Settles a delivery. Returns the next one, if the store handed one out in the same trip.
pub(crate) async fn settle(
    pool: &Pool,
    subject: &Subject<'_>,
    settlement: Settlement,
) -> Option<Claimed> {
    let verdict = settlement.verdict;
    let (usage, code) = (
        settlement.usage,
        settlement.error.as_ref().map(|e| e.code.clone()),
    );
    let mut step = step(pool, subject.held, settlement);
    let (reply, next) = store(pool, subject, &mut step).await?;
    let job = &subject.held.id;
    let fence = subject.held.fence.0;
    let span = tracing::Span::current();
    span.record(
        tidegate_shared::telemetry::names::attribute::OUTCOME,
        tag_word(reply.tag),
    );
    if reply.tag == SettleTag::Lost {
        pool.metrics.stale_write(pool.name.as_str(), "settle");
        tracing::warn!(%job, fence, %verdict, "lease lost: the verdict was not taken");
        return next;
    }
    pool.metrics
        .observe_run(pool.name.as_str(), subject.class, subject.since.elapsed());
    if let Some(usage) = usage {
        pool.metrics
            .tokens_used(pool.name.as_str(), usage.input_tokens, usage.output_tokens);
    }
    if let Some(outcome) = outcome(&reply, verdict) {
        pool.metrics
            .finished(pool.name.as_str(), subject.class, outcome);
    }
    let state = reply.state.map_or("gone", State::as_str);
    let dead = reply.dead.map(DeadReason::as_str);
    tracing::info!(%job, fence, %verdict, state, dead, code, "settled");
    next
}

/// The step: the same arguments at each try, the owner of the next delivery among them.
fn step(pool: &Pool, held: &Held, settlement: Settlement) -> Settle {
    // Not while draining, nor where another pool waits for room or the model servers for quiet.
    let go_on = !pool.stages.drain.is_cancelled()
        && !pool.capacity.others_wait(pool.number)
        && claimer::rest(pool).is_none();
    Settle {
        id: held.id.clone(),
        fence: held.fence,
        owner: held.owner.clone(),
        verdict: settlement.verdict,
        delay_ms: settlement.delay_ms,
        reason: settlement.reason,
        code: settlement
            .error
            .as_ref()
            .map_or_else(String::new, |e: &JobError| e.code.clone()),
        error: settlement.error.map_or_else(String::new, problem::to_json),
        usage: settlement.usage,
        content_type: settlement.content_type,
        result: settlement.result.to_vec(),
        next: go_on.then(|| NextClaim {
            worker: pool.worker.clone(),
            owner: Owner::mint(),
        }),
    }
}

/// Sends the step until the store answers. A finished result is not thrown away while its lease may still hold, and the
/// store alone knows: after a gap it lets owners renew first. None where it was given up. The next job is asked for during
/// half a lease: what was taken by then lapses, and its owner is good for no other.
async fn store(
    pool: &Pool,
    subject: &Subject<'_>,
    step: &mut Settle,
) -> Option<(SettleReply, Option<Claimed>)> {
    let retry = Retry::new(Duration::from_millis(50), Duration::from_secs(2));
    let first_sent = Instant::now();
    let give_up_at = first_sent + 2 * subject.lease + KEEP_BEYOND;
    let mut attempt = 0;
    loop {
        let sent = Instant::now();
        if first_sent.elapsed() >= subject.lease / 2 {
            step.next = None;
        }
        match pool.store.settle(step).await {
            Ok(mut reply) => {
                let claimed = |delivery| Claimed {
                    delivery,
                    sent,
                    first_sent,
                };
                let next = reply.next.take().map(claimed);
                return Some((reply, next));
            }
            Err(StoreError::Unavailable { trouble, detail }) => {
                attempt += 1;
                tracing::warn!(job = %step.id, verdict = %step.verdict, trouble = trouble.as_str(), detail,
                    "verdict not stored; sent again");
            }
            Err(error) => {
                tracing::error!(job = %step.id, verdict = %step.verdict, %error, "verdict given up");
                return None;
            }
        }
        let again = Instant::now() + retry.delay(attempt);
        tokio::select! {
            () = pool.stages.give_up.cancelled() => {}
            () = tokio::time::sleep_until(again), if again < give_up_at => continue,
            () = tokio::time::sleep_until(give_up_at) => {}
        }
        tracing::error!(job = %step.id, verdict = %step.verdict, "verdict given up: the store did not answer");
        return None;
    }
}

/// How this settlement ended the job, where it did. Of one that was sent again only the state is known, which others may
/// have moved on since: what the verdict could not bring about is theirs to count.
fn outcome(reply: &SettleReply, verdict: Verdict) -> Option<Outcome> {
    match (reply.state?, verdict) {
        (State::Cancelled, _) => Some(Outcome::Cancelled),
        (State::Succeeded, Verdict::Succeed) => Some(Outcome::Succeeded),
        (State::Failed, Verdict::Fail) => Some(Outcome::Failed),
        (State::Failed, Verdict::Dead | Verdict::Retry) => Some(Outcome::Dead),
        _ => None,
    }
}

fn tag_word(tag: SettleTag) -> &'static str {
    match tag {
        SettleTag::Settled => "settled",
        SettleTag::Cancelled => "cancelled",
        SettleTag::Duplicate => "duplicate",
        SettleTag::Lost => "lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_counts_once_by_how_the_job_ended() {
        for (state, verdict, counted) in [
            (
                Some(State::Succeeded),
                Verdict::Succeed,
                Some(Outcome::Succeeded),
            ),
            (Some(State::Failed), Verdict::Fail, Some(Outcome::Failed)),
            (Some(State::Failed), Verdict::Retry, Some(Outcome::Dead)),
            (Some(State::Failed), Verdict::Dead, Some(Outcome::Dead)),
            (
                Some(State::Cancelled),
                Verdict::Succeed,
                Some(Outcome::Cancelled),
            ),
            (Some(State::Scheduled), Verdict::Retry, None),
            (Some(State::Queued), Verdict::Release, None),
            (Some(State::Succeeded), Verdict::Release, None),
            (None, Verdict::Succeed, None),
        ] {
            let reply = SettleReply {
                tag: SettleTag::Settled,
                state,
                dead: None,
                next: None,
            };
            assert_eq!(outcome(&reply, verdict), counted, "{state:?} {verdict}");
        }
    }
}
