//! Case 3: null, absent, empty and unknown are told apart, the same way everywhere.

use serde_json::{Value, json};
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Options, Reply, Rig, SOON};

use crate::common::refused_naming;

/// A conversation that ends with the script.
fn messages(tag: &str) -> Vec<Value> {
    vec![json!({"role": "user", "content": Script::tag(tag).text("ok").to_string()})]
}

/// What the worker adds on its way to the model server.
const ADDED: [&str; 2] = ["stream", "stream_options"];

#[tokio::test(flavor = "multi_thread")]
async fn legal_shapes_are_forwarded_with_their_meaning() {
    let mut rig = Rig::start(Options::default(), 2, 2, 1).await;
    let tool_call =
        json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let before = |extra: Value| {
        move |tag: &str| {
            let mut all = vec![json!({"role": "user", "content": "go"})];
            all.extend(extra.as_array().cloned().unwrap());
            all.extend(messages(tag));
            all
        }
    };
    let with_call = before(json!([
        {"role": "assistant", "content": null, "tool_calls": [tool_call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]));
    let developer = before(json!([{"role": "developer", "content": "be brief"}]));
    let parts = before(json!([{"role": "user", "content": [
        {"type": "text", "text": "what is this"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]}]));
    let mut cases: Vec<(&str, Value)> = vec![
        ("call", json!({"messages": with_call("call")})),
        ("developer", json!({"messages": developer("developer")})),
        ("parts", json!({"messages": parts("parts")})),
    ];
    for (tag, field, value) in [
        ("null-max", "max_tokens", Value::Null),
        ("null-stop", "stop", Value::Null),
        ("null-tools", "tools", Value::Null),
        (
            "unknown",
            "x_unheard_of",
            json!({"a": [1, null, {"b": 1.10}]}),
        ),
    ] {
        cases.push((tag, json!({"messages": messages(tag), field: value})));
    }
    cases.push(("absent", json!({"messages": messages("absent")})));
    for (tag, mut body) in cases {
        body["model"] = json!("m");
        let id = rig.api.submit(&json!({"model": "m", "body": body})).await;
        let done = rig.api.ends(&id, SOON).await;
        assert_eq!(done["status"], "succeeded", "{tag}: {done:#}");
        let calls = rig.gpu.calls_tagged(tag);
        assert_eq!(calls.len(), 1, "{tag}");
        let mut got = calls[0].json().unwrap();
        for name in ADDED {
            got.as_object_mut().unwrap().remove(name);
        }
        assert_eq!(got, body, "{tag}");
    }
    rig.settle_check().await;
}

async fn post(rig: &Rig, content_type: Option<&str>, text: impl Into<String>) -> Reply {
    let mut request = rig.api.request("POST", "/v1/jobs").body(text.into());
    if let Some(content_type) = content_type {
        request = request.header("content-type", content_type);
    }
    rig.api.send(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn illegal_shapes_are_refused_in_one_error_shape() {
    let mut rig = Rig::start(Options::default(), 1, 1, 1).await;
    let user = json!([{"role": "user", "content": "hi"}]);
    let json_type = Some("application/json");
    for (names, submission) in [
        ("messages", json!({"model": "m", "body": {"model": "m"}})),
        (
            "messages",
            json!({"model": "m", "body": {"model": "m", "messages": null}}),
        ),
        (
            "messages",
            json!({"model": "m", "body": {"model": "m", "messages": []}}),
        ),
        (
            "content",
            json!({"model": "m", "body": {"model": "m", "messages": [{"role": "user", "content": []}]}}),
        ),
        (
            "content",
            json!({"model": "m", "body": {"model": "m", "messages": [{"role": "user", "content": null}]}}),
        ),
        (
            "role",
            json!({"model": "m", "body": {"model": "m", "messages": [{"content": "hi"}]}}),
        ),
        (
            "prompt",
            json!({"model": "m", "endpoint": "/v1/completions", "body": {"model": "m", "prompt": ""}}),
        ),
        (
            "prompt",
            json!({"model": "m", "endpoint": "/v1/completions", "body": {"model": "m", "prompt": []}}),
        ),
        (
            "input",
            json!({"model": "m", "endpoint": "/v1/embeddings", "body": {"model": "m", "input": ""}}),
        ),
        ("model", json!({"body": {"messages": user}})),
        ("model", json!({"model": "", "body": {"messages": user}})),
        ("body", json!({"model": "m"})),
        ("body", json!({"model": "m", "body": null})),
        ("body", json!({"model": "m", "body": [1]})),
        (
            "stream",
            json!({"model": "m", "body": {"model": "m", "messages": user, "stream": true}}),
        ),
        (
            "endpoint",
            json!({"model": "m", "endpoint": "/v1/nothing", "body": {"model": "m", "messages": user}}),
        ),
        ("", json!([{"model": "m"}])),
        ("", json!("text")),
    ] {
        let reply = post(&rig, json_type, submission.to_string()).await;
        refused_naming(&reply, 400, names);
    }
    refused_naming(&post(&rig, json_type, "").await, 400, "");
    refused_naming(&post(&rig, json_type, "{\"model\":").await, 400, "");
    let twice = r#"{"model":"m","model":"m","body":{"model":"m","messages":[{"role":"user","content":"hi"}]}}"#;
    let reply = post(&rig, json_type, twice).await;
    assert_eq!(reply.code(), "duplicate_key", "{}", reply.text());
    let good = json!({"model": "m", "body": {"model": "m", "messages": user}}).to_string();
    refused_naming(
        &post(&rig, Some("text/plain"), good.clone()).await,
        415,
        "application/json",
    );
    refused_naming(&post(&rig, None, good).await, 415, "application/json");
    assert!(rig.gpu.calls().is_empty());
    let pool = rig.pool().await;
    assert_eq!(
        (&pool["queued"], &pool["running"]),
        (&json!(0), &json!(0)),
        "{pool:#}"
    );
    rig.settle_check().await;
}
