//! What a model request must and must not be, the same on every route that takes one.
//!
//! Refused is only what is surely out of its domain by the OpenAI API. Null counts as absent where the API allows null.
//! Unknown members, and everything not named here, pass through untouched.

use tidegate_shared::domain::Endpoint;

use super::fields::{EXACT, Fields, Kind, elements, integer, unquote};
use crate::error::{Code, Problem};

/// Longest name of a model, in characters; it is kept in the job's record.
pub(crate) const MAX_MODEL_CHARS: usize = 256;
/// Most choices of one request: each is a generation of its own. (OpenAI's bound.)
const MAX_CHOICES: i128 = 128;
/// Most alternatives reported per token. (OpenAI's bound.)
const MAX_TOP_LOGPROBS: i128 = 20;

/// Judges a model request at the path `at`, and returns the model it names, if any.
pub(crate) fn judge(endpoint: Endpoint, text: &str, at: &str) -> Result<Option<String>, Problem> {
    let body = Fields::read(text, at, "the model request")?;
    let model = body.text("model", MAX_MODEL_CHARS)?;
    match endpoint {
        Endpoint::ChatCompletions => messages(&body)?,
        Endpoint::Completions
            if body.raw("prompt_embeds").is_some() && body.raw("prompt").is_none() => {}
        Endpoint::Completions => prompt(&body, "prompt")?,
        Endpoint::Embeddings if body.raw("messages").is_some() && body.raw("input").is_none() => {
            messages(&body)?
        }
        Endpoint::Embeddings => prompt(&body, "input")?,
    }
    streaming(&body)?;
    if endpoint != Endpoint::Embeddings {
        sampling(endpoint, &body)?;
    }
    Ok(model)
}

fn streaming(body: &Fields<'_>) -> Result<(), Problem> {
    match body.get("stream") {
        None | Some(Kind::Bool(false)) => Ok(()),
        Some(Kind::Bool(true)) => Err(Problem::field(
            Code::UnsupportedParameter,
            body.path("stream"),
            "must not be true in a job; follow the job's `/events` instead",
        )),
        Some(other) => {
            Err(body.refuse("stream", format!("must be a boolean, not {}", other.name())))
        }
    }
}

fn sampling(endpoint: Endpoint, body: &Fields<'_>) -> Result<(), Problem> {
    for name in ["max_tokens", "max_completion_tokens"] {
        body.integer(name, 1, EXACT - 1)?;
    }
    for name in ["n", "best_of"] {
        body.integer(name, 1, MAX_CHOICES)?;
    }
    body.integer("top_logprobs", 0, MAX_TOP_LOGPROBS)?;
    if endpoint == Endpoint::Completions {
        body.integer("logprobs", 0, MAX_TOP_LOGPROBS)?;
    }
    body.integer("seed", i128::from(i64::MIN), i128::from(i64::MAX))?;
    body.number("temperature", 0.0, 2.0)?;
    body.number("top_p", 0.0, 1.0)?;
    body.number("presence_penalty", -2.0, 2.0)?;
    body.number("frequency_penalty", -2.0, 2.0)?;
    match body.get("stop") {
        None | Some(Kind::Text(_)) => {}
        Some(Kind::Array(text))
            if elements(text)
                .into_iter()
                .all(|e| matches!(Kind::of(e), Kind::Text(_))) => {}
        Some(_) => return Err(body.refuse("stop", "must be a string or an array of strings")),
    }
    match body.get("tools") {
        None | Some(Kind::Array(_)) => Ok(()),
        Some(other) => Err(body.refuse("tools", format!("must be an array, not {}", other.name()))),
    }
}

fn messages(body: &Fields<'_>) -> Result<(), Problem> {
    let all = match body.get("messages") {
        Some(Kind::Array(text)) => elements(text),
        Some(other) => {
            return Err(body.refuse(
                "messages",
                format!("must be an array, not {}", other.name()),
            ));
        }
        None => return Err(body.missing("messages", "must be an array of at least one message")),
    };
    if all.is_empty() {
        return Err(body.refuse("messages", "must hold at least one message"));
    }
    for (index, raw) in all.into_iter().enumerate() {
        let at = body.path(&format!("messages[{index}]"));
        let Kind::Object(text) = Kind::of(raw) else {
            return Err(Problem::field(Code::InvalidValue, at, "must be an object"));
        };
        message(&Fields::read(text, &at, "a message")?)?;
    }
    Ok(())
}

