//! Taking a job in.

use tidegate_shared::domain::{Envelope, Fence, Job, JobId, State};
use tidegate_shared::protocol::{Idempotency, Submit, SubmitReply};
use tidegate_shared::store::{StoreError, Trouble};
use tidegate_shared::telemetry::{names, trace};
use tracing::Instrument as _;

use super::App;
use super::catalog::{Entry, route};
use crate::auth::Caller;
use crate::error::{Code, Problem};
use crate::input::submission::Submission;
use crate::wire::job::View;

/// Wait that a full pool tells where it has seen too few completions to know, in milliseconds.
const UNKNOWN_PACE_MS: u64 = 5_000;

/// What comes with a submission, out of the request's headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The caller's name for it.
    pub(crate) idempotency_key: Option<String>,
    /// The caller's trace context, if it is a valid one.
    pub(crate) traceparent: Option<String>,
}

/// A job that was taken in, now or before.
pub(crate) struct Taken {
    pub(crate) view: View,
    /// The same request made it earlier.
    pub(crate) replayed: bool,
}

impl App {
    /// Takes a job in, or says why not.
    pub(crate) async fn submit(
        &self,
        caller: &Caller,
        submission: Submission,
        ask: Ask,
    ) -> Result<Taken, Problem> {
        let entries = self.catalog.all().await?;
        let entry = route(&entries, submission.pool.as_ref(), &submission.model)?;
        let pool = entry.name.clone();
        let span = tracing::info_span!(
            names::span::SEND,
            otel.name = names::span::send(pool.as_str()),
            otel.kind = "producer",
            messaging.system = names::attribute::SYSTEM_TIDEGATE,
            messaging.destination.name = format!("jobs.{pool}"),
            messaging.operation.name = "send",
            messaging.operation.type = "send",
            messaging.message.id = tracing::field::Empty,
            messaging.message.body.size = submission.body.len(),
            error.type = tracing::field::Empty,
        );
        if let Some(traceparent) = &ask.traceparent {
            trace::set_parent(&span, traceparent);
        }
        let traceparent = ask
            .traceparent
            .or_else(|| trace::current_traceparent(&span))
            .unwrap_or_default();
        let outcome = async {
            let step = step(
                caller,
                submission,
                entry,
                ask.idempotency_key.as_deref(),
                traceparent,
            )?;
            span.record(
                names::attribute::MESSAGING_MESSAGE_ID,
                step.0.id.to_string(),
            );
            self.send(caller, entry, step).await
        }
        .instrument(span.clone())
        .await;
        if let Err(problem) = &outcome {
            span.record(names::attribute::ERROR_TYPE, problem.code());
        }
        outcome
    }

    async fn send(
        &self,
        caller: &Caller,
        entry: &Entry,
        step: (Submit, String),
    ) -> Result<Taken, Problem> {
        let (step, metadata) = step;
        let pool = &entry.name;
        let reply = self.store.submit(&step).await;
        let reply = reply.map_err(|error| unconfirmed(error, &step))?;
        match self.judged(entry, &step, reply) {
            Ok(None) => {
                self.metrics.submitted(pool.as_str(), &step.class);
                self.metadata.put(&step.id, &metadata);
                // It is accepted, whatever becomes of a second look at it.
                let view = self.read(&step.id, caller.sees()).await;
                let view = view.unwrap_or_else(|_| self.as_accepted(&step));
                Ok(Taken {
                    view,
                    replayed: false,
                })
            }
            Ok(Some(earlier)) => {
                let view = self.read(&earlier, caller.sees()).await?;
                Ok(Taken {
                    view,
                    replayed: true,
                })
            }
            Err((code, problem)) => {
                self.metrics.refused(pool.as_str(), code.as_str());
                Err(problem)
            }
        }
    }

