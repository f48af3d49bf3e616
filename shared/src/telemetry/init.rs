//! Logs to standard error, and traces to a collector when one is named.

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use super::names::attribute;

/// What is logged where no filter is given.
pub const DEFAULT_FILTER: &str = "info";

/// How long the last spans may take to leave at the end of a process: below every usual termination grace.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// Keeps telemetry going; dropping it sends what is left, for at most three seconds.
///
/// Drop it last, and not inside a task: the wait blocks its thread.
#[derive(Debug, Default)]
#[must_use = "dropping the guard ends the export of traces"]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take()
            && let Err(error) = provider.shutdown_with_timeout(FLUSH_LIMIT)
        {
            tracing::warn!(%error, "the last spans may not have reached the collector");
        }
    }
}

/// Starts logging and, when `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set, the export
/// of traces over http/protobuf; the other standard `OTEL_*` variables hold too. The service is `tidegate-<role>`
/// unless `OTEL_SERVICE_NAME` says otherwise.
///
/// Logs go to standard error: for people on a terminal (no colour with `NO_COLOR`), as one JSON object a line
/// otherwise. `log_filter` has the form of `tracing`, e.g. `tidegate_worker=debug,info`. Nothing here fails: what
/// cannot be set up is a warning in the log. A second call in one process changes nothing.
pub fn init(role: &'static str, log_filter: Option<&str>) -> Guard {
    let (filter, wrong_filter) = match EnvFilter::try_new(log_filter.unwrap_or(DEFAULT_FILTER)) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT_FILTER), Some(error)),
    };
    let (provider, wrong_export) =
        match traces_wanted(|name| std::env::var(name).ok()).then(|| provider(role, None)) {
            None => (None, None),
            Some(Ok(provider)) => (Some(provider), None),
            Some(Err(error)) => (None, Some(error)),
        };
    let traces = provider.as_ref().map(traces_layer);
    if tracing_subscriber::registry()
        .with(logs_layer().with_filter(filter))
        .with(traces)
        .try_init()
        .is_err()
    {
        // Somebody else's subscriber is in place; then this provider would never see a span.
        return Guard::default();
    }
    if let Some(error) = wrong_filter {
        tracing::warn!(%error, used = DEFAULT_FILTER, "the log filter is malformed");
    }
    if let Some(error) = wrong_export {
        tracing::warn!(%error, "traces are not exported");
    }
    Guard { provider }
}

/// Whether the standard variables ask for traces.
pub(crate) fn traces_wanted(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let endpoint =
        set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT"));
    let disabled = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let none = set("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    endpoint.is_some() && !disabled && !none
}

/// A provider that exports from a thread of its own; `endpoint` goes before the variables.
pub(crate) fn provider(
    role: &str,
    endpoint: Option<&str>,
) -> Result<SdkTracerProvider, ExporterBuildError> {
    let builder = SpanExporter::builder().with_http();
    let exporter = match endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint).build()?,
        None => builder.build()?,
    };
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource(role))
        .build())
}

fn resource(role: &str) -> Resource {
    let given = Resource::builder().build();
    let mut resource = Resource::builder()
        .with_attribute(opentelemetry::KeyValue::new(
            attribute::SERVICE_VERSION,
            env!("CARGO_PKG_VERSION"),
        ))
        .with_attribute(opentelemetry::KeyValue::new(
            attribute::SERVICE_INSTANCE_ID,
            uuid::Uuid::new_v4().to_string(),
        ));
    // The SDK itself names a service nobody named `unknown_service`.
    let named = given
        .get(&opentelemetry::Key::new(attribute::SERVICE_NAME))
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    if !named {
        resource = resource.with_service_name(format!("tidegate-{role}"));
    }
    resource.build()
}

/// The product's own spans from `info` up, whatever the log filter says: a quiet log must not cut traces.
pub(crate) fn traces_layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("tidegate"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|meta| {
            meta.target().starts_with("tidegate") && *meta.level() <= LevelFilter::INFO
        }))
}

fn logs_layer<S>() -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    let layer = fmt::layer().with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        layer.with_ansi(colour).boxed()
    } else {
        layer
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .boxed()
    }
}
