use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_shared::domain::Verdict;
use tidegate_shared::store::Scope;

use crate::rig::{LONG, Rig, assert_refused, chat, send};

#[tokio::test]
async fn a_job_is_accepted_runs_and_gives_its_result_byte_for_byte() {
    let rig = Rig::start().await;
    let mut submission = chat("hi");
    submission["metadata"] = json!({"ticket": "7"});
    submission["priority"] = json!(5);
    let accepted = rig.post(&submission).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let job = accepted.json();
    let id = job["id"].as_str().unwrap();
    assert_eq!(accepted.header("location"), format!("/v1/jobs/{id}"));
    assert_eq!(accepted.header("retry-after"), "1");
    assert_eq!(
        (&job["status"], &job["tenant"], &job["class"]),
        (&json!("queued"), &json!("acme"), &json!("default"))
    );
    assert_eq!(
        (&job["priority"], &job["metadata"]["ticket"]),
        (&json!(5), &json!("7"))
    );
    assert_eq!(
        (&job["pending_reason"], &job["position"]),
        (&json!("no_worker"), &json!(0))
    );

    let early = rig.get(&format!("/v1/jobs/{id}/result")).await;
    assert_refused(&early, 409, "not_finished", None);
    assert_eq!(
        (early.header("x-should-retry"), early.header("retry-after")),
        ("true", "1")
    );

    let result = br#"{ "choices" : [ ] , "n":1.50 }"#;
    rig.succeed(result).await;
    let done = rig.get(&format!("/v1/jobs/{id}?wait=60")).await;
    assert_eq!(done.header("retry-after"), "");
    let job = done.json();
    assert_eq!(job["status"], "succeeded", "{job:#}");
    assert_eq!(
        job["usage"],
        json!({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "estimated": false})
    );
    assert_eq!(job["deliveries"][0]["outcome"], "succeed", "{job:#}");
    assert_eq!(job["metadata"]["ticket"], "7");
    assert!(
        done.text()
            .contains(r#""result":{ "choices" : [ ] , "n":1.50 }"#),
        "{}",
        done.text()
    );
    let got = rig.get(&format!("/v1/jobs/{id}/result")).await;
    assert_eq!(
        (got.status, got.header("content-type")),
        (200, "application/json")
    );
    assert_eq!(got.bytes, result);
    rig.stop().await;
}

#[tokio::test]
async fn a_large_or_deep_result_stands_at_its_own_address_alone() {
    let rig = Rig::start().await;
    for (bytes, inline) in [
        (1024 * 1024, true),
        (1024 * 1024 + 1, false),
        (5 * 1024 * 1024, false),
    ] {
        let id = rig.submit(&chat("hi")).await;
        let mut result = br#"{"a":""}"#.to_vec();
        let filling = (b'a'..=b'w').cycle().take(bytes - result.len());
        result.splice(6..6, filling.collect::<Vec<u8>>());
        rig.succeed(&result).await;
        let job = rig.get(&format!("/v1/jobs/{id}")).await.json();
        assert_eq!(job["status"], "succeeded");
        assert_eq!(job["result"].is_object(), inline, "{bytes} bytes");
        let got = rig.get(&format!("/v1/jobs/{id}/result")).await;
        assert_eq!(got.header("content-length"), bytes.to_string());
        assert!(got.bytes == result, "{bytes} bytes");
    }
    // One that is nested too deep for its readers as well: they could not read the job any more.
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let id = rig.submit(&chat("hi")).await;
    rig.succeed(deep.as_bytes()).await;
    let job = rig.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(
        (&job["status"], &job["result"]),
        (&json!("succeeded"), &json!(null))
    );
    let got = rig.get(&format!("/v1/jobs/{id}/result")).await;
    assert_eq!(got.text(), deep);
    rig.stop().await;
}

#[tokio::test]
async fn a_waiting_read_ends_with_the_job_or_with_its_time() {
    let rig = Rig::start().await;
    let id = rig.submit(&chat("hi")).await;
    let started = Instant::now();
    let waited = rig.get(&format!("/v1/jobs/{id}?wait=1")).await;
    assert_eq!(waited.json()["status"], "queued");
    assert!(started.elapsed() >= Duration::from_secs(1));

    let path = format!("/v1/jobs/{id}?wait=60");
    let (waited, ()) = tokio::join!(rig.get(&path), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        rig.succeed(b"{}").await;
    });
    assert_eq!(waited.json()["status"], "succeeded");
    assert!(started.elapsed() < LONG);
    rig.stop().await;
}

