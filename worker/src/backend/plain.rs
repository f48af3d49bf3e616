//! Judging a plain body: one complete JSON object that reports no error and holds what was asked for.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::raw::{self, RawObject};
use super::types::Endpoint;
use super::usage::{self, Reported};

/// A byte order mark in UTF-8.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// What is wrong with a plain body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BadBody {
    /// It ends before its object does.
    Incomplete,
    /// It is no JSON object; the text says why.
    Invalid(String),
    /// The object has nothing under this name, where an answer has its items.
    Without(&'static str),
    /// It reports an error under a status of success.
    Error,
}

/// What is read from a sound plain body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plain {
    /// The bytes without a byte order mark.
    pub(super) body: Bytes,
    pub(super) reported: Reported,
    pub(super) finish_reasons: Vec<String>,
    /// Output tokens estimated from the length of the text.
    pub(super) output_estimate: u64,
}

/// Judges the body of an answer.
pub(super) fn judge(endpoint: Endpoint, body: Bytes) -> Result<Plain, BadBody> {
    let body = if body.starts_with(BOM) {
        body.slice(BOM.len()..)
    } else {
        body
    };
    let object = RawObject::parse(&body).map_err(|error| {
        if error.is_eof() {
            BadBody::Incomplete
        } else {
            BadBody::Invalid(error.to_string())
        }
    })?;
    if object.get("error").is_some_and(raw::is_truthy) && object.get("choices").is_none() {
        return Err(BadBody::Error);
    }
    let answers = match endpoint {
        Endpoint::Embeddings => "data",
        Endpoint::ChatCompletions | Endpoint::Completions => "choices",
    };
    // A gateway's or a framework's own object, under a good status, is not an answer.
    let items = object.get(answers).and_then(raw::items);
    let items = items.filter(|items| !items.is_empty());
    let items = items.ok_or(BadBody::Without(answers))?;
    let reported = usage::read(object.get("usage"));
    let choices: Vec<RawObject<'_>> = items.into_iter().filter_map(RawObject::of).collect();
    let finish_reasons = choices
        .iter()
        .filter_map(|choice| serde_json::from_str(choice.get("finish_reason")?.get()).ok())
        .collect();
    let output_estimate = match endpoint {
        Endpoint::Embeddings => 0,
        _ => usage::tokens_of_bytes(choices.iter().map(text_bytes).sum()),
    };
    Ok(Plain {
        reported,
        finish_reasons,
        output_estimate,
        body: body.clone(),
    })
}

/// Bytes of what a choice says: the text of a completion, or its whole message.
fn text_bytes(choice: &RawObject<'_>) -> usize {
    let says = |value: Option<&RawValue>| {
        value
            .filter(|value| !raw::is_null(value))
            .map_or(0, |value| value.get().len())
    };
    match choice.get("message").and_then(RawObject::of) {
        Some(message) => message
            .iter()
            .filter(|(name, _)| *name != "role")
            .map(|(_, value)| says(Some(value)))
            .sum(),
        None => says(choice.get("text")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn judged(body: &'static str) -> Result<Plain, BadBody> {
        judge(
            Endpoint::ChatCompletions,
            Bytes::from_static(body.as_bytes()),
        )
    }

    #[test]
    fn a_sound_body_comes_out_byte_for_byte() {
        let text = "{ \"choices\": [{\"finish_reason\":\"stop\",\"message\":{\"role\":\"assistant\",\"content\":\"123456\"}}],\n \"usage\":{\"completion_tokens\":1e0,\"prompt_tokens\":2}}\n";
        let plain = judged(text).unwrap();
        assert_eq!(plain.body, text);
        assert_eq!(plain.finish_reasons, ["stop"]);
        assert_eq!(
            (
                plain.reported.input,
                plain.reported.output,
                plain.output_estimate
            ),
            (Some(2), Some(1), 2)
        );
    }

    #[test]
    fn a_byte_order_mark_is_removed() {
        assert_eq!(
            judged("\u{feff}{\"choices\":[{}]}").unwrap().body,
            "{\"choices\":[{}]}"
        );
    }

    #[test]
    fn a_body_that_ends_early_is_incomplete() {
        for body in ["", "{", "{\"choices\":[{\"mess", "{\"choices\":[]", " \n"] {
            assert_eq!(judged(body), Err(BadBody::Incomplete), "{body:?}");
        }
    }

    #[test]
    fn a_body_that_is_no_json_object_is_invalid() {
        for body in [
            "[]",
            "\"x\"",
            "<html>",
            "{\"logprob\":NaN}",
            "{\"logprob\":-Infinity}",
            "{}{}",
            "{\"a\":1}x",
        ] {
            assert!(matches!(judged(body), Err(BadBody::Invalid(_))), "{body}");
        }
    }

    #[test]
    fn an_error_under_a_good_status_is_an_error() {
        assert_eq!(judged(r#"{"error":{"message":"x"}}"#), Err(BadBody::Error));
        assert!(judged(r#"{"error":null,"choices":[{}]}"#).is_ok());
    }

    #[test]
    fn an_object_without_an_answer_is_none() {
        for body in [
            "{}",
            r#"{"detail":"Not Found"}"#,
            r#"{"choices":[]}"#,
            r#"{"choices":null}"#,
            r#"{"choices":"x"}"#,
            r#"{"data":[{"embedding":[1]}]}"#,
        ] {
            assert_eq!(judged(body), Err(BadBody::Without("choices")), "{body}");
            let body = Bytes::from_static(body.as_bytes());
            let embedded = judge(Endpoint::Embeddings, body.clone());
            assert_eq!(
                embedded.is_ok(),
                body.starts_with(b"{\"data\""),
                "{embedded:?}"
            );
        }
    }
}