    /// The store's reply: accepted (none), the job of an earlier request, or a refusal.
    fn judged(
        &self,
        entry: &Entry,
        step: &Submit,
        reply: SubmitReply,
    ) -> Result<Option<JobId>, (Code, Problem)> {
        let refusal = |code: Code, detail: String| (code, Problem::new(code, detail));
        let pool = &entry.name;
        match reply {
            SubmitReply::Accepted => Ok(None),
            SubmitReply::Duplicate(earlier) => Ok(Some(earlier)),
            SubmitReply::Conflict(_) => Err(refusal(
                Code::IdempotencyMismatch,
                "the idempotency key was used for another request; use a new key for a new request"
                    .into(),
            )),
            SubmitReply::Draining => Err(refusal(
                Code::Draining,
                format!("pool {pool} is draining and takes no new work"),
            )),
            SubmitReply::Full {
                limit,
                value,
                retry_after_ms,
            } => {
                let (code, problem) = refusal(
                    Code::QueueFull,
                    format!("pool {pool} is full: {limit} is {value}"),
                );
                let problem = problem
                    .retry_after_ms(retry_after_ms.unwrap_or(UNKNOWN_PACE_MS))
                    .limit(limit, value);
                Err((code, problem))
            }
            SubmitReply::Unsatisfiable { limit, value } => {
                let detail = format!(
                    "{} bytes do not fit into pool {pool} even while it is empty: {limit} is {value}",
                    step.envelope.len()
                );
                let (code, problem) = refusal(Code::Unsatisfiable, detail);
                Err((code, problem.limit(limit, value)))
            }
        }
    }

    /// What is known of a job that was accepted, where the store does not answer a second time.
    fn as_accepted(&self, step: &Submit) -> View {
        let now_ms = self.store.pool_now_ms(step.id.pool()).unwrap_or(0);
        let after = |ms: u64| (ms > 0).then(|| now_ms + ms);
        View::of(Job {
            id: step.id.clone(),
            state: if step.delay_ms > 0 {
                State::Scheduled
            } else {
                State::Queued
            },
            tenant: step.tenant.clone(),
            class: step.class.clone(),
            priority: step.priority,
            seq: 0,
            model: step.model.clone(),
            bytes: step.envelope.len() as u64,
            attempts: 0,
            max_attempts: step.max_attempts,
            lost_leases: 0,
            stops: 0,
            fence: Fence(0),
            created_at_ms: now_ms,
            due_at_ms: after(step.delay_ms),
            deadline_at_ms: after(step.deadline_ms),
            timeout_ms: (step.timeout_ms > 0).then_some(step.timeout_ms),
            started_at_ms: None,
            finished_at_ms: None,
            cancel_requested: false,
            dead: None,
            code: None,
            error: None,
            usage: None,
            progress_tokens: None,
            content_type: None,
            result_expired: false,
            worker: None,
            deliveries: Vec::new(),
        })
    }
}

/// What went wrong with a submit. One that is stored and unconfirmed is not lost for its caller, who must know how to go on:
/// without a key a repeat would be another job.
fn unconfirmed(error: StoreError, step: &Submit) -> Problem {
    let StoreError::Unavailable {
        trouble: Trouble::Unconfirmed,
        detail,
    } = &error
    else {
        return error.into();
    };
    tracing::warn!(job = %step.id, detail, "a submit is not confirmed");
    let how = if step.idempotency.key_hash.is_empty() {
        format!(
            "sent again it would make another job, as it has no Idempotency-Key: look at job {} instead",
            step.id
        )
    } else {
        "send it again with the same Idempotency-Key, which may confirm it".into()
    };
    Problem::new(
        Code::StoreUnavailable,
        format!(
            "the job is stored but not confirmed by the replicas that store.durability asks for ({detail}); {how}"
        ),
    )
}

/// The step of a submission in its pool, and the job's metadata.
fn step(
    caller: &Caller,
    submission: Submission,
    entry: &Entry,
    key: Option<&str>,
    traceparent: String,
) -> Result<(Submit, String), Problem> {
    let config = &entry.def.config;
    let classes = config.class_names();
    let class = match submission.class {
        Some(class) if config.has_class(&class) => class,
        Some(_) => {
            let detail = format!(
                "must be a class of pool {}: {}",
                entry.name,
                classes.join(", ")
            );
            return Err(Problem::field(Code::InvalidValue, "class", detail));
        }
        None => classes.first().copied().unwrap_or_default().to_owned(),
    };
    let envelope = Envelope {
        endpoint: submission.endpoint,
        body: submission.body,
        metadata: submission.metadata.clone(),
        webhook_url: String::new(),
        traceparent,
    };
    let idempotency = key.map_or_else(Idempotency::default, |key| Idempotency {
        key_hash: Idempotency::key_hash_of(&caller.tenant, key),
        body_hash: submission.digest,
    });
    let step = Submit {
        id: JobId::mint(&entry.name),
        tenant: caller.tenant.clone(),
        class,
        priority: submission.priority,
        delay_ms: submission.delay_ms,
        deadline_ms: submission.deadline_ms,
        timeout_ms: submission.timeout_ms,
        max_attempts: submission.max_attempts.unwrap_or(config.max_attempts),
        model: submission.model,
        idempotency,
        envelope: envelope.to_bytes(),
    };
    Ok((step, submission.metadata))
}