#[tokio::test]
async fn a_submit_that_would_rather_wait_gets_the_terminal_if_it_comes_in_time() {
    let rig = Rig::start().await;
    let prefer = |seconds: u32| {
        rig.call("POST", "/v1/jobs")
            .header("prefer", format!("wait={seconds}"))
            .json(&chat("hi"))
    };
    let late = send(prefer(1)).await;
    assert_eq!(
        (late.status, late.header("preference-applied")),
        (202, ""),
        "{}",
        late.text()
    );
    rig.succeed(b"{}").await;

    let (done, ()) = tokio::join!(send(prefer(30)), async {
        while rig
            .store
            .snapshot(&crate::rig::default_pool())
            .await
            .unwrap()
            .queued
            == 0
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        rig.succeed(br#"{"a":1}"#).await;
    });
    assert_eq!(
        (done.status, done.header("preference-applied")),
        (200, "wait=30"),
        "{}",
        done.text()
    );
    assert_eq!(
        (&done.json()["status"], &done.json()["result"]),
        (&json!("succeeded"), &json!({"a": 1}))
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_cancel_answers_with_the_state_that_stays() {
    let rig = Rig::start().await;
    let waiting = rig.submit(&chat("one")).await;
    for _ in 0..2 {
        let reply = send(rig.call("POST", &format!("/v1/jobs/{waiting}/cancel"))).await;
        assert_eq!(
            (reply.status, &reply.json()["status"]),
            (200, &json!("cancelled")),
            "{}",
            reply.text()
        );
        assert_eq!(reply.json()["error"]["code"], "cancelled");
    }
    let result = rig.get(&format!("/v1/jobs/{waiting}/result")).await;
    assert_refused(&result, 409, "cancelled", None);
    assert_eq!(result.header("x-should-retry"), "false");

    let running = rig.submit(&chat("two")).await;
    let delivery = rig.claim().await;
    let reply = send(rig.call("POST", &format!("/v1/jobs/{running}/cancel"))).await;
    assert_eq!(
        (&reply.json()["status"], &reply.json()["cancel_requested"]),
        (&json!("running"), &json!(true))
    );
    rig.settle(&delivery, Verdict::Succeed, b"{}", "").await;
    assert_eq!(
        rig.get(&format!("/v1/jobs/{running}")).await.json()["status"],
        "cancelled"
    );

    let done = rig.submit(&chat("three")).await;
    rig.succeed(b"{}").await;
    let reply = send(rig.call("POST", &format!("/v1/jobs/{done}/cancel"))).await;
    assert_eq!(
        (reply.status, &reply.json()["status"]),
        (200, &json!("succeeded"))
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_refused_job_answers_with_the_model_servers_own_words() {
    let rig = Rig::start().await;
    let id = rig.submit(&chat("hi")).await;
    let delivery = rig.claim().await;
    let error = r#"{"code":"upstream_refused","message":"too long","type":"invalid_request_error","param":"messages","upstream_code":"context_length_exceeded","upstream_status":400}"#;
    rig.settle(&delivery, Verdict::Fail, b"", error).await;
    let job = rig.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(
        (
            &job["status"],
            &job["dead"],
            &job["error"]["upstream_status"]
        ),
        (&json!("failed"), &json!(false), &json!(400))
    );
    let result = rig.get(&format!("/v1/jobs/{id}/result")).await;
    assert_refused(&result, 400, "upstream_refused", Some("messages"));
    assert_eq!(result.json()["detail"], "too long");
    rig.stop().await;
}

#[tokio::test]
async fn another_tenants_job_reads_like_one_that_never_was() {
    let rig = Rig::start().await;
    let theirs = rig.submit(&chat("secret")).await;
    let key = rig.key_of("other", &[Scope::Jobs]).await;
    let never = "job_default_00000000000000000000000000";
    let nowhere = "job_nowhere_00000000000000000000000000";
    for (method, tail) in [
        ("GET", ""),
        ("GET", "/result"),
        ("GET", "/events"),
        ("POST", "/cancel"),
    ] {
        let mut seen = Vec::new();
        for id in [
            theirs.to_string().as_str(),
            never,
            nowhere,
            "nonsense",
            "%ff",
        ] {
            let reply = send(rig.call_as(&key, method, &format!("/v1/jobs/{id}{tail}"))).await;
            assert_refused(&reply, 404, "not_found", None);
            let request_id = reply.header("x-request-id").to_owned();
            seen.push(reply.text().replace(&request_id, ""));
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:?}");
    }
    assert_eq!(
        rig.get(&format!("/v1/jobs/{theirs}")).await.json()["status"],
        "queued",
        "nobody cancelled it"
    );
    let admin = rig.key_of("admin", &[Scope::Admin]).await;
    assert_eq!(
        send(rig.call_as(&admin, "GET", &format!("/v1/jobs/{theirs}")))
            .await
            .status,
        200
    );
    rig.stop().await;
}

#[tokio::test]
async fn the_request_reaches_the_store_byte_for_byte_with_its_trace() {
    let rig = Rig::start().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let body = r#"{"body": { "model":"m","messages":[{"role":"user","content":"é\u00e9"}], "temperature":1e-400, "x":9007199254740993 } }"#;
    let request = rig
        .call("POST", "/v1/jobs")
        .header("traceparent", trace)
        .header("content-type", "application/json");
    let reply = send(request.body(body)).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let id = reply.json()["id"].as_str().unwrap().parse().unwrap();
    let envelope = rig.store.envelope(&id).await.unwrap().unwrap();
    assert_eq!(envelope.traceparent, trace);
    let inner = &body[body.find("{ \"model").unwrap()..body.rfind(" }").unwrap()];
    assert_eq!(String::from_utf8(envelope.body).unwrap(), inner);
    rig.stop().await;
}
