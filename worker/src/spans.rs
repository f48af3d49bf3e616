//! The spans of a delivery. No prompt, no answer and no owner is ever in one.

use tidegate_shared::domain::Endpoint;
use tidegate_shared::protocol::Delivery;
use tidegate_shared::telemetry::names::{attribute, operation, span};
use tidegate_shared::telemetry::trace::link_span;
use tracing::Span;
use tracing::field::Empty;

use crate::backend::CallOutcome;
use crate::pool::Pool;

/// One delivery, linked to the submitter's span.
pub(crate) fn process(pool: &Pool, delivery: &Delivery, traceparent: &str) -> Span {
    let span = tracing::info_span!(
        span::PROCESS,
        { attribute::OTEL_NAME } = span::process(pool.name.as_str()),
        { attribute::OTEL_KIND } = "consumer",
        { attribute::MESSAGING_SYSTEM } = attribute::SYSTEM_TIDEGATE,
        { attribute::MESSAGING_DESTINATION_NAME } = format!("jobs.{}", pool.name),
        { attribute::MESSAGING_OPERATION_NAME } = "process",
        { attribute::MESSAGING_OPERATION_TYPE } = "process",
        { attribute::MESSAGING_MESSAGE_ID } = %delivery.id,
        { attribute::POOL } = pool.name.as_str(),
        { attribute::CLASS } = delivery.class.as_str(),
        { attribute::TENANT } = delivery.tenant.as_str(),
        { attribute::FENCE } = delivery.fence.0,
        { attribute::ATTEMPT } = delivery.attempts,
        { attribute::WORKER } = pool.worker.as_str(),
        { attribute::VERDICT } = Empty,
        { attribute::OTEL_STATUS_CODE } = Empty,
        { attribute::ERROR_TYPE } = Empty,
    );
    link_span(&span, traceparent);
    span
}

/// The call of the model, inside the current span.
pub(crate) fn model_call(endpoint: Endpoint, model: &str) -> Span {
    let operation = match endpoint {
        Endpoint::ChatCompletions => operation::CHAT,
        Endpoint::Completions => operation::TEXT_COMPLETION,
        Endpoint::Embeddings => operation::EMBEDDINGS,
    };
    tracing::info_span!(
        span::MODEL_CALL,
        { attribute::OTEL_NAME } = span::model_call(operation, model),
        { attribute::OTEL_KIND } = "client",
        { attribute::GEN_AI_OPERATION_NAME } = operation,
        { attribute::GEN_AI_PROVIDER_NAME } = "openai",
        { attribute::GEN_AI_REQUEST_MODEL } = model,
        { attribute::GEN_AI_USAGE_INPUT_TOKENS } = Empty,
        { attribute::GEN_AI_USAGE_OUTPUT_TOKENS } = Empty,
        { attribute::GEN_AI_RESPONSE_FINISH_REASONS } = Empty,
        { attribute::HTTP_RESPONSE_STATUS_CODE } = Empty,
        { attribute::OTEL_STATUS_CODE } = Empty,
        { attribute::ERROR_TYPE } = Empty,
    )
}

/// Writes a call's outcome into its span.
pub(crate) fn record_outcome(span: &Span, outcome: &CallOutcome) {
    let (code, status) = match outcome {
        CallOutcome::Answered(answer) => {
            span.record(
                attribute::GEN_AI_USAGE_INPUT_TOKENS,
                answer.usage.input_tokens,
            );
            span.record(
                attribute::GEN_AI_USAGE_OUTPUT_TOKENS,
                answer.usage.output_tokens,
            );
            span.record(
                attribute::GEN_AI_RESPONSE_FINISH_REASONS,
                answer.finish_reasons.join(","),
            );
            (None, Some(answer.status))
        }
        CallOutcome::Refused(error) => (Some(error.code.as_str()), error.upstream.status),
        CallOutcome::Failed(failure) => (Some(failure.code.as_str()), failure.upstream_status()),
        CallOutcome::Cancelled { .. } => (Some("cancelled"), None),
    };
    if let Some(status) = status {
        span.record(attribute::HTTP_RESPONSE_STATUS_CODE, status);
    }
    record_error(span, code);
}

/// Marks a span as failed, where there is a code.
pub(crate) fn record_error(span: &Span, code: Option<&str>) {
    if let Some(code) = code {
        span.record(attribute::OTEL_STATUS_CODE, "ERROR");
        span.record(attribute::ERROR_TYPE, code);
    }
}

/// Closing a delivery, inside the current span.
pub(crate) fn settle(pool: &Pool) -> Span {
    tracing::info_span!(
        span::SETTLE,
        { attribute::OTEL_NAME } = span::settle(pool.name.as_str()),
        { attribute::OTEL_KIND } = "client",
        { attribute::MESSAGING_SYSTEM } = attribute::SYSTEM_TIDEGATE,
        { attribute::MESSAGING_DESTINATION_NAME } = format!("jobs.{}", pool.name),
        { attribute::MESSAGING_OPERATION_NAME } = "settle",
        { attribute::MESSAGING_OPERATION_TYPE } = "settle",
        { attribute::OUTCOME } = Empty,
    )
}
