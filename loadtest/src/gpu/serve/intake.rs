//! From a request to the work and the scripts in it, and the first half of its record.

use super::super::Shared;
use super::super::api::{self, Bad, Kind, Work};
use super::super::http::Request;
use super::super::log::{BODY_MAX_BYTES, Call, PROMPT_MAX_BYTES, bounded};
use super::super::script::{ANSWER_MAX_BYTES, Script};

/// Bodies above this are parsed off the reactor, so that a large prompt delays nobody else.
const INLINE_PARSE_MAX_BYTES: usize = 64 * 1024;
/// Headers kept of a call, and bytes of each.
const HEADERS_MAX: usize = 32;
const HEADER_MAX_BYTES: usize = 512;

/// A refusal found while reading: status, message, field, code.
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) bad: Bad,
    pub(super) code: Option<&'static str>,
}

impl Refusal {
    fn bad_request(message: String) -> Self {
        Self {
            status: 400,
            bad: Bad {
                message,
                param: None,
            },
            code: None,
        }
    }
}

/// What the log keeps of a request before it is understood.
pub(super) fn describe(shared: &Shared, request: &Request) -> Call {
    let load = shared.engine.load();
    let secret = |name: &str| matches!(name, "authorization" | "cookie");
    let headers = request
        .headers
        .iter()
        .take(HEADERS_MAX)
        .map(|(name, value)| {
            let value = if secret(name) {
                "present"
            } else {
                bounded(value, HEADER_MAX_BYTES)
            };
            (bounded(name, HEADER_MAX_BYTES).to_owned(), value.to_owned())
        });
    Call {
        path: request.path.clone(),
        body: String::from_utf8_lossy(&request.body[..request.body.len().min(BODY_MAX_BYTES)])
            .into_owned(),
        body_bytes: request.body.len(),
        headers: headers.collect(),
        arrived_ms: shared.now_ms(),
        concurrency_at_arrival: load.running + load.waiting + 1,
        ..Call::default()
    }
}

/// Reads the request and its scripts, and fills in what the log wants of them.
pub(super) async fn read(
    shared: &Shared,
    kind: Kind,
    body: Vec<u8>,
    call: &mut Call,
) -> Result<(Work, Vec<Script>), Refusal> {
    let parse = move || {
        let work = api::parse(kind, &body)?;
        let scripts = Script::parse_all(&work.spoken);
        Ok((work, scripts))
    };
    let parsed = if call.body_bytes > INLINE_PARSE_MAX_BYTES {
        let panicked = |e| {
            Err(Bad {
                message: format!("parser failed: {e}"),
                param: None,
            })
        };
        tokio::task::spawn_blocking(parse)
            .await
            .unwrap_or_else(panicked)
    } else {
        parse()
    };
    let (work, scripts) = parsed.map_err(|bad| Refusal {
        status: 400,
        bad,
        code: None,
    })?;
    call.prompt = bounded(&work.spoken, PROMPT_MAX_BYTES).to_owned();
    call.model = bounded(&work.model, HEADER_MAX_BYTES).to_owned();
    call.stream = work.stream;
    let scripts = scripts.map_err(|e| Refusal::bad_request(e.to_string()))?;
    call.tag = scripts.first().and_then(|s| s.tag.clone());
    for script in &scripts {
        check(script, &work).map_err(Refusal::bad_request)?;
    }
    if !shared.config.models.is_empty() && !shared.config.models.contains(&work.model) {
        let message = format!("The model `{}` does not exist.", call.model);
        return Err(Refusal {
            status: 404,
            bad: Bad {
                message,
                param: Some("model"),
            },
            code: Some("model_not_found"),
        });
    }
    Ok((work, scripts))
}

/// Scripts that this call cannot obey.
fn check(script: &Script, work: &Work) -> Result<(), String> {
    let streams = work.stream && !script.plain && script.short_by.is_none();
    if !streams && (script.cut_chunks.is_some() || script.comments_only) {
        return Err(
            "sim script: `cut_chunks` and `comments_only` need a call that is streamed".to_owned(),
        );
    }
    let choices = (work.n * work.prompts.len()) as u64;
    if script
        .bytes
        .is_some_and(|b| b.saturating_mul(choices) > ANSWER_MAX_BYTES)
    {
        return Err(format!(
            "sim script: `bytes` times {choices} choices is above {ANSWER_MAX_BYTES}"
        ));
    }
    Ok(())
}
