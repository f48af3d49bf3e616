//! The JSON of answers, as OpenAI's routes have it.

use serde_json::{Value, json};

use super::api::{Kind, Work};
use super::script::Script;
use super::text::{Answer, base64, embedding};

/// Who is answering: what all bodies of one call share.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) id: String,
    /// Unix seconds.
    pub(super) created: u64,
}

/// What usage says, unless the script leaves it out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
}

impl Usage {
    /// The true counts, or what the script says instead; `None` when it wants no usage.
    pub(super) fn told(input_tokens: u64, output_tokens: u64, script: &Script) -> Option<Self> {
        let told = Self {
            input_tokens: script.usage_in.unwrap_or(input_tokens),
            output_tokens: script.usage_out.unwrap_or(output_tokens),
        };
        (!script.no_usage).then_some(told)
    }

    fn json(self) -> Value {
        let total = self.input_tokens.saturating_add(self.output_tokens);
        json!({"prompt_tokens": self.input_tokens, "completion_tokens": self.output_tokens, "total_tokens": total})
    }
}

/// An error body.
pub(super) fn error(
    status: u16,
    message: &str,
    param: Option<&str>,
    code: Option<&str>,
) -> Vec<u8> {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    };
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
        .to_string()
        .into_bytes()
}

/// The whole body of a plain chat or text completion.
pub(super) fn completion(
    who: &Identity,
    work: &Work,
    answers: &[Answer],
    script: &Script,
    usage: Option<Usage>,
) -> Vec<u8> {
    let choice = |(index, answer): (usize, &Answer)| {
        let finish = (!script.no_finish).then(|| answer.finish.word());
        match work.kind {
            Kind::Chat => json!({"index": index, "logprobs": null, "finish_reason": finish,
                "message": {"role": "assistant", "content": answer.text(), "refusal": null}}),
            _ => {
                json!({"index": index, "logprobs": null, "finish_reason": finish, "text": answer.text()})
            }
        }
    };
    let choices: Vec<Value> = answers.iter().enumerate().map(choice).collect();
    let object = if work.kind == Kind::Chat {
        "chat.completion"
    } else {
        "text_completion"
    };
    let mut body = json!({"id": who.id, "object": object, "created": who.created, "model": work.model, "choices": choices});
    if let Some(usage) = usage {
        body["usage"] = usage.json();
    }
    body.to_string().into_bytes()
}

/// The whole body of an embeddings answer.
pub(super) fn embeddings(work: &Work, seed: u64, usage: Option<Usage>) -> Vec<u8> {
    let one = |(index, input): (usize, &String)| {
        let vector = embedding(seed, input, work.dimensions);
        let value = if work.base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            json!(base64(&bytes))
        } else {
            json!(vector)
        };
        json!({"object": "embedding", "index": index, "embedding": value})
    };
    let data: Vec<Value> = work.prompts.iter().enumerate().map(one).collect();
    let mut body = json!({"object": "list", "data": data, "model": work.model});
    if let Some(usage) = usage {
        let total = usage.input_tokens;
        body["usage"] = json!({"prompt_tokens": total, "total_tokens": total});
    }
    body.to_string().into_bytes()
}

/// One event of a stream, `data:` line and empty line.
pub(super) fn event(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

/// What a stream's chunk carries for one choice.
#[derive(Debug, Clone, Copy)]
pub(super) enum Delta<'a> {
    /// The first chunk of a chat choice.
    Role,
    /// Content.
    Text(&'a str),
    /// The end of the choice.
    Finish(&'static str),
}

/// One chunk of a streamed answer.
pub(super) fn chunk(who: &Identity, work: &Work, index: usize, delta: Delta<'_>) -> Vec<u8> {
    let finish = match delta {
        Delta::Finish(word) => Some(word),
        Delta::Role | Delta::Text(_) => None,
    };
    let mut choice = json!({"index": index, "logprobs": null, "finish_reason": finish});
    match (work.kind, delta) {
        (Kind::Chat, Delta::Role) => choice["delta"] = json!({"role": "assistant", "content": ""}),
        (Kind::Chat, Delta::Text(text)) => choice["delta"] = json!({"content": text}),
        (Kind::Chat, Delta::Finish(_)) => choice["delta"] = json!({}),
        (_, Delta::Text(text)) => choice["text"] = json!(text),
        (_, Delta::Role | Delta::Finish(_)) => choice["text"] = json!(""),
    }
    let mut body = envelope(who, work, vec![choice]);
    if work.include_usage {
        body["usage"] = Value::Null;
    }
    event(&body)
}

/// The chunk that carries usage and no choice.
pub(super) fn usage_chunk(who: &Identity, work: &Work, usage: Usage) -> Vec<u8> {
    let mut body = envelope(who, work, Vec::new());
    body["usage"] = usage.json();
    event(&body)
}

fn envelope(who: &Identity, work: &Work, choices: Vec<Value>) -> Value {
    let object = if work.kind == Kind::Chat {
        "chat.completion.chunk"
    } else {
        "text_completion"
    };
    json!({"id": who.id, "object": object, "created": who.created, "model": work.model, "choices": choices})
}
