//! What a model server said when it said no: read from whatever shape it came in, bounded and escaped.

use serde_json::Value;

/// Longest message kept, in characters; long enough for a stack of validation errors, short enough for a table.
pub const MAX_MESSAGE_CHARS: usize = 1_000;
/// Longest code, type or parameter name kept, in characters.
pub const MAX_WORD_CHARS: usize = 100;

/// A server's error, member by member. Every text is bounded and has its control characters escaped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamDetail {
    /// HTTP status; for an error inside a stream, the status its `code` names, if it does.
    pub status: Option<u16>,
    /// `error.code`; a number is kept as its digits.
    pub code: Option<String>,
    /// `error.message`, or the best other text found.
    pub message: String,
    /// `error.type`
    pub kind: Option<String>,
    /// `error.param`
    pub param: Option<String>,
}

impl UpstreamDetail {
    /// One sentence with status, code and message.
    pub fn sentence(&self) -> String {
        let mut text = "the model server answered".to_owned();
        match self.status {
            Some(status) => text.push_str(&format!(" {status}")),
            None => text.push_str(" with an error"),
        }
        if let Some(code) = &self.code {
            text.push_str(&format!(" ({code})"));
        }
        if !self.message.is_empty() {
            text.push_str(": ");
            text.push_str(&self.message);
        }
        bounded(&text, MAX_MESSAGE_CHARS)
    }
}

/// Reads an error body: OpenAI's `{"error":{…}}`, `{"error":"…"}`, bare `{"message":…}`, FastAPI's `{"detail":…}`,
/// HTML (its title) or plain text. Total: anything gives a detail.
pub fn read_error(status: Option<u16>, body: &[u8]) -> UpstreamDetail {
    let detail = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(members)) => {
            let members = Value::Object(members);
            match &members["error"] {
                error @ Value::Object(_) => from_members(error),
                Value::String(text) => UpstreamDetail {
                    // One server names its type beside a bare text.
                    kind: word(&members["error_type"]),
                    message: tidy(text, MAX_MESSAGE_CHARS),
                    ..from_members(&members)
                },
                _ => from_members(&members),
            }
        }
        Ok(Value::String(text)) => message_only(&text),
        _ => message_only(&readable(body)),
    };
    UpstreamDetail { status, ..detail }
}

/// The status that an error inside a stream names as its code, if that is an error status.
pub(super) fn named_status(detail: &UpstreamDetail) -> Option<u16> {
    detail
        .code
        .as_deref()
        .and_then(|code| code.parse().ok())
        .filter(|status| (400..=599).contains(status))
}

fn message_only(text: &str) -> UpstreamDetail {
    UpstreamDetail {
        message: tidy(text.trim(), MAX_MESSAGE_CHARS),
        ..UpstreamDetail::default()
    }
}

fn from_members(error: &Value) -> UpstreamDetail {
    let (message, detail_param) = match (&error["message"], &error["detail"]) {
        (Value::String(text), _) => (text.clone(), None),
        (_, Value::Null) => (String::new(), None),
        (_, detail) => from_detail(detail),
    };
    UpstreamDetail {
        status: None,
        code: word(&error["code"]),
        message: tidy(&message, MAX_MESSAGE_CHARS),
        kind: word(&error["type"]),
        param: word(&error["param"]).or(detail_param),
    }
}

/// FastAPI's `detail`: a text, or a list of `{loc, msg, type}`.
fn from_detail(detail: &Value) -> (String, Option<String>) {
    let Value::Array(items) = detail else {
        return (
            detail
                .as_str()
                .map_or_else(|| detail.to_string(), str::to_owned),
            None,
        );
    };
    let messages: Vec<String> = items
        .iter()
        .map(|item| {
            item["msg"]
                .as_str()
                .map_or_else(|| item.to_string(), str::to_owned)
        })
        .collect();
    let param = items
        .first()
        .and_then(|item| item["loc"].as_array())
        .map(|path| {
            let steps: Vec<String> = path
                .iter()
                .map(|step| {
                    step.as_str()
                        .map_or_else(|| step.to_string(), str::to_owned)
                })
                .collect();
            tidy(&steps.join("."), MAX_WORD_CHARS)
        });
    (messages.join("; "), param)
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(tidy(text, MAX_WORD_CHARS)),
        Value::Number(number) => Some(tidy(&number.to_string(), MAX_WORD_CHARS)),
        _ => None,
    }
}

