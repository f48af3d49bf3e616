//! A dead letter: the job, and what a person needs to decide about it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_shared::domain::{DeadReason, Envelope, Job};

use super::job::{JobBody, View, code};

#[derive(Serialize)]
struct RequestBody {
    endpoint: &'static str,
    body: Option<Box<RawValue>>,
    traceparent: Option<String>,
}

/// The job's members and those of its death.
#[derive(Serialize)]
pub(crate) struct DeadBody {
    #[serde(flatten)]
    job: JobBody,
    reason: Option<DeadReason>,
    signature: String,
    died_at_ms: Option<u64>,
    workers: BTreeSet<String>,
    request: Option<RequestBody>,
}

impl DeadBody {
    /// A dead letter as in lists: without its request.
    pub(crate) fn new(job: Job) -> Self {
        let workers = job
            .deliveries
            .iter()
            .map(|delivery| delivery.worker.clone())
            .collect();
        Self {
            reason: job.dead,
            signature: signature(&job),
            died_at_ms: job.finished_at_ms,
            workers,
            request: None,
            job: JobBody::new(&View::of(job)),
        }
    }

    /// With the request that died, in full.
    pub(crate) fn with(mut self, envelope: Option<Envelope>) -> Self {
        let Some(envelope) = envelope else {
            return self;
        };
        let raw = |text: Vec<u8>| serde_json::from_slice::<Box<RawValue>>(&text).ok();
        self.job = self.job.with(None, raw(envelope.metadata.into_bytes()));
        self.request = Some(RequestBody {
            endpoint: envelope.endpoint.path(),
            body: raw(envelope.body),
            traceparent: Some(envelope.traceparent).filter(|text| !text.is_empty()),
        });
        self
    }
}

/// What groups dead letters: reason, code and the model server's status. None of it is free text.
fn signature(job: &Job) -> String {
    let reason = job.dead.map_or("", DeadReason::as_str);
    let code = code(job).unwrap_or_default();
    match job.error.as_ref().and_then(|error| error.upstream_status) {
        Some(status) => format!("{reason}/{code}/{status}"),
        None => format!("{reason}/{code}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;
    use tidegate_shared::domain::Endpoint;

    use super::super::job::tests::job;
    use super::*;

    #[test]
    fn a_dead_letter_shows_its_reason_its_workers_and_its_request() {
        let error = r#"{"code":"upstream_error","message":"boom","upstream_status":500}"#;
        let dead = job(&[
            ("state", "failed"),
            ("dead", "attempts_exhausted"),
            ("error", error),
            ("ended_at", "9"),
            ("d1", "w_a 1 2 retry"),
            ("d2", "w_b 3 4 retry"),
            ("d3", "w_a 5 9 retry"),
        ]);
        let envelope = Envelope {
            endpoint: Endpoint::Completions,
            body: br#"{ "prompt": 1.50 }"#.to_vec(),
            metadata: r#"{"a":"b"}"#.into(),
            webhook_url: String::new(),
            traceparent: String::new(),
        };
        let text = serde_json::to_string(&DeadBody::new(dead).with(Some(envelope))).unwrap();
        assert!(text.contains(r#""body":{ "prompt": 1.50 }"#), "{text}");
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(body["reason"], "attempts_exhausted");
        assert_eq!(body["signature"], "attempts_exhausted/upstream_error/500");
        assert_eq!(body["died_at_ms"], 9);
        assert_eq!(body["workers"], serde_json::json!(["w_a", "w_b"]));
        assert_eq!(body["request"]["endpoint"], "/v1/completions");
        assert_eq!(
            (&body["dead"], &body["metadata"]["a"]),
            (&Value::Bool(true), &Value::from("b"))
        );
    }
}
