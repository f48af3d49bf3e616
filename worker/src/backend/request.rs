//! What goes out to the model server: the caller's body, with streaming switched on where the request allows it.
//!
//! Only two top-level members are touched, `stream` and `stream_options`; every other value is copied as its own text.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::raw::{self, RawObject};
use super::types::Endpoint;

/// A body ready to be sent, and what the answer to it must look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// The bytes to send.
    pub(super) body: Bytes,
    /// Whether a stream was asked for.
    pub(super) streamed: bool,
    /// Whether the caller itself asked for the usage chunk; it is kept from listeners otherwise.
    pub(super) caller_wants_usage: bool,
    /// How many choices a whole answer has.
    pub(super) expected_choices: u64,
}

/// Prepares a body. What cannot stream (embeddings, `best_of` over 1, beam search), or is no JSON object at all, goes
/// out byte for byte; the server is the judge of it.
pub(super) fn prepare(endpoint: Endpoint, body: &[u8]) -> Outgoing {
    let object = RawObject::parse(body).ok();
    let expected_choices = object
        .as_ref()
        .map_or(1, |object| expected_choices(endpoint, object));
    match object {
        Some(object) if can_stream(endpoint, &object) => Outgoing {
            body: streaming_body(&object, body.len()).into(),
            streamed: true,
            caller_wants_usage: wants_usage(&object),
            expected_choices,
        },
        _ => Outgoing {
            body: Bytes::copy_from_slice(body),
            streamed: false,
            caller_wants_usage: true,
            expected_choices,
        },
    }
}

fn can_stream(endpoint: Endpoint, object: &RawObject<'_>) -> bool {
    // Both choose among whole answers, so there is nothing to send before the end.
    let best_of = object
        .get("best_of")
        .and_then(|value| value.get().parse::<f64>().ok())
        .unwrap_or(1.0);
    let beam_search = object
        .get("use_beam_search")
        .is_some_and(|value| value.get() == "true");
    endpoint != Endpoint::Embeddings && best_of <= 1.0 && !beam_search
}

/// `n` (1 where absent) for each prompt; a text completion takes several prompts at once.
fn expected_choices(endpoint: Endpoint, object: &RawObject<'_>) -> u64 {
    let n = object
        .get("n")
        .and_then(raw::whole_number)
        .unwrap_or(1)
        .max(1);
    n.saturating_mul(if endpoint == Endpoint::Completions {
        prompts(object)
    } else {
        1
    })
}

fn prompts(object: &RawObject<'_>) -> u64 {
    let Some(items) = object.get("prompt").and_then(raw::items) else {
        return 1;
    };
    // A list of numbers is one prompt, already cut into its parts.
    let several = items
        .first()
        .is_some_and(|first| first.get().starts_with(['"', '[']));
    if several { items.len() as u64 } else { 1 }
}

fn wants_usage(object: &RawObject<'_>) -> bool {
    object
        .get("stream_options")
        .and_then(RawObject::of)
        .and_then(|options| options.get("include_usage"))
        .is_some_and(|value| value.get() == "true")
}

/// The object with `stream: true` and `stream_options.include_usage: true`, each in the place it had, else at the end.
fn streaming_body(object: &RawObject<'_>, len_hint: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len_hint + 64);
    let options = stream_options(object.get("stream_options"));
    let (mut wrote_stream, mut wrote_options) = (false, false);
    out.push(b'{');
    for (key, value) in object.iter() {
        let text = match key {
            "stream" if std::mem::replace(&mut wrote_stream, true) => continue,
            "stream_options" if std::mem::replace(&mut wrote_options, true) => continue,
            "stream" => "true",
            "stream_options" => options.as_str(),
            _ => value.get(),
        };
        write_member(&mut out, key, text);
    }
    if !wrote_stream {
        write_member(&mut out, "stream", "true");
    }
    if !wrote_options {
        write_member(&mut out, "stream_options", &options);
    }
    out.push(b'}');
    out
}

