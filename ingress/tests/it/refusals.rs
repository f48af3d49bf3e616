use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_shared::store::{ApiKeyRecord, Scope};

use crate::rig::{Reply, Rig, assert_refused, chat, default_pool, send};

async fn raw(rig: &Rig, body: impl Into<reqwest::Body>) -> Reply {
    send(
        rig.call("POST", "/v1/jobs")
            .header("content-type", "application/json")
            .body(body),
    )
    .await
}

#[tokio::test]
async fn bad_bodies_are_refused_at_once_and_leave_nothing() {
    let rig = Rig::with(|config| config.ingress.max_body_bytes = 1_000_000).await;
    let wrap = |member: &str| {
        format!(
            r#"{{"body":{{"model":"m","messages":[{{"role":"user","content":"hi"}}],{member}}}}}"#
        )
    };
    let deep = wrap(&format!("\"x\":{}", "[".repeat(100_000)));
    let flat = wrap(&format!("\"x\":[{}0]", "0,".repeat(100_000)));
    let over = wrap(&format!("\"x\":\"{}\"", "a".repeat(1_000_000)));
    let started = Instant::now();
    assert_refused(
        &raw(&rig, deep).await,
        400,
        "too_deep",
        Some(&format!("body.x{}", "[0]".repeat(63))),
    );
    assert_refused(&raw(&rig, over).await, 413, "body_too_large", None);
    assert!(started.elapsed() < Duration::from_secs(1));
    assert_refused(
        &raw(&rig, wrap("\"max_tokens\":1e400")).await,
        400,
        "invalid_value",
        Some("body.max_tokens"),
    );
    assert_refused(
        &raw(&rig, wrap("\"a\":1,\"a\":1")).await,
        400,
        "duplicate_key",
        Some("body.a"),
    );
    assert_refused(&raw(&rig, "").await, 400, "invalid_json", None);
    assert_refused(
        &raw(&rig, vec![b'"', 0xff, b'"']).await,
        400,
        "invalid_json",
        None,
    );
    assert_refused(&raw(&rig, "[1]").await, 400, "invalid_value", None);
    let text = rig
        .call("POST", "/v1/jobs")
        .header("content-type", "text/plain")
        .body("{}");
    assert_refused(&send(text).await, 415, "unsupported_media_type", None);
    let brotli = rig
        .call("POST", "/v1/jobs")
        .header("content-encoding", "br")
        .json(&chat("hi"));
    assert_refused(&send(brotli).await, 415, "unsupported_media_type", None);
    assert_eq!(rig.store.snapshot(&default_pool()).await.unwrap().jobs, 0);
    assert_eq!(raw(&rig, flat).await.status, 202);
    rig.stop().await;
}

