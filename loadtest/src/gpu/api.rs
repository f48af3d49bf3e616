//! The requests served, read from their JSON. Loose about fields it does not use, strict about those it does.

use serde_json::Value;

use super::text::input_tokens;

/// Most choices of one call (prompts times `n`); OpenAI's bound for `n` alone is 128.
const CHOICES_MAX: usize = 1_024;
/// Most inputs of one embeddings call, OpenAI's bound.
const INPUTS_MAX: usize = 2_048;
/// Dimensions of an embedding when the call asks for none.
const DIMENSIONS: u64 = 64;
/// Most dimensions a call may ask for.
const DIMENSIONS_MAX: u64 = 4_096;
/// Input tokens of a message around its text, and of a part that is not text.
const MESSAGE_TOKENS: u64 = 4;
const PART_TOKENS: u64 = 256;

/// Which model route was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Completion,
    Embedding,
}

/// What a call asks for.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) kind: Kind,
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// Answers per prompt.
    pub(super) n: usize,
    pub(super) max_output_tokens: Option<u64>,
    /// What the seeded text depends on: one whole conversation, or each prompt or input.
    pub(super) prompts: Vec<String>,
    pub(super) input_tokens: u64,
    /// Where a script may stand: the last user message, or all prompts or inputs.
    pub(super) spoken: String,
    pub(super) dimensions: usize,
    pub(super) base64: bool,
}

/// A request that cannot be served, with the field at fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) message: String,
    pub(super) param: Option<&'static str>,
}

fn bad<T>(param: &'static str, right: &str) -> Result<T, Bad> {
    Err(Bad {
        message: format!("`{param}` must be {right}"),
        param: Some(param),
    })
}

/// Reads a request body.
pub(super) fn parse(kind: Kind, body: &[u8]) -> Result<Work, Bad> {
    let root: Value = serde_json::from_slice(body).map_err(|e| Bad {
        message: format!("body is not JSON: {e}"),
        param: None,
    })?;
    if !root.is_object() {
        return Err(Bad {
            message: "body is not a JSON object".into(),
            param: None,
        });
    }
    let Some(model) = root["model"].as_str() else {
        return bad("model", "a string");
    };
    let asked = match kind {
        Kind::Chat => conversation(&root["messages"])?,
        Kind::Completion => texts("prompt", &root["prompt"])?,
        Kind::Embedding => texts("input", &root["input"])?,
    };
    if kind == Kind::Embedding && asked.prompts.len() > INPUTS_MAX {
        return bad("input", &format!("at most {INPUTS_MAX} inputs"));
    }
    let n = usize::try_from(number("n", &root["n"], 1, 128)?.unwrap_or(1)).unwrap_or(1);
    if kind != Kind::Embedding && asked.prompts.len() * n > CHOICES_MAX {
        return bad(
            "n",
            &format!("small enough for {CHOICES_MAX} choices in all"),
        );
    }
    let newer = number(
        "max_completion_tokens",
        &root["max_completion_tokens"],
        1,
        u64::MAX,
    )?;
    let older = number("max_tokens", &root["max_tokens"], 1, u64::MAX)?;
    let dimensions =
        number("dimensions", &root["dimensions"], 1, DIMENSIONS_MAX)?.unwrap_or(DIMENSIONS);
    let format = &root["encoding_format"];
    if !format.is_null() && format != "float" && format != "base64" {
        return bad("encoding_format", "float or base64");
    }
    Ok(Work {
        kind,
        model: model.to_owned(),
        stream: kind != Kind::Embedding && boolean("stream", &root["stream"])?,
        include_usage: boolean("stream_options", &root["stream_options"]["include_usage"])?,
        n,
        max_output_tokens: newer.or(older),
        prompts: asked.prompts,
        input_tokens: asked.input_tokens,
        spoken: asked.spoken,
        dimensions: usize::try_from(dimensions).unwrap_or(usize::MAX),
        base64: format == "base64",
    })
}

fn boolean(param: &'static str, value: &Value) -> Result<bool, Bad> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(b) => Ok(*b),
        _ => bad(param, "true or false"),
    }
}

fn number(param: &'static str, value: &Value, least: u64, most: u64) -> Result<Option<u64>, Bad> {
    match value.as_u64() {
        _ if value.is_null() => Ok(None),
        Some(n) if n >= least && n <= most => Ok(Some(n)),
        _ => bad(param, &format!("a whole number from {least} to {most}")),
    }
}

struct Asked {
    prompts: Vec<String>,
    input_tokens: u64,
    spoken: String,
}

fn conversation(messages: &Value) -> Result<Asked, Bad> {
    let Some(messages) = messages.as_array().filter(|m| !m.is_empty()) else {
        return bad("messages", "a list of at least one message");
    };
    let mut asked = Asked {
        prompts: Vec::new(),
        input_tokens: 0,
        spoken: String::new(),
    };
    let mut whole = String::new();
    for message in messages {
        let Some(role) = message["role"].as_str() else {
            return bad("messages", "messages with a `role`");
        };
        let (text, other_parts) = content(&message["content"])?;
        whole.push_str(role);
        whole.push('\n');
        whole.push_str(&text);
        whole.push('\n');
        asked.input_tokens += MESSAGE_TOKENS + input_tokens(&text) + other_parts * PART_TOKENS;
        if role == "user" {
            asked.spoken = text;
        }
    }
    asked.prompts.push(whole);
    Ok(asked)
}

