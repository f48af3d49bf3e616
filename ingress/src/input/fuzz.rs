//! What clients send, damaged: nothing panics, and what is accepted is what the rest of the system may rely on.

#![allow(clippy::unwrap_used)]

use axum::http::{HeaderMap, HeaderValue};
use serde_json::Value;

use self::mutate::fuzz;
use super::{headers, query, submission};

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

const DEPTH: u32 = 64;

#[test]
fn damaged_submissions_are_refused_or_whole() {
    fuzz("submission", |input| {
        let Ok(accepted) = submission::judge(input, DEPTH) else {
            return;
        };
        let body: Value = serde_json::from_slice(&accepted.body).expect("the model gets JSON");
        assert!(body.is_object(), "{body}");
        assert_eq!(body["model"], accepted.model.as_str());
        assert!(accepted.priority <= 9);
        assert!(accepted.max_attempts.is_none_or(|n| (1..=100).contains(&n)));
        let metadata = &accepted.metadata;
        assert!(
            metadata.is_empty() || serde_json::from_str::<Value>(metadata).unwrap().is_object()
        );
        // The same bytes are judged the same, and are the same to an idempotency key.
        assert_eq!(submission::judge(input, DEPTH), Ok(accepted));
    });
}

#[test]
fn damaged_cursors_and_queries_are_refused_or_read() {
    fuzz("event_id", |input| {
        if let Ok(text) = std::str::from_utf8(input) {
            if let Some((fence, n)) = headers::event_id(text) {
                assert!(fence < 1 << 53 && n < 1 << 53, "{text}");
            }
            let read = query::Query::read(Some(text), &["after", "limit", "status"]);
            if let Ok(Some(limit)) = read.and_then(|query| query.integer("limit", 1, 100)) {
                assert!((1..=100).contains(&limit));
            }
        }
        if let Ok(value) = HeaderValue::from_bytes(input) {
            let mut all = HeaderMap::new();
            for name in [
                "last-event-id",
                "idempotency-key",
                "prefer",
                "content-type",
                "content-encoding",
            ] {
                all.insert(name, value.clone());
            }
            let _ = headers::last_event_id(&all);
            let _ = headers::is_json(&all);
            let _ = headers::encoding(&all);
            let key = headers::idempotency_key(&all);
            assert!(
                key.is_err()
                    || key.is_ok_and(
                        |key| key.is_none_or(|key| (1..=255).contains(&key.chars().count()))
                    )
            );
            assert!(headers::prefer_wait_s(&all).is_none_or(|wait| wait <= 60));
        }
    });
}
