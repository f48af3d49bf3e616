//! A `POST /v1/jobs` body: the wrapper around a model request.

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tidegate_shared::config::names;
use tidegate_shared::domain::{Endpoint, PoolName};

use super::fields::{Fields, Kind, meant, unquote};
use super::openai::{self, MAX_MODEL_CHARS};
use super::scan::scan;
use crate::error::{Code, Problem, echo};

/// Longest delay, deadline and time-out, in milliseconds: 30 days.
pub(crate) const MAX_SPAN_MS: i128 = 30 * 24 * 3600 * 1000;
/// Most deliveries charged to one job; the same bound as a pool's own setting.
const MAX_ATTEMPTS: i128 = 100;
/// Most pairs of `metadata`, characters of a key and of a value: the OpenAI API's bounds.
const MAX_PAIRS: usize = 16;
const MAX_KEY_CHARS: usize = 64;
const MAX_VALUE_CHARS: usize = 512;

const FIELDS: [&str; 12] = [
    "model",
    "pool",
    "endpoint",
    "body",
    "class",
    "priority",
    "delay_ms",
    "deadline_ms",
    "timeout_ms",
    "max_attempts",
    "metadata",
    "webhook_url",
];

/// What a client asks for, judged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Submission {
    /// Where it shall wait; none: wherever its model is served.
    pub(crate) pool: Option<PoolName>,
    /// The model it names.
    pub(crate) model: String,
    /// What to call.
    pub(crate) endpoint: Endpoint,
    /// The model request: the caller's bytes, and `model` in front where only the wrapper named it.
    pub(crate) body: Vec<u8>,
    /// Kind of traffic; none: the pool's first.
    pub(crate) class: Option<String>,
    /// 0–9, higher first.
    pub(crate) priority: u8,
    /// 0: at once.
    pub(crate) delay_ms: u64,
    /// From acceptance; 0: none.
    pub(crate) deadline_ms: u64,
    /// For one delivery; 0: the pool's.
    pub(crate) timeout_ms: u64,
    /// Deliveries charged; none: the pool's.
    pub(crate) max_attempts: Option<u32>,
    /// JSON object of strings; empty: none.
    pub(crate) metadata: String,
    /// SHA-256 of the request's decoded bytes, in hex: what the same idempotency key must come with again.
    pub(crate) digest: String,
}

/// Judges a request's bytes. Pure, and as slow as the bytes are many: large ones belong on a thread of their own.
pub(crate) fn judge(bytes: &[u8], max_depth: u32) -> Result<Submission, Problem> {
    if bytes.is_empty() {
        return Err(Problem::new(
            Code::InvalidJson,
            "the body is empty; it must be a JSON object with `body`",
        ));
    }
    scan(bytes, max_depth, Some("body"))?;
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Problem::new(Code::InvalidJson, "the body is not UTF-8"))?;
    let fields = Fields::read(
        text.trim_matches([' ', '\t', '\r', '\n']),
        "",
        "the request",
    )?;
    for name in fields.names() {
        if !FIELDS.contains(&name) {
            let hint = meant(name, &FIELDS).map_or_else(
                || format!("is not a field of a job; fields are {}", FIELDS.join(", ")),
                |meant| format!("is not a field of a job; did you mean `{meant}`?"),
            );
            return Err(Problem::field(Code::UnsupportedParameter, name, hint));
        }
    }
    if fields.raw("webhook_url").is_some() {
        let detail = "is not delivered in this release; poll the job or follow its `/events`";
        return Err(Problem::field(
            Code::UnsupportedParameter,
            "webhook_url",
            detail,
        ));
    }
    let endpoint = endpoint(&fields)?;
    let (model, body) = model_request(&fields, endpoint)?;
    let (delay_ms, deadline_ms) = times(&fields)?;
    let span = |name, min| {
        fields
            .integer(name, min, MAX_SPAN_MS)
            .map(|ms| ms.map_or(0, small))
    };
    Ok(Submission {
        pool: pool(&fields)?,
        model,
        endpoint,
        body,
        class: class(&fields)?,
        priority: fields.integer("priority", 0, 9)?.map_or(0, small),
        delay_ms,
        deadline_ms,
        timeout_ms: span("timeout_ms", 1)?,
        max_attempts: fields.integer("max_attempts", 1, MAX_ATTEMPTS)?.map(small),
        metadata: metadata(&fields)?,
        digest: hex(&Sha256::digest(bytes)),
    })
}

/// An integer that was held to its range.
fn small<T: TryFrom<i128> + Default>(value: i128) -> T {
    T::try_from(value).unwrap_or_default()
}

/// Bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn endpoint(fields: &Fields<'_>) -> Result<Endpoint, Problem> {
    let Some(path) = fields.text("endpoint", 200)? else {
        return Ok(Endpoint::ChatCompletions);
    };
    Endpoint::from_path(&path).ok_or_else(|| {
        let known = Endpoint::ALL.map(Endpoint::path).join(", ");
        fields.refuse("endpoint", format!("must be one of {known}"))
    })
}

