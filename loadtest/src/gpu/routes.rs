//! Routes, and the small answers: models, health, metrics, and the controls that tests of other processes use.

use serde_json::json;

use super::Shared;
use super::api::Kind;
use super::http::{Conn, Request};
use super::outlet::{Framing, Outlet};
use super::script::percent_decode;
use super::serve::{self, After};
use super::shape;

/// The model name told where none is configured.
const ANY_MODEL: &str = "sim";

struct Reply {
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
}

fn json_reply(body: &serde_json::Value) -> Reply {
    Reply {
        status: 200,
        content_type: "application/json",
        body: body.to_string().into_bytes(),
    }
}

fn error_reply(status: u16, message: &str) -> Reply {
    Reply {
        status,
        content_type: "application/json",
        body: shape::error(status, message, None, None),
    }
}

/// Serves one request.
pub(super) async fn serve(shared: &Shared, conn: &mut Conn, request: Request) -> After {
    let kind = match request.path.as_str() {
        "/v1/chat/completions" => Some(Kind::Chat),
        "/v1/completions" => Some(Kind::Completion),
        "/v1/embeddings" => Some(Kind::Embedding),
        _ => None,
    };
    let reply = match kind {
        Some(kind) if request.method == "POST" => {
            return serve::serve(shared, conn, kind, request).await;
        }
        Some(_) => error_reply(405, "This route takes POST."),
        None => small(shared, &request),
    };
    let sent = send(conn, &reply).await;
    if sent && !request.close {
        After::Keep
    } else {
        After::Close
    }
}

/// Sends a small answer; false when the caller is gone.
async fn send(conn: &mut Conn, reply: &Reply) -> bool {
    let headers = [("content-type", reply.content_type)];
    let framing = Framing::Sized(reply.body.len());
    let Ok(mut out) = Outlet::open(conn, reply.status, &headers, &[], framing, None).await else {
        return false;
    };
    out.send(&reply.body).await.is_ok()
}

/// Tells a caller why its request was not read.
pub(super) async fn send_refusal(conn: &mut Conn, status: u16, why: &str) {
    let body = shape::error(status, why, None, None);
    let headers = [
        ("content-type", "application/json"),
        ("connection", "close"),
    ];
    if let Ok(mut out) = Outlet::open(
        conn,
        status,
        &headers,
        &[],
        Framing::Sized(body.len()),
        None,
    )
    .await
    {
        // The connection is closed next, whether or not this arrives.
        let _ = out.send(&body).await;
    }
}

fn small(shared: &Shared, request: &Request) -> Reply {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/v1/models") => models(shared),
        ("GET", "/health") => Reply {
            status: 200,
            content_type: "text/plain",
            body: Vec::new(),
        },
        ("GET", "/metrics") => metrics(shared),
        ("GET", "/_sim/calls") => match tag(&request.query) {
            Ok(tag) => json_reply(&json!(shared.log.calls(tag.as_deref()))),
            Err(why) => error_reply(400, &why),
        },
        ("GET", "/_sim/stats") => {
            let load = shared.engine.load();
            json_reply(
                &json!({"peak": load.peak, "running": load.running, "waiting": load.waiting, "total": load.total}),
            )
        }
        ("POST", "/_sim/release") => match tag(&request.query) {
            Ok(Some(tag)) => json_reply(&json!({"released": shared.gates.release(&tag)})),
            Ok(None) => error_reply(400, "Say which: /_sim/release?tag=NAME."),
            Err(why) => error_reply(400, &why),
        },
        ("POST", "/_sim/reset") => {
            shared.reset();
            json_reply(&json!({}))
        }
        (
            _,
            "/v1/models" | "/health" | "/metrics" | "/_sim/calls" | "/_sim/stats" | "/_sim/release"
            | "/_sim/reset",
        ) => error_reply(405, "This route does not take that method."),
        (_, path) => error_reply(404, &format!("No route {path}.")),
    }
}

/// The `tag` of a query; any other parameter is an error, so that a mistyped one is loud.
fn tag(query: &str) -> Result<Option<String>, String> {
    let mut tag = None;
    for part in query.split('&').filter(|p| !p.is_empty()) {
        let Some(value) = part.strip_prefix("tag=") else {
            return Err(format!("unknown query parameter `{part}`"));
        };
        let bytes = percent_decode(&value.replace('+', " "))?;
        tag = Some(String::from_utf8(bytes).map_err(|_| "`tag` is not UTF-8".to_owned())?);
    }
    Ok(tag)
}

fn models(shared: &Shared) -> Reply {
    let one = |id: &str| json!({"id": id, "object": "model", "created": shared.started_unix_s, "owned_by": "tidegate-sim"});
    let data: Vec<_> = match shared.config.models.as_slice() {
        [] => vec![one(ANY_MODEL)],
        some => some.iter().map(|m| one(m)).collect(),
    };
    json_reply(&json!({"object": "list", "data": data}))
}

/// The gauges and counters a vLLM server shows, under its names.
fn metrics(shared: &Shared) -> Reply {
    let load = shared.engine.load();
    let (input_tokens, output_tokens) = shared.counted();
    let usage = load.kv_used as f64 / shared.engine.kv_tokens() as f64;
    let model = shared
        .config
        .models
        .first()
        .map_or(ANY_MODEL, String::as_str);
    let model = model
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    let rows = [
        (
            "vllm:num_requests_running",
            "gauge",
            "Calls being worked on.",
            load.running.to_string(),
        ),
        (
            "vllm:num_requests_waiting",
            "gauge",
            "Calls waiting for a slot or KV room.",
            load.waiting.to_string(),
        ),
        (
            "vllm:kv_cache_usage_perc",
            "gauge",
            "KV room in use, 1 is all of it.",
            usage.to_string(),
        ),
        (
            "vllm:prompt_tokens_total",
            "counter",
            "Input tokens read.",
            input_tokens.to_string(),
        ),
        (
            "vllm:generation_tokens_total",
            "counter",
            "Output tokens sent.",
            output_tokens.to_string(),
        ),
    ];
    let row = |(name, kind, help, value): &(&str, &str, &str, String)| {
        format!(
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{engine=\"0\",model_name=\"{model}\"}} {value}\n"
        )
    };
    let text: String = rows.iter().map(row).collect();
    Reply {
        status: 200,
        content_type: "text/plain; version=0.0.4; charset=utf-8",
        body: text.into_bytes(),
    }
}
