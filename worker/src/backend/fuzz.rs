//! What a model server says, damaged: nothing panics, and what is believed is whole, bounded and JSON.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;

use self::mutate::fuzz;
use super::assemble::Assembler;
use super::sse::{Event, EventTooLarge, Parser};
use super::types::Endpoint;
use super::usage::{self, Seen};
use super::{plain, retry_after};

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

const MAX_BYTES: usize = 64 * 1024;

/// What is handed on is JSON by its grammar (RFC 8259 §7 allows half a surrogate pair as an escape, which our parser
/// reads as no text, and the model's own bytes are not changed). Gives it read, where it can be.
fn json(bytes: &[u8]) -> Option<Value> {
    let raw: &RawValue = serde_json::from_slice(bytes).expect("it is JSON");
    assert!(raw.get().starts_with('{'), "{raw}");
    let read = serde_json::from_slice(bytes).ok();
    assert!(
        read.is_some() || raw.get().contains("\\u") || raw.get().contains(['e', 'E']),
        "{raw}"
    );
    read
}

/// All events of `pieces`, or that one grew too large.
fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Event>, EventTooLarge> {
    let mut parser = Parser::new(MAX_BYTES);
    let mut all = Vec::new();
    for piece in pieces {
        all.extend(parser.push(piece)?);
    }
    Ok(all)
}

#[test]
fn damaged_streams_end_in_an_answer_that_is_json_or_in_none() {
    fuzz("stream", |input| {
        let whole = events(std::iter::once(input));
        assert_eq!(
            events(input.chunks(7)),
            whole,
            "cut elsewhere it reads otherwise"
        );
        let Ok(whole) = whole else { return };
        for endpoint in [Endpoint::ChatCompletions, Endpoint::Completions] {
            let mut answer = Assembler::new(endpoint, 1, MAX_BYTES);
            for event in &whole {
                if event.data == b"[DONE]" {
                    answer.note_done();
                } else if event.named_error || answer.add(&event.data).is_err() {
                    break;
                }
            }
            let body = json(&answer.body());
            if let (true, Some(body)) = (answer.is_whole(), body) {
                assert!(!body["choices"].as_array().unwrap().is_empty(), "{body}");
            }
            assert!(!answer.missing().is_empty());
            let _ = answer.finish_reasons();
        }
    });
}

#[test]
fn damaged_bodies_are_answers_or_refused() {
    fuzz("plain", |input| {
        for endpoint in [
            Endpoint::ChatCompletions,
            Endpoint::Completions,
            Endpoint::Embeddings,
        ] {
            if let Ok(answer) = plain::judge(endpoint, Bytes::copy_from_slice(input)) {
                json(&answer.body);
            }
        }
    });
}

#[test]
fn damaged_usage_is_never_believed_beyond_what_can_be() {
    const MOST: u64 = 1_000_000_000;
    fuzz("usage", |input| {
        let raw = std::str::from_utf8(input)
            .ok()
            .and_then(|text| RawValue::from_string(text.to_owned()).ok());
        let seen = Seen {
            request_bytes: 400,
            output_tokens: 7,
        };
        for endpoint in [Endpoint::ChatCompletions, Endpoint::Embeddings] {
            let reported = usage::read(raw.as_deref());
            let (settled, _) = usage::settle(endpoint, reported, seen);
            assert!(
                settled.input_tokens <= MOST && settled.output_tokens <= MOST,
                "{settled:?}"
            );
            assert!(settled.total_tokens >= settled.input_tokens + settled.output_tokens);
            if endpoint == Endpoint::ChatCompletions {
                assert!(settled.output_tokens > 0, "work for free: {settled:?}");
            }
        }
    });
}

#[test]
fn damaged_dates_are_dates_or_nothing() {
    fuzz("retry_after", |input| {
        if let Ok(text) = std::str::from_utf8(input) {
            let _ = retry_after::parse_http_date(text);
        }
        let Ok(value) = HeaderValue::from_bytes(input) else {
            return;
        };
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", value);
        let now = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
        let _ = retry_after::parse_retry_after(&headers, now);
    });
}