fn message(message: &Fields<'_>) -> Result<(), Problem> {
    // Longest role of an extension anybody has named.
    const MAX_ROLE_CHARS: usize = 64;
    let Some(role) = message.text("role", MAX_ROLE_CHARS)? else {
        return Err(message.missing("role", "must be a string such as \"user\""));
    };
    match message.get("content") {
        Some(Kind::Text(_)) => Ok(()),
        Some(Kind::Array(text)) => parts(message, text),
        Some(other) => Err(message.refuse(
            "content",
            format!(
                "must be a string or an array of parts, not {}",
                other.name()
            ),
        )),
        None => content_absent(message, &role),
    }
}

/// A message without content says something in another way, or is of a role that we do not know.
fn content_absent(message: &Fields<'_>, role: &str) -> Result<(), Problem> {
    let instead = match role {
        "system" | "developer" | "user" | "tool" => false,
        "assistant" => {
            let calls = match message.get("tool_calls") {
                Some(Kind::Array(text)) => !elements(text).is_empty(),
                _ => false,
            };
            let said = [
                "function_call",
                "refusal",
                "audio",
                "reasoning_content",
                "reasoning",
            ];
            calls || said.iter().any(|name| message.raw(name).is_some())
        }
        _ => true,
    };
    if instead {
        return Ok(());
    }
    Err(message.missing(
        "content",
        format!("must be a string or an array of parts in a message of role {role:?}"),
    ))
}

fn parts(message: &Fields<'_>, text: &str) -> Result<(), Problem> {
    let all = elements(text);
    if all.is_empty() {
        return Err(message.refuse("content", "must hold at least one part"));
    }
    for (index, raw) in all.into_iter().enumerate() {
        let kind = Kind::of(raw);
        if !matches!(kind, Kind::Object(_) | Kind::Text(_)) {
            let name = format!("content[{index}]");
            return Err(message.refuse(&name, format!("must be an object, not {}", kind.name())));
        }
    }
    Ok(())
}

/// A text, several, a list of the model's own numbers for text, or several of those.
fn prompt(body: &Fields<'_>, name: &str) -> Result<(), Problem> {
    let wanted = "must be a string, an array of strings, or an array of integers or of such arrays";
    let empty = |path: &str| body.refuse(path, "must not be empty");
    match body.get(name) {
        None => Err(body.missing(name, wanted)),
        Some(Kind::Text(quoted)) if unquote(quoted).is_none_or(|text| text.is_empty()) => {
            Err(empty(name))
        }
        Some(Kind::Text(_)) => Ok(()),
        Some(Kind::Array(text)) => {
            let all = elements(text);
            if all.is_empty() {
                return Err(empty(name));
            }
            for (index, raw) in all.into_iter().enumerate() {
                let path = format!("{name}[{index}]");
                let good = match Kind::of(raw) {
                    Kind::Text(quoted) => unquote(quoted).is_some_and(|text| !text.is_empty()),
                    Kind::Number(text) => integer(text).is_some_and(|n| n >= 0),
                    Kind::Array(text) => numbers(text),
                    // Servers with a chat template for embeddings take messages here.
                    Kind::Object(_) => body.path(name).ends_with("input"),
                    Kind::Null | Kind::Bool(_) => false,
                };
                if !good {
                    return Err(body.refuse(&path, format!("must be a string or an integer that is not empty or below 0; `{name}` {wanted}")));
                }
            }
            Ok(())
        }
        Some(other) => Err(body.refuse(name, format!("{wanted}, not {}", other.name()))),
    }
}

fn numbers(text: &str) -> bool {
    let all = elements(text);
    let number = |kind| matches!(kind, Kind::Number(text) if integer(text).is_some_and(|n| n >= 0));
    !all.is_empty() && all.into_iter().all(|raw| number(Kind::of(raw)))
}

#[cfg(test)]
mod tests;
