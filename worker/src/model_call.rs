//! The call of the model, watched over: it stops when the lease, the deadline or this worker's time is over.

use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::Envelope;
use tidegate_shared::telemetry::trace::current_traceparent;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::backend::{CallOutcome, CallRequest, FailureCode, Picked, Progress, Timeouts};
use crate::chunks::{Chunks, MAX_KEPT_BYTES};
use crate::live::Held;
use crate::pool::Pool;
use crate::verdict::{Ending, Stop};
use crate::{publisher, spans};

/// After a call was closed, so long until its slot is given to another: the connection's end has to reach the model
/// server and be noticed there, or it would work on more calls than the pool has slots.
const UNTIL_NOTICED: Duration = Duration::from_millis(50);

/// What a call is made of.
pub(crate) struct ModelCall<'a> {
    /// The pool.
    pub(crate) pool: &'a Pool,
    /// Its settings.
    pub(crate) config: &'a PoolConfig,
    /// The delivery.
    pub(crate) held: &'a Arc<Held>,
    /// The request.
    pub(crate) envelope: &'a Envelope,
    /// The model asked for.
    pub(crate) model: &'a str,
    /// For the whole call.
    pub(crate) timeout: Duration,
    /// The job's own.
    pub(crate) deadline: Option<Instant>,
}

/// Passes progress on to renewals and to those who read along.
struct Meter<'a> {
    held: &'a Held,
    chunks: &'a Chunks,
}

impl Progress for Meter<'_> {
    fn output_tokens(&self, so_far: u64) {
        self.held.progress(so_far);
    }

    fn chunk(&self, data: &[u8]) {
        self.chunks.push(data);
    }
}

impl ModelCall<'_> {
    /// Makes the call, and publishes its stream meanwhile.
    pub(crate) async fn make(&self, picked: Picked<'_>) -> CallOutcome {
        let chunks = Chunks::new(MAX_KEPT_BYTES);
        let ended = CancellationToken::new();
        let span = spans::model_call(self.envelope.endpoint, self.model);
        let calling = async {
            let outcome = self.call(picked, &chunks).await;
            ended.cancel();
            spans::record_outcome(&tracing::Span::current(), &outcome);
            outcome
        };
        let publishing = publisher::publish(self.pool, self.held, &chunks, &ended);
        let (outcome, ()) = tokio::join!(calling.instrument(span), publishing);
        if is_closed_by_us(&outcome) {
            tokio::time::sleep(UNTIL_NOTICED).await;
        }
        outcome
    }

    async fn call(&self, picked: Picked<'_>, chunks: &Chunks) -> CallOutcome {
        let id = self.held.id.to_string();
        let ours = current_traceparent(&tracing::Span::current());
        let submitters = || Some(self.envelope.traceparent.clone()).filter(|text| !text.is_empty());
        let request = CallRequest {
            endpoint: self.envelope.endpoint,
            body: &self.envelope.body,
            // Where nobody records our spans, the trace goes on from the submitter's.
            traceparent: ours.or_else(submitters),
            request_id: &id,
        };
        let meter = Meter {
            held: self.held,
            chunks,
        };
        let calling = picked.call(&request, self.timeouts(), &meter, &self.held.closing);
        tokio::pin!(calling);
        tokio::select! {
            // The watch goes first: a worker that was frozen must not take an answer for its own after its lease.
            biased;
            () = self.watch_over() => calling.await,
            outcome = &mut calling => outcome,
        }
    }

    /// Returns once the delivery is to stop; the call is closed by then.
    async fn watch_over(&self) {
        let reason = tokio::select! {
            biased;
            _ = self.held.stopping() => return,
            () = self.held.lease_over() => Stop::LeaseOver,
            () = reached(self.deadline) => Stop::Deadline,
            () = self.pool.stages.close_calls.cancelled() => Stop::Planned,
        };
        let what = match reason {
            Stop::LeaseOver => "the lease could not be renewed in time: closing the call",
            Stop::Deadline => "the job's deadline has come: closing the call",
            _ => "this worker leaves: closing the call",
        };
        if self.held.stop(reason) {
            tracing::warn!(job = %self.held.id, fence = self.held.fence.0, "{what}");
        }
    }

    fn timeouts(&self) -> Timeouts {
        let ms = Duration::from_millis;
        Timeouts {
            connect: ms(self.config.connect_ms),
            first_byte: ms(self.config.first_byte_ms),
            between_chunks: ms(self.config.between_chunks_ms),
            total: self.timeout,
        }
    }
}

/// Whether the model server may still be at work on a call with this outcome: we turned away before it had ended.
fn is_closed_by_us(outcome: &CallOutcome) -> bool {
    match outcome {
        CallOutcome::Answered(_) | CallOutcome::Refused(_) => false,
        CallOutcome::Cancelled { .. } => true,
        CallOutcome::Failed(failure) => {
            failure.upstream.is_none() && failure.code != FailureCode::ConnectFailed
        }
    }
}

/// How the delivery ended whose call had this outcome.
pub(crate) fn ending(outcome: CallOutcome, held: &Held) -> Ending {
    match (outcome, held.stopped()) {
        (
            CallOutcome::Cancelled {
                output_tokens_so_far,
            },
            Some(stop),
        ) => Ending::Stopped(stop, output_tokens_so_far.max(held.output_tokens())),
        (outcome, _) => Ending::Called(outcome),
    }
}

async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
