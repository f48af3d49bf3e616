#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing_subscriber::layer::SubscriberExt;

use super::init::{provider, traces_layer, traces_wanted};
use super::names::span;
use super::trace::{current_traceparent, link_span, parse_traceparent, set_parent};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Keeps what would be exported.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

/// The spans that `work` leaves.
fn spans_of(work: impl FnOnce()) -> Vec<SpanData> {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(kept.clone())
        .build();
    let subscriber = tracing_subscriber::registry().with(traces_layer(&provider));
    tracing::subscriber::with_default(subscriber, work);
    provider.force_flush().unwrap();
    std::mem::take(&mut *kept.0.lock().unwrap())
}

#[test]
fn a_delivery_is_linked_to_its_submitter_and_carried_on_under_its_own_name() {
    let mut carried = None;
    let spans = spans_of(|| {
        let delivery = tracing::info_span!(target: "tidegate_worker", "process", otel.name = span::process("gpu"), otel.kind = "consumer");
        link_span(&delivery, PARENT);
        link_span(&delivery, "not a traceparent");
        carried = current_traceparent(&delivery);
        delivery.in_scope(|| {
            tracing::info_span!(target: "tidegate_worker", "model_call").in_scope(|| ())
        });
    });
    let delivery = spans
        .iter()
        .find(|span| span.name == "process jobs.gpu")
        .unwrap();
    let call = spans.iter().find(|span| span.name == "model_call").unwrap();
    let links: Vec<String> = delivery
        .links
        .links
        .iter()
        .map(|link| link.span_context.trace_id().to_string())
        .collect();
    assert_eq!(links, ["0af7651916cd43dd8448eb211c80319c"]);
    assert_eq!(delivery.span_kind, opentelemetry::trace::SpanKind::Consumer);
    assert_eq!(call.parent_span_id, delivery.span_context.span_id());
    let carried = parse_traceparent(&carried.unwrap()).unwrap();
    assert_eq!(
        (carried.trace_id(), carried.span_id()),
        (
            delivery.span_context.trace_id(),
            delivery.span_context.span_id()
        )
    );
}

#[test]
fn a_span_may_be_the_child_of_a_remote_one() {
    let spans = spans_of(|| {
        let sent = tracing::info_span!(target: "tidegate_ingress", "send");
        set_parent(&sent, PARENT);
        sent.in_scope(|| ());
    });
    assert_eq!(
        spans[0].span_context.trace_id().to_string(),
        "0af7651916cd43dd8448eb211c80319c"
    );
    assert_eq!(spans[0].parent_span_id.to_string(), "b7ad6b7169203331");
}

#[test]
fn only_the_products_own_spans_are_exported() {
    let spans = spans_of(|| {
        tracing::info_span!(target: "hyper", "other").in_scope(|| ());
        tracing::debug_span!(target: "tidegate_worker", "detail").in_scope(|| ());
    });
    assert!(spans.is_empty(), "{spans:?}");
}

#[test]
fn a_span_that_nobody_records_has_no_traceparent() {
    tracing::subscriber::with_default(tracing_subscriber::registry(), || {
        let quiet = tracing::info_span!(target: "tidegate_worker", "process");
        link_span(&quiet, PARENT);
        set_parent(&quiet, PARENT);
        assert_eq!(current_traceparent(&quiet), None);
    });
}

#[test]
fn a_traceparent_is_read_by_the_letter_and_anything_else_is_none() {
    let context = parse_traceparent(PARENT).unwrap();
    assert!(context.is_sampled() && context.is_remote());
    assert!(
        !parse_traceparent(&PARENT.replace("-01", "-00"))
            .unwrap()
            .is_sampled()
    );
    assert_eq!(
        parse_traceparent(&format!(" {PARENT}\t")),
        Some(context.clone())
    );
    assert_eq!(
        parse_traceparent(&PARENT.replacen("00", "01", 1)),
        Some(context.clone())
    );
    assert_eq!(
        parse_traceparent(&format!("{}-more", PARENT.replacen("00", "01", 1))),
        Some(context)
    );
    for bad in [
        "",
        "00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-+1",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
        "ééééééééééééééééééééééééééééééééééééééééé",
    ] {
        assert_eq!(parse_traceparent(bad), None, "{bad}");
    }
    assert_eq!(
        parse_traceparent(&format!("01{}-{}", &PARENT[2..], "x".repeat(300))),
        None
    );
}

#[test]
fn traces_are_wanted_when_the_standard_variables_name_a_collector() {
    let wanted = |pairs: &[(&str, &str)]| {
        traces_wanted(|name| {
            pairs
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    };
    assert!(!wanted(&[]));
    assert!(!wanted(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]));
    assert!(wanted(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")]));
    assert!(wanted(&[(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "http://c:4318/v1/traces"
    )]));
    assert!(!wanted(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
        ("OTEL_SDK_DISABLED", "true")
    ]));
    assert!(!wanted(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
        ("OTEL_TRACES_EXPORTER", "none")
    ]));
}

/// One HTTP request, head and body, answered with an empty 200.
fn serve_one(listener: &TcpListener) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..count]);
        let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&seen[..end]).to_lowercase();
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .unwrap()
            .parse()
            .unwrap();
        if seen.len() >= end + 4 + length {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .unwrap();
            return (head, seen.split_off(end + 4));
        }
    }
}

#[tokio::test]
async fn spans_reach_a_collector_as_protobuf_over_http_from_inside_a_runtime() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let collector = std::thread::spawn(move || serve_one(&listener));
    let provider = provider("worker", Some(&endpoint)).unwrap();
    let subscriber = tracing_subscriber::registry().with(traces_layer(&provider));
    tracing::subscriber::with_default(subscriber, || {
        tracing::info_span!(target: "tidegate_worker", "process", otel.name = span::process("gpu"))
            .in_scope(|| ());
    });
    let _ = provider.tracer("kept until the end");
    tokio::task::spawn_blocking(move || provider.shutdown())
        .await
        .unwrap()
        .unwrap();
    let (head, body) = collector.join().unwrap();
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    let text = String::from_utf8_lossy(&body);
    assert!(
        text.contains("tidegate-worker") && text.contains("process jobs.gpu"),
        "{text}"
    );
}