/// Text of a body that is no JSON: an HTML page's title, else the text itself.
fn readable(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();
    if !text.starts_with('<') {
        return text.to_owned();
    }
    // Only ASCII letters change case, so positions in the copy hold in the text.
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|start| {
        let start = start + "<title>".len();
        let end = lower[start..].find("</title>")? + start;
        Some(text[start..end].trim().to_owned())
    });
    title.unwrap_or_else(|| "an HTML page".to_owned())
}

/// Bounds a text to `max_chars` and escapes what could act on a terminal or a log: control characters, line separators
/// and the marks that turn the direction of writing.
pub(super) fn tidy(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    // One character becomes at most ten (`\u{10ffff}`), so the escaped text is cut again below.
    for character in text.chars().take(max_chars + 1) {
        match character {
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(character.escape_unicode());
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    bounded(&out, max_chars)
}

fn bounded(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> UpstreamDetail {
        read_error(Some(400), body.as_bytes())
    }

    #[test]
    fn openai_errors_keep_every_member() {
        let detail = read(
            r#"{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        );
        assert_eq!(detail.status, Some(400));
        assert_eq!(detail.code.as_deref(), Some("context_length_exceeded"));
        assert_eq!(detail.kind.as_deref(), Some("invalid_request_error"));
        assert_eq!(detail.param.as_deref(), Some("messages"));
        assert_eq!(detail.message, "too long");
        assert_eq!(
            detail.sentence(),
            "the model server answered 400 (context_length_exceeded): too long"
        );
    }

    #[test]
    fn a_numeric_code_is_kept_as_digits() {
        let detail =
            read(r#"{"error":{"message":"m","type":"BadRequestError","param":null,"code":400}}"#);
        assert_eq!(detail.code.as_deref(), Some("400"));
        assert_eq!(named_status(&detail), Some(400));
        assert_eq!(detail.param, None);
    }

    #[test]
    fn other_shapes_are_understood() {
        assert_eq!(read(r#"{"error":"no slot"}"#).message, "no slot");
        let tgi = read(r#"{"error":"bad","error_type":"validation"}"#);
        assert_eq!(
            (tgi.message.as_str(), tgi.kind.as_deref()),
            ("bad", Some("validation"))
        );
        assert_eq!(
            read(r#"{"object":"error","message":"gone","code":404}"#).message,
            "gone"
        );
        assert_eq!(read(r#"{"detail":"Not Found"}"#).message, "Not Found");
        let list = read(
            r#"{"detail":[{"loc":["body","n"],"msg":"must be > 0","type":"x"},{"loc":[],"msg":"also"}]}"#,
        );
        assert_eq!(
            (list.message.as_str(), list.param.as_deref()),
            ("must be > 0; also", Some("body.n"))
        );
        assert_eq!(
            read("  upstream connect error\n").message,
            "upstream connect error"
        );
        assert_eq!(
            read("<html><head><TITLE>502 Bad Gateway</TITLE></head></html>").message,
            "502 Bad Gateway"
        );
        assert_eq!(read("<html><body>x").message, "an HTML page");
        assert_eq!(read("").message, "");
        assert_eq!(read("[1,2]").message, "[1,2]");
        assert_eq!(read("\"plain\"").message, "plain");
        assert_eq!(read(r#"{"error":null,"message":"m"}"#).message, "m");
    }

    #[test]
    fn texts_are_bounded_and_escaped() {
        let long = read_error(Some(500), "ä".repeat(5_000).as_bytes());
        assert_eq!(long.message.chars().count(), MAX_MESSAGE_CHARS);
        assert!(long.sentence().chars().count() <= MAX_MESSAGE_CHARS);
        assert_eq!(
            read("a\u{1b}[31mb\nc\u{202e}d").message,
            "a\\u{1b}[31mb\\nc\\u{202e}d"
        );
        let controls = read_error(None, "\u{1}".repeat(5_000).as_bytes());
        assert!(controls.message.chars().count() <= MAX_MESSAGE_CHARS);
        assert!(
            read(&format!(r#"{{"error":{{"code":"{}"}}}}"#, "c".repeat(500)))
                .code
                .is_some_and(|c| c.chars().count() == MAX_WORD_CHARS)
        );
    }

    #[test]
    fn bytes_that_are_no_text_do_no_harm() {
        assert!(
            read_error(Some(500), &[0xff, 0xfe, 0x00, 0x80])
                .message
                .contains("\\u{0}")
        );
    }
}
