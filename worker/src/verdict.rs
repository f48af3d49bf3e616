//! From how a delivery ended to what is asked of the store. Pure.

use bytes::Bytes;
use rand::Rng;

use tidegate_shared::domain::{DeadReason, JobError, Usage, Verdict};
use tidegate_shared::retry::job_backoff_ms;

use crate::backend::{Answer, CallFailure, CallOutcome, FailureCode, tokens_of_bytes};
use crate::problem::{self, code};

/// Why a delivery was stopped before its call had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The job is to be cancelled.
    Cancelled,
    /// The store says that the delivery is not ours any more.
    Lost,
    /// By our own clock the lease may be over.
    LeaseOver,
    /// The job's deadline came.
    Deadline,
    /// This worker leaves.
    Planned,
}

/// How a delivery ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The call came to an end.
    Called(CallOutcome),
    /// It was stopped, before its call or in it; with the output tokens seen by then.
    Stopped(Stop, u64),
    /// No call could be made, nor could it later.
    Unroutable(String),
    /// This program failed.
    Panicked,
}

/// What a verdict depends on besides the ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Attempts spent before this delivery.
    pub(crate) attempts: u32,
    /// The pool's base of back-off.
    pub(crate) backoff_ms: u64,
    /// The pool's cap of it.
    pub(crate) backoff_max_ms: u64,
    /// Bytes of the request's body, for estimates.
    pub(crate) request_bytes: usize,
}

/// What is asked of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settlement {
    /// How the delivery is to be closed.
    pub(crate) verdict: Verdict,
    /// `retry`: after how long.
    pub(crate) delay_ms: u64,
    /// Reason of the dead letter, for `dead`, and for `retry` where no attempt remains.
    pub(crate) reason: DeadReason,
    /// Why there is no answer.
    pub(crate) error: Option<JobError>,
    /// What was used.
    pub(crate) usage: Option<Usage>,
    /// Media type of the result.
    pub(crate) content_type: String,
    /// The model's body.
    pub(crate) result: Bytes,
}

/// The settlement that an ending asks for; none where the delivery is not ours to settle.
pub(crate) fn verdict(ending: Ending, facts: &Facts, rng: &mut impl Rng) -> Option<Settlement> {
    Some(match ending {
        Ending::Called(CallOutcome::Answered(answer)) => succeed(answer),
        Ending::Called(CallOutcome::Refused(error)) => Settlement {
            error: Some(problem::refused(error)),
            ..plain(Verdict::Fail)
        },
        Ending::Called(CallOutcome::Failed(failure)) => failed(&failure, facts, rng),
        // Nobody stops a call without saying why; if it happened, the job is handed back.
        Ending::Called(CallOutcome::Cancelled { .. }) => plain(Verdict::Release),
        Ending::Stopped(Stop::Lost, _) => return None,
        Ending::Stopped(Stop::LeaseOver | Stop::Planned, _) => plain(Verdict::Release),
        Ending::Stopped(Stop::Cancelled, output_tokens) => Settlement {
            // The store makes it cancelled, whatever the verdict.
            error: Some(problem::ours(code::CANCELLED, "the job was cancelled")),
            usage: estimate(output_tokens, facts),
            ..plain(Verdict::Fail)
        },
        Ending::Stopped(Stop::Deadline, output_tokens) => Settlement {
            reason: DeadReason::Deadline,
            error: Some(problem::ours(
                code::DEADLINE_EXCEEDED,
                "the job's deadline came while it ran",
            )),
            usage: estimate(output_tokens, facts),
            ..plain(Verdict::Dead)
        },
        Ending::Unroutable(why) => Settlement {
            reason: DeadReason::Unroutable,
            error: Some(problem::ours(code::UNROUTABLE, why)),
            ..plain(Verdict::Dead)
        },
        Ending::Panicked => Settlement {
            delay_ms: backoff(facts, rng),
            // A release would hand the same fault out for ever.
            error: Some(problem::ours(
                code::INTERNAL,
                "the worker failed on this job",
            )),
            ..plain(Verdict::Retry)
        },
    })
}

fn plain(verdict: Verdict) -> Settlement {
    Settlement {
        verdict,
        delay_ms: 0,
        reason: DeadReason::AttemptsExhausted,
        error: None,
        usage: None,
        content_type: String::new(),
        result: Bytes::new(),
    }
}

fn succeed(answer: Answer) -> Settlement {
    Settlement {
        usage: Some(Usage {
            input_tokens: answer.usage.input_tokens,
            output_tokens: answer.usage.output_tokens,
            estimated: answer.usage.estimated,
        }),
        content_type: answer.content_type,
        result: answer.body,
        ..plain(Verdict::Succeed)
    }
}

fn failed(failure: &CallFailure, facts: &Facts, rng: &mut impl Rng) -> Settlement {
    let asked = Settlement {
        error: Some(problem::failed(failure)),
        usage: estimate(failure.output_tokens_so_far, facts),
        ..plain(Verdict::Retry)
    };
    if !failure.retryable() {
        return Settlement {
            verdict: Verdict::Dead,
            reason: DeadReason::Upstream,
            ..asked
        };
    }
    let hint_ms = failure.retry_after.map_or(0, |wait| {
        u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    });
    Settlement {
        // Behind the hint, not beside it: all who were told the same moment must not come back at that moment.
        delay_ms: hint_ms.saturating_add(backoff(facts, rng)),
        reason: match failure.code {
            FailureCode::Timeout => DeadReason::Timeout,
            _ => DeadReason::AttemptsExhausted,
        },
        ..asked
    }
}

fn backoff(facts: &Facts, rng: &mut impl Rng) -> u64 {
    job_backoff_ms(
        facts.backoff_ms,
        facts.backoff_max_ms,
        facts.attempts.saturating_add(1),
        rng,
    )
}

/// What a call used that was not answered: our estimate, where anything came of it at all.
fn estimate(output_tokens: u64, facts: &Facts) -> Option<Usage> {
    (output_tokens > 0).then(|| Usage {
        input_tokens: tokens_of_bytes(facts.request_bytes),
        output_tokens,
        estimated: true,
    })
}

#[cfg(test)]
mod tests;