/// A message's text, and how many of its parts are something else.
fn content(content: &Value) -> Result<(String, u64), Bad> {
    match content {
        Value::Null => Ok((String::new(), 0)),
        Value::String(text) => Ok((text.clone(), 0)),
        Value::Array(parts) if !parts.is_empty() => {
            let text: Vec<&str> = parts.iter().filter_map(|p| p["text"].as_str()).collect();
            Ok((text.join("\n"), (parts.len() - text.len()) as u64))
        }
        _ => bad(
            "messages",
            "messages whose `content` is a string, null or a list of parts",
        ),
    }
}

fn texts(param: &'static str, value: &Value) -> Result<Asked, Bad> {
    let right = "a string, a list of strings, a list of numbers, or a list of those lists";
    let prompts: Option<Vec<(String, u64)>> = match value {
        Value::Array(items) if items.iter().all(Value::is_u64) => {
            Some(numbers(value).into_iter().collect())
        }
        Value::Array(items) => items
            .iter()
            .map(|item| one_text(item).or_else(|| numbers(item)))
            .collect(),
        other => one_text(other).map(|text| vec![text]),
    };
    let Some(prompts) = prompts.filter(|p| !p.is_empty()) else {
        return bad(param, right);
    };
    let spoken: Vec<&str> = prompts.iter().map(|(text, _)| text.as_str()).collect();
    let spoken = spoken.join("\n");
    let input_tokens = prompts.iter().map(|(_, count)| count).sum();
    Ok(Asked {
        prompts: prompts.into_iter().map(|(text, _)| text).collect(),
        input_tokens,
        spoken,
    })
}

fn one_text(value: &Value) -> Option<(String, u64)> {
    let text = value.as_str().filter(|t| !t.is_empty())?;
    Some((text.to_owned(), input_tokens(text)))
}

/// A prompt that comes already encoded, one number per input token.
fn numbers(value: &Value) -> Option<(String, u64)> {
    let numbers = value.as_array().filter(|n| !n.is_empty())?;
    let words: Option<Vec<String>> = numbers
        .iter()
        .map(|n| n.as_u64().map(|n| n.to_string()))
        .collect();
    words.map(|w| (w.join(" "), w.len() as u64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn legal_shapes_are_read() {
        let body = br#"{"model":"m","max_tokens":null,"stop":null,"tools":null,"unknown":1,"messages":[
            {"role":"developer","content":"be kind"},
            {"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"x"}}]},
            {"role":"assistant","content":null,"tool_calls":[]}]}"#;
        let work = parse(Kind::Chat, body).unwrap();
        assert_eq!(
            (work.spoken.as_str(), work.max_output_tokens, work.n),
            ("what", None, 1)
        );
        assert!(work.input_tokens > PART_TOKENS);
        let work = parse(
            Kind::Completion,
            br#"{"model":"m","prompt":["a","b"],"n":3}"#,
        )
        .unwrap();
        assert_eq!(work.prompts, ["a", "b"]);
        let work = parse(Kind::Embedding, br#"{"model":"m","input":[[1,2],[3]]}"#).unwrap();
        assert_eq!((work.prompts.len(), work.input_tokens), (2, 3));
        let work = parse(Kind::Embedding, br#"{"model":"m","input":[1,2]}"#).unwrap();
        assert_eq!((work.prompts.len(), work.input_tokens), (1, 2));
    }

    #[test]
    fn wrong_values_are_refused_with_the_field_named() {
        for (kind, body, param) in [
            (
                Kind::Chat,
                r#"{"messages":[{"role":"user","content":"x"}]}"#,
                Some("model"),
            ),
            (
                Kind::Chat,
                r#"{"model":"m","messages":[]}"#,
                Some("messages"),
            ),
            (
                Kind::Chat,
                r#"{"model":"m","messages":[{"role":"user","content":[]}]}"#,
                Some("messages"),
            ),
            (
                Kind::Completion,
                r#"{"model":"m","prompt":""}"#,
                Some("prompt"),
            ),
            (
                Kind::Completion,
                r#"{"model":"m","prompt":"x","max_tokens":0}"#,
                Some("max_tokens"),
            ),
            (
                Kind::Completion,
                r#"{"model":"m","prompt":"x","max_tokens":1.5}"#,
                Some("max_tokens"),
            ),
            (
                Kind::Completion,
                r#"{"model":"m","prompt":"x","n":10000}"#,
                Some("n"),
            ),
            (
                Kind::Completion,
                r#"{"model":"m","prompt":"x","stream":"yes"}"#,
                Some("stream"),
            ),
            (
                Kind::Embedding,
                r#"{"model":"m","input":[]}"#,
                Some("input"),
            ),
            (
                Kind::Embedding,
                r#"{"model":"m","input":"x","encoding_format":"hex"}"#,
                Some("encoding_format"),
            ),
            (Kind::Chat, "[]", None),
            (Kind::Chat, "{", None),
        ] {
            assert_eq!(
                parse(kind, body.as_bytes()).unwrap_err().param,
                param,
                "{body}"
            );
        }
    }
}
