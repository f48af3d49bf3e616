//! The simulated GPU server over real HTTP: what a script in the prompt makes it do.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{chat, events, post, start};
use serde_json::{Value, json};
use tidegate_loadtest::gpu::{Finish, Script};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn scripted_text_usage_headers_and_ends_are_sent_exactly() {
    let server = start().await;
    let script = Script::tag("exact")
        .text("héllo ]] wörld")
        .usage_in(7)
        .usage_out(9)
        .header("X-Sim", "a b")
        .finish(Finish::Length);
    let response = post(&server, "/v1/chat/completions", &chat(&script.to_string())).await;
    assert_eq!(response.headers()["x-sim"], "a b");
    let answer: Value = response.json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "héllo ]] wörld");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(
        answer["usage"],
        json!({"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16})
    );

    let bare = Script::tag("bare")
        .text("x")
        .no_usage()
        .no_finish()
        .no_done();
    let answer: Value = post(&server, "/v1/chat/completions", &chat(&bare.to_string()))
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(
        (&answer["usage"], &answer["choices"][0]["finish_reason"]),
        (&Value::Null, &Value::Null)
    );
    let mut body = chat(&bare.to_string());
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = events(
        &post(&server, "/v1/chat/completions", &body)
            .await
            .text()
            .await
            .unwrap(),
    );
    assert_eq!(events.len(), 2, "role and content only: {events:?}");
}

#[tokio::test]
async fn scripted_status_body_raw_bytes_and_repeated_headers_are_sent_as_they_are() {
    let server = start().await;
    let script = Script::untagged()
        .status(429)
        .body(b"{\"error\":\"slow\"}")
        .header("Retry-After", "2")
        .header("Retry-After", "9");
    let response = post(&server, "/v1/chat/completions", &chat(&script.to_string())).await;
    assert_eq!(response.status(), 429);
    let hints: Vec<_> = response.headers().get_all("retry-after").iter().collect();
    assert_eq!(hints, ["2", "9"]);
    assert_eq!(response.text().await.unwrap(), "{\"error\":\"slow\"}");

    let raw = Script::untagged()
        .raw(b"\xff\x00NaN")
        .header("content-type", "text/strange");
    let response = post(&server, "/v1/chat/completions", &chat(&raw.to_string())).await;
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["content-type"]
        ),
        (200, &"text/strange".parse().unwrap())
    );
    assert_eq!(response.bytes().await.unwrap().as_ref(), b"\xff\x00NaN");

    let response = post(&server, "/v1/chat/completions", &chat("[[sim status=503]]")).await;
    assert_eq!(response.status(), 503);
    assert_eq!(
        response.json::<Value>().await.unwrap()["error"]["type"],
        "server_error"
    );
}

#[tokio::test]
async fn a_script_with_a_mistake_is_a_400_that_names_it() {
    let server = start().await;
    for (prompt, says) in [
        ("[[sim slep_ms=1]]", "slep_ms"),
        ("[[sim cut_chunks=1]]", "streamed"),
    ] {
        let response = post(&server, "/v1/chat/completions", &chat(prompt)).await;
        assert_eq!(response.status(), 400);
        let message = response.json::<Value>().await.unwrap()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            message.contains("sim script") && message.contains(says),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_held_answer_waits_for_its_release_and_a_release_before_the_call_counts() {
    let server = start().await;
    let held = tokio::spawn({
        let request = common::request(
            &server,
            "/v1/chat/completions",
            &chat(&Script::tag("h").hold().text("ok").to_string()),
        );
        request.send()
    });
    let call = server
        .wait_for(SOON, |c| {
            c.tag.as_deref() == Some("h") && c.started_ms.is_some()
        })
        .await
        .unwrap();
    assert_eq!((call.status, server.running()), (None, 1));
    server.release("h");
    assert_eq!(held.await.unwrap().unwrap().status(), 200);
    server.release("early");
    assert_eq!(
        post(
            &server,
            "/v1/chat/completions",
            &chat(&Script::tag("early").hold().to_string())
        )
        .await
        .status(),
        200
    );
    assert_eq!(server.running(), 0);
}

#[tokio::test]
async fn fail_times_fails_so_often_and_then_answers_well() {
    let server = start().await;
    let script = Script::tag("flaky")
        .status(500)
        .text("fine")
        .fail_times(2)
        .to_string();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(
            post(&server, "/v1/chat/completions", &chat(&script))
                .await
                .status()
                .as_u16(),
        );
    }
    assert_eq!(statuses, [500, 500, 200, 200]);
    assert_eq!(server.calls_tagged("flaky").len(), 4);
}

#[tokio::test]
async fn several_scripts_in_one_prompt_are_obeyed_one_call_after_the_other() {
    let server = start().await;
    let prompt = format!(
        "{}{}{}",
        Script::tag("s").status(503),
        Script::tag("s").status(429),
        Script::tag("s").text("ok")
    );
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(
            post(&server, "/v1/chat/completions", &chat(&prompt))
                .await
                .status()
                .as_u16(),
        );
    }
    assert_eq!(statuses, [503, 429, 200, 200]);
}