/// The model and the request for it. The caller's request is never rewritten: where it lacks `model`, that is put in
/// front of its members and the rest keeps its bytes.
fn model_request(fields: &Fields<'_>, endpoint: Endpoint) -> Result<(String, Vec<u8>), Problem> {
    let body = match fields.raw("body") {
        Some(raw) if matches!(Kind::of(raw), Kind::Object(_)) => raw.get(),
        Some(raw) => {
            let is = Kind::of(raw).name();
            return Err(fields.refuse(
                "body",
                format!("must be an object, the request for the model, not {is}"),
            ));
        }
        None => return Err(fields.missing("body", "must be an object, the request for the model")),
    };
    let outer = fields.text("model", MAX_MODEL_CHARS)?;
    let inner = openai::judge(endpoint, body, "body")?;
    match (outer, inner) {
        (None, None) => Err(Problem::field(
            Code::MissingField,
            "body.model",
            "must be the name of a model",
        )),
        (Some(outer), Some(inner)) if outer != inner => {
            let detail = format!(
                "says {:?}, but `body.model` says {:?}",
                echo(&outer),
                echo(&inner)
            );
            Err(fields.refuse("model", detail))
        }
        (_, Some(model)) => Ok((model, body.as_bytes().to_vec())),
        (Some(model), None) => {
            let rewritten = with_model(body, &model)?;
            Ok((model, rewritten))
        }
    }
}

fn with_model(body: &str, model: &str) -> Result<Vec<u8>, Problem> {
    if Fields::read(body, "body", "the model request")?
        .names()
        .any(|name| name == "model")
    {
        return Err(Problem::field(
            Code::InvalidValue,
            "body.model",
            "must be the name of a model, or absent; not null",
        ));
    }
    let name = serde_json::to_string(model).expect("a string always serialises");
    let rest = &body[1..];
    // It is never empty: a request has messages, a prompt or an input.
    Ok(format!("{{\"model\":{name},{rest}").into_bytes())
}

fn pool(fields: &Fields<'_>) -> Result<Option<PoolName>, Problem> {
    let Some(name) = fields.text("pool", 200)? else {
        return Ok(None);
    };
    match names::pool_name(&name) {
        Ok(()) => Ok(name.parse().ok()),
        Err(right) => Err(fields.refuse("pool", format!("must be {right}"))),
    }
}

fn class(fields: &Fields<'_>) -> Result<Option<String>, Problem> {
    let Some(name) = fields.text("class", 200)? else {
        return Ok(None);
    };
    match names::class_name(&name) {
        Ok(()) => Ok(Some(name)),
        Err(right) => Err(fields.refuse("class", format!("must be {right}"))),
    }
}

fn times(fields: &Fields<'_>) -> Result<(u64, u64), Problem> {
    let delay = fields.integer("delay_ms", 0, MAX_SPAN_MS)?;
    let deadline = fields.integer("deadline_ms", 0, MAX_SPAN_MS)?;
    if let Some(deadline) = deadline
        && delay.unwrap_or(0) >= deadline
    {
        let delay = delay.unwrap_or(0);
        let detail = format!(
            "must be beyond the delay: the job would be due after {delay} ms and over after {deadline} ms"
        );
        return Err(fields.refuse("deadline_ms", detail));
    }
    Ok((delay.map_or(0, small), deadline.map_or(0, small)))
}

fn metadata(fields: &Fields<'_>) -> Result<String, Problem> {
    let Some(kind) = fields.get("metadata") else {
        return Ok(String::new());
    };
    let Kind::Object(text) = kind else {
        return Err(fields.refuse(
            "metadata",
            format!("must be an object of strings, not {}", kind.name()),
        ));
    };
    let pairs = Fields::read(text, "metadata", "`metadata`")?;
    if pairs.names().count() > MAX_PAIRS {
        return Err(fields.refuse("metadata", format!("must have at most {MAX_PAIRS} pairs")));
    }
    let mut kept = serde_json::Map::new();
    for name in pairs.names() {
        if name.is_empty() || name.chars().count() > MAX_KEY_CHARS {
            return Err(fields.refuse(
                "metadata",
                format!("must have keys of 1 to {MAX_KEY_CHARS} characters"),
            ));
        }
        let text = match pairs
            .raw(name)
            .map(RawValue::get)
            .filter(|raw| raw.starts_with('"'))
            .and_then(unquote)
        {
            Some(text) if text.chars().count() <= MAX_VALUE_CHARS => text,
            _ => {
                return Err(pairs.refuse(
                    name,
                    format!("must be a string of at most {MAX_VALUE_CHARS} characters"),
                ));
            }
        };
        kept.insert(name.to_owned(), text.into());
    }
    Ok(serde_json::Value::Object(kept).to_string())
}

#[cfg(test)]
mod tests;
