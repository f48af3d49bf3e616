//! Case 2: a number at the edge of its range is refused by name, or reaches the model as it was.

use serde_json::Value;
use tidegate_loadtest::gpu::{Call, Script};
use tidegate_tests::{Options, Reply, Rig, SOON, job};

use crate::common::refused_naming;

async fn post_text(rig: &Rig, text: String) -> Reply {
    let request = rig
        .api
        .request("POST", "/v1/jobs")
        .header("content-type", "application/json")
        .body(text);
    let reply = rig.api.send(request).await;
    if reply.status == 202 {
        rig.api.note(&reply.json());
    }
    reply
}

fn submission(tag: &str, body: &str, wrapper: &str) -> String {
    let script = Script::tag(tag).text("ok");
    format!(
        r#"{{"model":"m",{wrapper}"body":{{"model":"m","messages":[{{"role":"user","content":"{script}"}}]{body}}}}}"#
    )
}

/// The literal that the model server got for a member.
fn literal(call: &Call, field: &str) -> String {
    let at = call
        .body
        .find(&format!("\"{field}\":"))
        .unwrap_or_else(|| panic!("no {field} in {}", call.body));
    let rest = &call.body[at + field.len() + 3..];
    rest.chars()
        .take_while(|c| !",}".contains(*c))
        .collect::<String>()
        .trim()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_at_the_edge_are_refused_by_name_or_forwarded_as_they_are() {
    let mut rig = Rig::start(Options::default(), 2, 3, 1).await;
    let values: [(&str, &[&str]); 4] = [
        (
            "max_tokens",
            &[
                "0",
                "-1",
                "1",
                "2147483648",
                "9223372036854775808",
                "1e400",
                "1.5",
                "\"100\"",
                "true",
            ],
        ),
        ("n", &["0", "1", "8", "10000"]),
        ("top_logprobs", &["16384"]),
        (
            "temperature",
            &[
                "NaN",
                "Infinity",
                "-Infinity",
                "1e-400",
                "0.1",
                "1e0",
                "0.30000000000000004",
            ],
        ),
    ];
    let must_refuse = [
        "max_tokens 0",
        "max_tokens -1",
        "max_tokens 1e400",
        "max_tokens 1.5",
        "max_tokens \"100\"",
        "max_tokens true",
        "n 0",
        "n 10000",
        "top_logprobs 16384",
        "temperature NaN",
        "temperature Infinity",
        "temperature -Infinity",
    ];
    let mut forwarded = 0;
    for (field, literals) in values {
        for (n, value) in literals.iter().enumerate() {
            let tag = format!("{field}-{n}");
            let text = submission(&tag, &format!(r#","{field}":{value}"#), "");
            let reply = post_text(&rig, text).await;
            let case = format!("{field} {value}");
            if reply.status == 400 {
                // What is no JSON has no field to name.
                let names = if value.contains('N') || value.contains("Inf") {
                    ""
                } else {
                    field
                };
                refused_naming(&reply, 400, names);
                assert!(rig.gpu.calls_tagged(&tag).is_empty(), "{case}");
                continue;
            }
            assert_eq!(reply.status, 202, "{case}: {}", reply.text());
            assert!(!must_refuse.contains(&case.as_str()), "{case} was accepted");
            let id = reply.json()["id"].as_str().unwrap().to_owned();
            rig.api.ends(&id, SOON).await;
            let call = &rig.gpu.calls_tagged(&tag)[0];
            assert_eq!(literal(call, field), *value, "{case}");
            forwarded += 1;
        }
    }
    assert!(forwarded >= 5, "{forwarded}");
    for (field, value) in [
        ("priority", "-1"),
        ("priority", "9007199254740992"),
        ("priority", "1.5"),
        ("delay_ms", "-1"),
        ("delay_ms", "1e400"),
        ("max_attempts", "0"),
        ("timeout_ms", "0"),
    ] {
        let reply = post_text(
            &rig,
            submission("never", "", &format!(r#""{field}":{value},"#)),
        )
        .await;
        refused_naming(&reply, 400, field);
    }
    assert!(rig.gpu.calls_tagged("never").is_empty());
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_numbers_that_are_no_json_harms_nobody() {
    let mut rig = Rig::start(Options::default(), 1, 1, 1).await;
    let body = br#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"logprobs":{"content":[{"token":"a","logprob":NaN},{"token":"b","logprob":-Infinity}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    let plain = Script::tag("plain")
        .raw(body)
        .header("content-type", "application/json");
    let event = [b"data: ".as_slice(), body, b"\n\ndata: [DONE]\n\n"].concat();
    let streamed = Script::tag("streamed")
        .raw(&event)
        .header("content-type", "text/event-stream");
    for script in [plain, streamed] {
        let id = rig.api.submit(&job(script)).await;
        let done = rig.api.ends(&id, tidegate_tests::LONG).await;
        // The poll was JSON, or it would not have been read; what is no JSON is not shown as a success.
        assert_eq!(done["status"], "failed", "{done:#}");
        let events = rig
            .api
            .send(rig.api.request("GET", &format!("/v1/jobs/{id}/events")))
            .await;
        for data in events
            .text()
            .lines()
            .filter_map(|l| l.strip_prefix("data: "))
        {
            serde_json::from_str::<Value>(data).unwrap();
        }
    }
    let id = rig.api.submit(&job("still there?")).await;
    assert_eq!(rig.api.ends(&id, SOON).await["status"], "succeeded");
    rig.settle_check().await;
}
