//! W3C trace context between processes: the submitter's `traceparent` is kept with the job, each delivery is a span
//! linked to it. What is malformed is ignored, never an error: tracing must not refuse work.

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Name of the header.
pub const TRACEPARENT: &str = "traceparent";

/// Bytes of `00-` + 32 + `-` + 16 + `-` + 2: version 00 is exactly that long (W3C Trace Context, 3.2.2).
const VERSION_0_BYTES: usize = 55;

/// Longest header of a later version that is looked at, in bytes.
const MAX_BYTES: usize = 256;

/// The span a `traceparent` names, by the rules of W3C Trace Context 3.2: lower-case hexadecimal, no id of zeros,
/// version `ff` forbidden, later versions read by their known part. None when malformed.
pub fn parse_traceparent(header: &str) -> Option<SpanContext> {
    let header = header.trim_matches([' ', '\t']);
    let known = header.get(..VERSION_0_BYTES)?;
    let rest = &header[VERSION_0_BYTES..];
    let mut parts = known.split('-');
    let mut hex = |length: usize| {
        parts.next().filter(|part| {
            part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    let (version, trace_id, span_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let whole = match version {
        "00" => rest.is_empty(),
        "ff" => false,
        _ => header.len() <= MAX_BYTES && (rest.is_empty() || rest.starts_with('-')),
    };
    let trace_id = TraceId::from_hex(trace_id).ok()?;
    let span_id = SpanId::from_hex(span_id).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let context = SpanContext::new(trace_id, span_id, flags, true, TraceState::default());
    (whole && context.is_valid()).then_some(context)
}

/// Links `span` to the span that `traceparent` names; a malformed one changes nothing.
pub fn link_span(span: &tracing::Span, traceparent: &str) {
    if let Some(context) = parse_traceparent(traceparent) {
        span.add_link(context);
    }
}

/// Makes `span` a child of the span that `traceparent` names, for a caller that waits for it; a malformed one changes
/// nothing. Must come before the span is first entered.
pub fn set_parent(span: &tracing::Span, traceparent: &str) {
    if let Some(context) = parse_traceparent(traceparent) {
        let parent = opentelemetry::Context::new().with_remote_span_context(context);
        // Fails for a span that has started or that nobody records: then there is nothing to hang below it.
        let _ = span.set_parent(parent);
    }
}

/// The `traceparent` that names `span`, to be carried on; none while nothing records it.
pub fn current_traceparent(span: &tracing::Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| {
        format!(
            "00-{}-{}-{:02x}",
            context.trace_id(),
            context.span_id(),
            context.trace_flags().to_u8()
        )
    })
}
