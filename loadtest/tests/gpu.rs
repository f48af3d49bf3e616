//! The simulated GPU server over real HTTP: its answers, its limits, its record.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{chat, content, events, post, start, start_with};
use serde_json::{Value, json};
use tidegate_loadtest::gpu::{Config, Script};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_same_seed_and_prompt_give_the_same_text_and_another_seed_gives_another() {
    let (one, same) = (start().await, start().await);
    let other = start_with(Config {
        seed: 2,
        ..Config::default()
    })
    .await;
    let mut texts = Vec::new();
    for server in [&one, &same, &other] {
        let answer = post(server, "/v1/chat/completions", &chat("what is a tide?"))
            .await
            .json::<Value>()
            .await
            .unwrap();
        texts.push(
            answer["choices"][0]["message"]["content"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert!(!texts[0].is_empty());
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[0], texts[2]);
}

#[tokio::test]
async fn a_stream_gives_the_text_usage_and_end_of_the_plain_answer() {
    let server = start().await;
    for path in ["/v1/chat/completions", "/v1/completions"] {
        let mut body = chat("what is a tide?");
        body["prompt"] = json!("what is a tide?");
        let plain: Value = post(&server, path, &body).await.json().await.unwrap();
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        let events = events(&post(&server, path, &body).await.text().await.unwrap());
        let choice = &plain["choices"][0];
        let text = choice["message"]["content"]
            .as_str()
            .or(choice["text"].as_str())
            .unwrap();
        assert_eq!(content(&events, 0), text);
        let last: Vec<&str> = events.iter().rev().take(3).map(String::as_str).collect();
        assert_eq!(last[0], "[DONE]");
        let usage: Value = serde_json::from_str(last[1]).unwrap();
        assert_eq!(
            (&usage["choices"], &usage["usage"]),
            (&json!([]), &plain["usage"])
        );
        let finish: Value = serde_json::from_str(last[2]).unwrap();
        assert_eq!(
            (&finish["choices"][0]["finish_reason"], &finish["usage"]),
            (&json!("stop"), &Value::Null)
        );
    }
    let calls = server.calls();
    assert_eq!(
        calls.iter().map(|c| c.seq).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    assert_eq!(calls[1].output_tokens_sent, calls[0].output_tokens_sent);
    assert!(
        calls
            .iter()
            .all(|c| c.status == Some(200) && c.finished_ms.is_some() && !c.closed_by_caller)
    );
}

#[tokio::test]
async fn max_tokens_bounds_each_of_n_choices_and_says_length() {
    let server = start_with(Config {
        output_tokens_mean: 1_000,
        ..Config::default()
    })
    .await;
    for field in ["max_tokens", "max_completion_tokens"] {
        let mut body = chat("a long story");
        body["n"] = json!(3);
        body[field] = json!(2);
        let answer: Value = post(&server, "/v1/chat/completions", &body)
            .await
            .json()
            .await
            .unwrap();
        let texts: Vec<&str> = answer["choices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["message"]["content"].as_str().unwrap())
            .collect();
        assert_eq!(texts.len(), 3);
        assert!(texts[0] != texts[1] || texts[1] != texts[2], "{texts:?}");
        assert!(texts.iter().all(|t| t.split(' ').count() == 2), "{texts:?}");
        assert_eq!(answer["choices"][2]["finish_reason"], "length");
        assert_eq!(answer["usage"]["completion_tokens"], 6);
    }
}

#[tokio::test]
async fn embeddings_come_as_numbers_or_base64_with_the_same_values() {
    let server = start().await;
    let mut body = json!({"model": "m", "input": ["one", "two"], "dimensions": 3});
    let floats: Value = post(&server, "/v1/embeddings", &body)
        .await
        .json()
        .await
        .unwrap();
    body["encoding_format"] = json!("base64");
    let encoded: Value = post(&server, "/v1/embeddings", &body)
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(floats["data"][1]["embedding"].as_array().unwrap().len(), 3);
    assert_ne!(
        floats["data"][0]["embedding"],
        floats["data"][1]["embedding"]
    );
    for (index, encoded) in encoded["data"].as_array().unwrap().iter().enumerate() {
        let bytes = decode_base64(encoded["embedding"].as_str().unwrap());
        let values: Vec<f32> = bytes
            .chunks(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let told: Vec<f32> =
            serde_json::from_value(floats["data"][index]["embedding"].clone()).unwrap();
        assert_eq!(values, told);
    }
    assert_eq!(
        floats["usage"],
        json!({"prompt_tokens": 2, "total_tokens": 2})
    );
}

fn decode_base64(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = text
        .trim_end_matches('=')
        .chars()
        .map(|c| format!("{:06b}", digits.find(c).unwrap()))
        .collect();
    bits.as_bytes()
        .chunks_exact(8)
        .map(|b| u8::from_str_radix(std::str::from_utf8(b).unwrap(), 2).unwrap())
        .collect()
}

#[tokio::test]
async fn a_caller_that_closes_is_noticed_recorded_and_gives_its_slot_back() {
    let server = start().await;
    let mut body = chat(&Script::tag("gone").chunks(1_000).chunk_ms(5).to_string());
    body["stream"] = json!(true);
    let mut response = post(&server, "/v1/chat/completions", &body).await;
    response.chunk().await.unwrap().unwrap();
    server.wait_for(SOON, |c| c.chunks_sent >= 3).await.unwrap();
    assert_eq!(server.running(), 1);
    drop(response);
    let call = server.wait_for(SOON, |c| c.closed_by_caller).await.unwrap();
    assert!(
        call.output_tokens_sent >= 3
            && call.output_tokens_sent < 1_000
            && call.finished_ms.is_none()
    );
    assert_eq!(server.running(), 0);

    // The same while nothing is sent at all.
    let quiet = tokio::spawn(post_owned(&server, Script::tag("quiet").sleep_ms(60_000)));
    server
        .wait_for(SOON, |c| {
            c.tag.as_deref() == Some("quiet") && c.started_ms.is_some()
        })
        .await
        .unwrap();
    quiet.abort();
    let call = server
        .wait_for(SOON, |c| {
            c.tag.as_deref() == Some("quiet") && c.closed_by_caller
        })
        .await
        .unwrap();
    assert!(call.closed_ms.unwrap() < call.arrived_ms + 10_000);
}

fn post_owned(
    server: &tidegate_loadtest::gpu::Server,
    script: Script,
) -> impl Future<Output = reqwest::Result<reqwest::Response>> + Send + 'static {
    common::request(server, "/v1/chat/completions", &chat(&script.to_string())).send()
}

#[tokio::test]
async fn beyond_slots_and_queue_a_call_is_refused_with_retry_after_and_the_peak_is_the_slots() {
    for busy_status in [503, 429] {
        let server = start_with(Config {
            slots: 2,
            queue: 1,
            busy_status,
            ..Config::default()
        })
        .await;
        let held: Vec<_> = (0..3)
            .map(|_| tokio::spawn(post_owned(&server, Script::tag("h").hold())))
            .collect();
        server
            .wait_for(SOON, |c| c.concurrency_at_arrival == 3)
            .await
            .unwrap();
        // The third call is counted at its arrival; it is in the queue once the server says so.
        while common::stats(&server).await["waiting"] != 1 {
            tokio::task::yield_now().await;
        }
        let refused = post(&server, "/v1/chat/completions", &chat("one more")).await;
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (busy_status, &"1".parse().unwrap())
        );
        server.release("h");
        for call in held {
            assert_eq!(call.await.unwrap().unwrap().status(), 200);
        }
        assert_eq!((server.peak(), server.running()), (2, 0));
        server.reset_log();
        assert_eq!((server.peak(), server.calls().len()), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_keep_to_a_limit_are_never_seen_above_it() {
    let server = start_with(Config {
        output_tokens_mean: 2,
        ..Config::default()
    })
    .await;
    let server = Arc::new(server);
    let callers = (0..4).map(|caller| {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            for call in 0..50 {
                let mut body = chat(&format!("caller {caller} call {call}"));
                body["stream"] = json!(call % 2 == 0);
                // A connection each: the next call never queues behind the last on the same socket.
                common::one_off(&server, "/v1/chat/completions", &body)
                    .await
                    .bytes()
                    .await
                    .unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!(server.calls().len(), 200);
    assert!((2..=4).contains(&server.peak()), "{}", server.peak());
}

#[tokio::test]
async fn an_unknown_model_is_a_404_and_the_known_ones_are_listed() {
    let server = start_with(Config {
        models: vec!["a".into(), "m".into()],
        ..Config::default()
    })
    .await;
    let list: Value = common::get(&server, "/v1/models")
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(list["data"][1]["id"], "m");
    assert_eq!(
        post(&server, "/v1/chat/completions", &chat("x"))
            .await
            .status(),
        200
    );
    let response = post(
        &server,
        "/v1/completions",
        &json!({"model": "z", "prompt": "x"}),
    )
    .await;
    assert_eq!(response.status(), 404);
    assert_eq!(
        response.json::<Value>().await.unwrap()["error"]["code"],
        "model_not_found"
    );
}

#[tokio::test]
async fn metrics_and_controls_show_what_the_record_says() {
    let server = start().await;
    let held = tokio::spawn(post_owned(&server, Script::tag("a b").hold()));
    server
        .wait_for(SOON, |c| c.started_ms.is_some())
        .await
        .unwrap();
    let metrics = common::get(&server, "/metrics").await.text().await.unwrap();
    assert!(
        metrics.contains("vllm:num_requests_running{engine=\"0\",model_name=\"sim\"} 1\n"),
        "{metrics}"
    );
    for name in ["vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"] {
        assert!(metrics.contains(name), "{metrics}");
    }
    let calls: Vec<tidegate_loadtest::gpu::Call> = common::get(&server, "/_sim/calls?tag=a%20b")
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(calls, server.calls());
    let released: Value = common::control(&server, "/_sim/release?tag=a%20b")
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(released["released"], 1);
    held.await.unwrap().unwrap();
    assert_eq!(
        common::stats(&server).await,
        json!({"peak": 1, "running": 0, "waiting": 0, "total": 1})
    );
    common::control(&server, "/_sim/reset").await;
    assert_eq!(common::stats(&server).await["total"], 0);
    assert_eq!(
        common::get(&server, "/_sim/release?tag=a").await.status(),
        405
    );
    assert_eq!(common::get(&server, "/v2").await.status(), 404);
    assert_eq!(common::get(&server, "/health").await.status(), 200);
}

#[tokio::test]
async fn the_record_keeps_the_headers_of_interest_and_no_secret() {
    let server = start().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let request = common::request(&server, "/v1/chat/completions", &chat("x"));
    request
        .bearer_auth("sk-secret")
        .header("traceparent", trace)
        .send()
        .await
        .unwrap();
    let call = &server.calls()[0];
    assert_eq!(
        (call.header("traceparent"), call.authorized()),
        (Some(trace), true)
    );
    assert_eq!(call.json().unwrap()["model"], "m");
    assert!(!format!("{call:?}").contains("sk-secret"));
}
