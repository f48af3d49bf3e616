//! Spans of a delivery. A process of its own: what a span's place in the code is worth to subscribers is kept once per
//! process, and tests beside it would have their say.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "one test uses a part of it")]
#[path = "../worker/rig.rs"]
mod rig;

use std::sync::{Arc, Mutex};

use opentelemetry::trace::{SpanKind, TracerProvider as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tidegate_loadtest::gpu::Script;
use tracing_subscriber::layer::SubscriberExt as _;

use rig::{Rig, quick};

/// Keeps what would be exported.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

#[tokio::test]
async fn each_delivery_is_linked_to_its_submitter_and_carries_on_to_the_model_server() {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(kept.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    // One thread runs all of this test.
    let _default = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));

    let rig = Rig::start(quick()).await;
    let worker = rig.worker().await;
    let script = Script::tag("a")
        .status(500)
        .fail_times(1_u32)
        .text("the secret answer");
    let id = rig.chat(&script).await;
    rig.success(&id).await;
    worker.stop().await;
    let spans = kept.0.lock().unwrap().clone();

    let named =
        |name: &str| -> Vec<&SpanData> { spans.iter().filter(|span| span.name == name).collect() };
    let deliveries = named("process jobs.default");
    let calls = named("chat m");
    let settlements = named("settle jobs.default");
    assert_eq!(
        (deliveries.len(), calls.len(), settlements.len()),
        (2, 2, 2)
    );
    for (n, delivery) in deliveries.iter().enumerate() {
        let links: Vec<String> = (delivery.links.links.iter())
            .map(|link| link.span_context.trace_id().to_string())
            .collect();
        assert_eq!(links, ["0af7651916cd43dd8448eb211c80319c"]);
        assert_eq!(delivery.span_kind, SpanKind::Consumer);
        assert_eq!(calls[n].parent_span_id, delivery.span_context.span_id());
        assert_eq!(
            settlements[n].parent_span_id,
            delivery.span_context.span_id()
        );
        let carried = rig.gpu.calls()[n].header("traceparent").unwrap().to_owned();
        assert!(
            carried.contains(&calls[n].span_context.span_id().to_string()),
            "{carried}"
        );
    }
    let attribute = |span: &SpanData, name: &str| {
        let found = span.attributes.iter().find(|kv| kv.key.as_str() == name);
        found.map(|kv| kv.value.as_str().into_owned())
    };
    assert_eq!(
        attribute(deliveries[0], "tidegate.verdict").as_deref(),
        Some("retry")
    );
    assert_eq!(
        attribute(deliveries[0], "error.type").as_deref(),
        Some("upstream_error")
    );
    assert_eq!(
        attribute(deliveries[1], "tidegate.verdict").as_deref(),
        Some("succeed")
    );
    assert_eq!(
        attribute(settlements[1], "tidegate.outcome").as_deref(),
        Some("settled")
    );
    assert_eq!(
        attribute(calls[1], "gen_ai.usage.output_tokens").as_deref(),
        Some("3")
    );
    let all = format!("{spans:?}");
    assert!(
        !all.contains("secret answer"),
        "neither prompts nor answers"
    );
}