/// The caller's options with usage switched on. What is neither an object nor null is left for the server to refuse.
fn stream_options(given: Option<&RawValue>) -> String {
    const OURS: &str = r#"{"include_usage":true}"#;
    let Some(given) = given.filter(|value| !raw::is_null(value)) else {
        return OURS.to_owned();
    };
    let Some(options) = RawObject::of(given) else {
        return given.get().to_owned();
    };
    let mut out = vec![b'{'];
    for (key, value) in options.iter().filter(|(key, _)| *key != "include_usage") {
        write_member(&mut out, key, value.get());
    }
    write_member(&mut out, "include_usage", "true");
    out.push(b'}');
    String::from_utf8(out).expect("written from texts")
}

fn write_member(out: &mut Vec<u8>, key: &str, value: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    raw::write_key(out, key);
    out.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &str) -> Outgoing {
        prepare(Endpoint::ChatCompletions, body.as_bytes())
    }

    fn text(outgoing: &Outgoing) -> &str {
        std::str::from_utf8(&outgoing.body).expect("text")
    }

    #[test]
    fn every_other_value_goes_out_as_it_came() {
        let body = r#"{ "model":"m", "seed":18446744073709551616, "temperature":1e-400,"x":{"a":[1.50, -0, 1E+2 ] },"top_p":0.10000000000000001 }"#;
        assert_eq!(
            text(&chat(body)),
            r#"{"model":"m","seed":18446744073709551616,"temperature":1e-400,"x":{"a":[1.50, -0, 1E+2 ] },"top_p":0.10000000000000001,"stream":true,"stream_options":{"include_usage":true}}"#
        );
    }

    #[test]
    fn streaming_members_are_replaced_in_place() {
        let out = chat(
            r#"{"stream":false,"a":1,"stream_options":{"include_usage":false,"chunk_size":3}}"#,
        );
        assert_eq!(
            text(&out),
            r#"{"stream":true,"a":1,"stream_options":{"chunk_size":3,"include_usage":true}}"#
        );
        assert!(!out.caller_wants_usage);
        assert!(chat(r#"{"stream_options":{"include_usage":true}}"#).caller_wants_usage);
        assert_eq!(
            text(&chat(r#"{"stream_options":null}"#)),
            r#"{"stream_options":{"include_usage":true},"stream":true}"#
        );
        assert_eq!(
            text(&chat(r#"{"stream_options":7}"#)),
            r#"{"stream_options":7,"stream":true}"#
        );
        assert_eq!(
            text(&chat("{}")),
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#
        );
    }

    #[test]
    fn what_cannot_stream_goes_out_byte_for_byte() {
        let body = r#"{ "model":"m" ,"input":"x"}"#;
        let out = prepare(Endpoint::Embeddings, body.as_bytes());
        assert_eq!((text(&out), out.streamed), (body, false));
        for body in [
            r#"{"best_of": 2}"#,
            r#"{"best_of":1e1}"#,
            r#"{"use_beam_search": true}"#,
            "[1]",
            "no json",
        ] {
            let out = prepare(Endpoint::Completions, body.as_bytes());
            assert_eq!((text(&out), out.streamed), (body, false));
        }
        for body in [
            r#"{"best_of":1}"#,
            r#"{"best_of":null}"#,
            r#"{"use_beam_search":false}"#,
        ] {
            assert!(
                prepare(Endpoint::Completions, body.as_bytes()).streamed,
                "{body}"
            );
        }
    }

    #[test]
    fn choices_are_counted_from_n_and_the_prompts() {
        assert_eq!(chat("{}").expected_choices, 1);
        assert_eq!(chat(r#"{"n":3}"#).expected_choices, 3);
        assert_eq!(chat(r#"{"n":null}"#).expected_choices, 1);
        let completions =
            |body: &str| prepare(Endpoint::Completions, body.as_bytes()).expected_choices;
        assert_eq!(completions(r#"{"prompt":"x"}"#), 1);
        assert_eq!(completions(r#"{"prompt":["a","b"],"n":2}"#), 4);
        assert_eq!(completions(r#"{"prompt":[1,2,3]}"#), 1);
        assert_eq!(completions(r#"{"prompt":[[1],[2],[3]]}"#), 3);
    }
}