#[tokio::test]
async fn a_packed_body_is_judged_by_what_is_in_it() {
    let rig = Rig::with(|config| config.ingress.max_body_bytes = 100_000).await;
    let pack = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    let post = |encoding: &'static str, bytes: Vec<u8>| {
        let request = rig
            .call("POST", "/v1/jobs")
            .header("content-type", "application/json");
        send(request.header("content-encoding", encoding).body(bytes))
    };
    let good = chat("hi").to_string();
    assert_eq!(post("gzip", pack(good.as_bytes())).await.status, 202);
    assert_eq!(
        post("zstd", zstd::encode_all(good.as_bytes(), 3).unwrap())
            .await
            .status,
        202
    );
    let bomb = vec![b' '; 50_000_000];
    assert_refused(
        &post("gzip", pack(&bomb)).await,
        413,
        "body_too_large",
        None,
    );
    assert_refused(
        &post("zstd", zstd::encode_all(&bomb[..], 3).unwrap()).await,
        413,
        "body_too_large",
        None,
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_key_must_be_known_alive_and_of_the_right_scope() {
    let rig = Rig::start().await;
    let good = rig.key_of("acme", &[Scope::Read]).await;
    assert_refused(
        &send(rig.call_as(&good, "POST", "/v1/jobs").json(&chat("hi"))).await,
        403,
        "forbidden",
        None,
    );
    assert_refused(
        &send(rig.call_as(&good, "PUT", "/v1/pools/a").json(&json!({}))).await,
        403,
        "forbidden",
        None,
    );
    assert_eq!(
        send(rig.call_as(&good, "GET", "/v1/pools")).await.status,
        200
    );
    assert_refused(&rig.get("/v1/pools").await, 403, "forbidden", None);

    let (expired, old) = ApiKeyRecord::mint("acme", vec![Scope::Jobs], 0, Some(1));
    rig.store.put_key(&expired).await.unwrap();
    let (id, _) = ApiKeyRecord::split(&good).unwrap();
    let wrong = format!("tgk_{id}_{}", "0".repeat(64));
    let unknown = format!("tgk_{}_{}", "0".repeat(16), "0".repeat(64));
    for key in [old.as_str(), &wrong, &unknown, "sk-something", ""] {
        let reply = send(rig.call_as(key, "GET", "/v1/jobs")).await;
        assert_refused(&reply, 401, "unauthorized", None);
        assert_eq!(reply.header("www-authenticate"), "Bearer");
    }
    assert_refused(
        &send(rig.http.get(format!("{}/v1/jobs", rig.base))).await,
        401,
        "unauthorized",
        None,
    );

    rig.store.revoke_key(id).await.unwrap();
    let revoked = Instant::now();
    while send(rig.call_as(&good, "GET", "/v1/pools")).await.status == 200 {
        assert!(
            revoked.elapsed() < Duration::from_secs(5),
            "a revoked key still opens"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    rig.stop().await;
}

#[tokio::test]
async fn headers_and_routes_are_refused_in_the_same_shape() {
    let rig = Rig::start().await;
    let twice = rig
        .call("GET", "/v1/jobs")
        .header("authorization", "Bearer other");
    assert_refused(
        &send(twice).await,
        400,
        "duplicate_key",
        Some("authorization"),
    );
    let twice = rig
        .call("POST", "/v1/jobs")
        .header("idempotency-key", "a")
        .header("idempotency-key", "b");
    assert_refused(
        &send(twice.json(&chat("hi"))).await,
        400,
        "duplicate_key",
        Some("idempotency-key"),
    );
    let key = rig
        .call("POST", "/v1/jobs")
        .header("idempotency-key", "a b")
        .json(&chat("hi"));
    assert_refused(
        &send(key).await,
        400,
        "invalid_value",
        Some("idempotency-key"),
    );
    assert_refused(&rig.get("/v1/nothing").await, 404, "not_found", None);
    assert_refused(&rig.get("/").await, 404, "not_found", None);
    let wrong = send(rig.call("DELETE", "/v1/jobs")).await;
    assert_refused(&wrong, 405, "method_not_allowed", None);
    let mut allowed: Vec<&str> = wrong.header("allow").split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    rig.stop().await;
}

#[tokio::test]
async fn what_no_pool_can_take_is_refused_by_name() {
    let rig = Rig::start().await;
    rig.store
        .apply(&"only".parse().unwrap(), &{
            let mut config = crate::rig::pool_config();
            config.models = vec!["llama".into()];
            config
        })
        .await
        .unwrap();
    let with = |name: &str, value: serde_json::Value| {
        let mut submission = chat("hi");
        submission[name] = value;
        submission
    };
    assert_refused(
        &rig.post(&with("pool", json!("nowhere"))).await,
        404,
        "not_found",
        Some("pool"),
    );
    assert_refused(
        &rig.post(&with("pool", json!("only"))).await,
        404,
        "model_not_found",
        Some("model"),
    );
    assert_refused(
        &rig.post(&with("class", json!("vip"))).await,
        400,
        "invalid_value",
        Some("class"),
    );
    rig.store
        .apply(&default_pool(), &{
            let mut config = crate::rig::pool_config();
            config.max_queued_bytes = 1024;
            config
        })
        .await
        .unwrap();
    let large = rig.post(&chat(&"x".repeat(2000))).await;
    assert_refused(&large, 400, "unsatisfiable", None);
    assert_eq!(large.header("retry-after"), "");
    rig.stop().await;
}

#[tokio::test]
async fn a_store_that_is_away_is_said_and_nothing_is_made_up() {
    let mut rig = Rig::with(|config| config.store.command_timeout_ms = 300).await;
    let id = rig.submit(&chat("hi")).await;
    let reader = rig.key_of("acme", &[Scope::Read, Scope::Jobs]).await;
    assert_eq!(
        send(rig.call_as(&reader, "GET", "/v1/pools/default/demand"))
            .await
            .json()["demand"],
        1
    );
    assert_eq!(
        send(rig.http.get(format!("{}/readyz", rig.base)))
            .await
            .status,
        200
    );
    rig.server.kill();
    for (method, path) in [
        ("GET", format!("/v1/jobs/{id}")),
        ("POST", format!("/v1/jobs/{id}/cancel")),
        ("GET", "/v1/jobs".into()),
        ("GET", "/v1/pools/default/demand".into()),
        ("GET", "/readyz".into()),
    ] {
        let reply = send(rig.call_as(&reader, method, &path)).await;
        assert_refused(&reply, 503, "store_unavailable", None);
        assert!(!reply.header("retry-after").is_empty(), "{path}");
    }
    let submit = send(rig.call_as(&reader, "POST", "/v1/jobs").json(&chat("hi"))).await;
    assert_refused(&submit, 503, "store_unavailable", None);
    assert_eq!(
        send(rig.http.get(format!("{}/livez", rig.base)))
            .await
            .status,
        200
    );
    let metrics = send(rig.http.get(format!("{}/metrics", rig.base))).await;
    assert_eq!(metrics.status, 200);
    assert!(
        !metrics.text().contains("tidegate_pool_demand_jobs{"),
        "a figure that nobody knows"
    );
    rig.stop().await;
}
