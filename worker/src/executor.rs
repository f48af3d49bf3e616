//! One delivery from claim to verdict, in one straight line.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tidegate_shared::domain::Envelope;
use tidegate_shared::protocol::Delivery;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::capacity::Permit;
use crate::live::{Claimed, Held};
use crate::model_call;
use crate::pool::{Pool, Settings};
use crate::settler::{self, Subject};
use crate::spans;
use crate::verdict::{Ending, Facts, Stop, verdict};
use tidegate_shared::telemetry::names::attribute;

/// Starts a task that works on this delivery, and then on those that its settlements bring. The permit is given back at
/// its end.
pub(crate) fn start(pool: &Arc<Pool>, claimed: Claimed, permit: Permit) {
    let tasks = pool.work.clone();
    let pool = Arc::clone(pool);
    tasks.spawn(async move {
        let mut next = Some(claimed);
        while let Some(claimed) = next {
            next = deliver(&pool, claimed).await;
        }
        drop(permit);
    });
}

/// Works on one delivery. Returns the one that came back with its settlement.
async fn deliver(pool: &Pool, claimed: Claimed) -> Option<Claimed> {
    let settings = pool.settled_settings().await;
    let delivery = &claimed.delivery;
    let envelope = Envelope::from_bytes(&delivery.envelope);
    let traceparent = envelope
        .as_ref()
        .map_or("", |envelope| envelope.traceparent.as_str());
    let span = spans::process(pool, delivery, traceparent);
    let envelope = envelope.map_err(|error| format!("the stored request cannot be read: {error}"));
    work(pool, &settings, &claimed, envelope)
        .instrument(span)
        .await
}

async fn work(
    pool: &Pool,
    settings: &Settings,
    claimed: &Claimed,
    envelope: Result<Envelope, String>,
) -> Option<Claimed> {
    let delivery = &claimed.delivery;
    observe_wait(pool, delivery);
    let timeout = Duration::from_millis(delivery.timeout_ms.unwrap_or(settings.config.total_ms));
    let held = Arc::new(Held::new(claimed, settings.lease(), timeout));
    let _listed = pool.live.list(&held);
    let facts = Facts {
        attempts: delivery.attempts,
        backoff_ms: settings.config.backoff_ms,
        backoff_max_ms: settings.config.backoff_max_ms,
        request_bytes: envelope.as_ref().map_or(0, |envelope| envelope.body.len()),
    };

    let running = run(pool, settings, claimed, &held, envelope, timeout);
    let ending = guarded(&held, running).await;
    held.start_settling();

    let settlement = verdict(ending, &facts, &mut rand::rng())?;
    let span = tracing::Span::current();
    span.record(attribute::VERDICT, settlement.verdict.as_str());
    spans::record_error(
        &span,
        settlement.error.as_ref().map(|error| error.code.as_str()),
    );
    let subject = Subject {
        held: &held,
        class: &delivery.class,
        since: claimed.first_sent,
        lease: settings.lease(),
    };
    settler::settle(pool, &subject, settlement)
        .instrument(spans::settle(pool))
        .await
}

/// Turns a panic into an ending: a fault of ours must not leave the lease to lapse, which would count against the worker's
/// other jobs, and no attempt would ever end it.
async fn guarded(held: &Held, running: impl Future<Output = Ending>) -> Ending {
    let caught = AssertUnwindSafe(running).catch_unwind().await;
    caught.unwrap_or_else(|_| {
        tracing::error!(job = %held.id, fence = held.fence.0, "the delivery failed inside the worker: a bug");
        Ending::Panicked
    })
}

/// From the stored request to the end of its call.
async fn run(
    pool: &Pool,
    settings: &Settings,
    claimed: &Claimed,
    held: &Arc<Held>,
    envelope: Result<Envelope, String>,
    timeout: Duration,
) -> Ending {
    if pool.stages.drain.is_cancelled() {
        return Ending::Stopped(Stop::Planned, 0);
    }
    let envelope = match envelope {
        Ok(envelope) => envelope,
        Err(why) => return Ending::Unroutable(why),
    };
    let Some(picked) = settings.backends.pick() else {
        return Ending::Unroutable("the pool has no model server".to_owned());
    };
    let call = model_call::ModelCall {
        pool,
        config: &settings.config,
        held,
        envelope: &envelope,
        model: &claimed.delivery.model,
        timeout,
        deadline: deadline(&claimed.delivery, claimed.sent),
    };
    let outcome = call.make(picked).await;
    model_call::ending(outcome, held)
}

/// The job's deadline by our own clock: the pool said how far off it was after `sent`, so this is the earlier bound.
fn deadline(delivery: &Delivery, sent: Instant) -> Option<Instant> {
    let left_ms = delivery.deadline_at_ms?.saturating_sub(delivery.now_ms);
    Some(sent + Duration::from_millis(left_ms))
}

/// How long the job waited. Of later deliveries a part was run and back-off, which is no waiting.
fn observe_wait(pool: &Pool, delivery: &Delivery) {
    if delivery.fence.0 == 1 {
        let waited_ms = delivery.now_ms.saturating_sub(delivery.created_at_ms);
        let waited = Duration::from_millis(waited_ms);
        pool.metrics
            .observe_wait(pool.name.as_str(), &delivery.class, waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::claimed;

    #[tokio::test]
    async fn a_panic_is_an_ending_with_a_verdict_of_its_own() {
        let second = Duration::from_secs(1);
        let held = Held::new(&claimed(2_000), second, second);
        let ending = guarded(&held, async { panic!("on purpose") }).await;
        assert!(matches!(ending, Ending::Panicked));
    }

    #[test]
    fn the_deadline_counts_from_before_the_claim_was_sent() {
        let mut claimed = claimed(2_000);
        assert_eq!(deadline(&claimed.delivery, claimed.sent), None);
        claimed.delivery.deadline_at_ms = Some(1_700);
        assert_eq!(
            deadline(&claimed.delivery, claimed.sent),
            Some(claimed.sent + Duration::from_millis(700))
        );
        claimed.delivery.deadline_at_ms = Some(900);
        assert_eq!(
            deadline(&claimed.delivery, claimed.sent),
            Some(claimed.sent)
        );
    }
}
