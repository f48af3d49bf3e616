use serde_json::{Map, Value, json};
use tidegate_shared::domain::{Verdict, WorkerId};
use tidegate_shared::protocol::Beat;
use tidegate_shared::store::Scope;

use crate::rig::{Reply, Rig, assert_refused, chat, default_pool, send};

async fn call(rig: &Rig, key: &str, method: &str, path: &str, body: Option<Value>) -> Reply {
    let request = rig.call_as(key, method, path);
    send(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

#[tokio::test]
async fn a_pool_is_made_shown_changed_and_switched() {
    let rig = Rig::start().await;
    let admin = rig.key_of("admin", &[Scope::Admin]).await;
    let made = call(
        &rig,
        &admin,
        "PUT",
        "/v1/pools/gpu",
        Some(json!({"slots": 3, "models": ["llama"]})),
    )
    .await;
    assert_eq!(
        (made.status, &made.json()["slots"]),
        (201, &json!(3)),
        "{}",
        made.text()
    );
    let mut shown: Map<String, Value> =
        serde_json::from_slice(&call(&rig, &admin, "GET", "/v1/pools/gpu", None).await.bytes)
            .unwrap();
    shown.insert("slots".into(), json!(5));
    let changed = call(
        &rig,
        &admin,
        "PUT",
        "/v1/pools/gpu",
        Some(Value::Object(shown)),
    )
    .await;
    assert_eq!(
        (
            changed.status,
            &changed.json()["slots"],
            &changed.json()["version"]
        ),
        (200, &json!(5), &json!(2)),
        "{}",
        changed.text()
    );
    assert_eq!(changed.json()["models"], json!(["llama"]));

    let wrong = call(
        &rig,
        &admin,
        "PUT",
        "/v1/pools/gpu",
        Some(json!({"slot": 3, "lease_ms": 1})),
    )
    .await;
    assert_eq!((wrong.status, wrong.code()), (400, "invalid_value".into()));
    let detail = wrong.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains("`slot`") && detail.contains("slots") && detail.contains("`lease_ms`"),
        "{detail}"
    );
    assert_refused(
        &call(&rig, &admin, "PUT", "/v1/pools/GPU", Some(json!({}))).await,
        400,
        "invalid_value",
        Some("pool"),
    );
    assert_refused(
        &call(&rig, &admin, "GET", "/v1/pools/nowhere", None).await,
        404,
        "not_found",
        None,
    );
    assert_refused(
        &call(&rig, &admin, "POST", "/v1/pools/nowhere/pause", None).await,
        404,
        "not_found",
        None,
    );

    let list = call(&rig, &admin, "GET", "/v1/pools", None).await.json();
    let names: Vec<&Value> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pool| &pool["id"])
        .collect();
    assert_eq!(names, [&json!("default"), &json!("gpu")]);
    let models = rig.get("/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], "llama", "{models}");

    let paused = call(&rig, &admin, "POST", "/v1/pools/default/pause", None)
        .await
        .json();
    assert_eq!(
        (&paused["paused"], &paused["gates"][0]["open"]),
        (&json!(true), &json!(false))
    );
    let id = rig.submit(&chat("hi")).await;
    assert_eq!(
        rig.get(&format!("/v1/jobs/{id}")).await.json()["pending_reason"],
        "paused"
    );
    let drained = call(&rig, &admin, "POST", "/v1/pools/default/drain", None)
        .await
        .json();
    assert_eq!(
        (&drained["paused"], &drained["draining"]),
        (&json!(true), &json!(true))
    );
    let refused = rig.post(&chat("hi")).await;
    assert_refused(&refused, 503, "draining", None);
    assert_eq!(refused.header("retry-after"), "5");
    let resumed = call(&rig, &admin, "POST", "/v1/pools/default/resume", None)
        .await
        .json();
    assert_eq!(
        (&resumed["paused"], &resumed["draining"]),
        (&json!(false), &json!(false))
    );
    rig.submit(&chat("hi")).await;
    rig.stop().await;
}

#[tokio::test]
async fn demand_and_metrics_say_what_is_owed() {
    let rig = Rig::start().await;
    let reader = rig.key_of("ops", &[Scope::Read]).await;
    let demand = async || {
        call(&rig, &reader, "GET", "/v1/pools/default/demand", None)
            .await
            .json()
    };
    assert_eq!(demand().await["demand"], 0);
    for delay_ms in [0, 0, 5_000, 3_600_000] {
        let mut submission = chat("hi");
        submission["delay_ms"] = json!(delay_ms);
        rig.submit(&submission).await;
    }
    let _running = rig.claim().await;
    let owed = demand().await;
    assert_eq!(
        (
            &owed["demand"],
            &owed["queued"],
            &owed["running"],
            &owed["scheduled_due"]
        ),
        (&json!(3), &json!(1), &json!(1), &json!(1)),
        "{owed}"
    );
    let metrics = send(rig.http.get(format!("{}/metrics", rig.base))).await;
    assert!(
        metrics
            .header("content-type")
            .starts_with("application/openmetrics-text")
    );
    for line in [
        "tidegate_pool_demand_jobs{pool=\"default\"} 3",
        "tidegate_jobs_submitted_total{pool=\"default\",class=\"default\"} 4",
        "tidegate_queue_jobs{pool=\"default\",class=\"default\",state=\"scheduled\"} 2",
    ] {
        assert!(metrics.text().contains(line), "{line}\n{}", metrics.text());
    }
    rig.stop().await;
}

#[tokio::test]
async fn workers_are_listed_once_however_many_pools_they_serve() {
    let rig = Rig::start().await;
    let reader = rig.key_of("ops", &[Scope::Read]).await;
    rig.store
        .apply(&"b".parse().unwrap(), &crate::rig::pool_config())
        .await
        .unwrap();
    for (id, pools) in [("w_1", vec!["default", "b"]), ("w_2", vec!["b"])] {
        for pool in &pools {
            let info = json!({"id": id, "object": "worker", "pools": pools}).to_string();
            let beat = Beat {
                pool: pool.parse().unwrap(),
                worker: WorkerId::mint(),
                gone: false,
                info,
            };
            rig.store.beat(&beat).await.unwrap();
        }
    }
    let list = async |query: &str| {
        let list = call(&rig, &reader, "GET", &format!("/v1/workers{query}"), None)
            .await
            .json();
        let ids: Vec<String> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|w| w["id"].as_str().unwrap().to_owned())
            .collect();
        (ids, list["has_more"] == true)
    };
    assert_eq!(list("").await, (vec!["w_1".into(), "w_2".into()], false));
    assert_eq!(list("?limit=1").await, (vec!["w_1".into()], true));
    assert_eq!(
        list("?limit=1&after=w_1").await,
        (vec!["w_2".into()], false)
    );
    assert_eq!(list("?pool=default").await, (vec!["w_1".into()], false));
    rig.stop().await;
}

#[tokio::test]
async fn a_dead_letter_is_listed_shown_requeued_and_purged() {
    let rig = Rig::start().await;
    let admin = rig.key_of("admin", &[Scope::Admin]).await;
    let mut submission = chat("hi");
    submission["max_attempts"] = json!(1);
    submission["metadata"] = json!({"a": "b"});
    let id = rig.submit(&submission).await.to_string();
    let alive = rig.submit(&chat("alive")).await;
    let die = async || {
        let delivery = rig.claim().await;
        assert_eq!(delivery.id.to_string(), id);
        let error = r#"{"code":"upstream_error","message":"boom","upstream_status":500}"#;
        rig.settle(&delivery, Verdict::Dead, b"", error).await;
    };
    die().await;
    let list = call(&rig, &admin, "GET", "/v1/dead-letters", None)
        .await
        .json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    let letter = &list["data"][0];
    assert_eq!(
        (&letter["id"], &letter["reason"], &letter["request"]),
        (&json!(id), &json!("attempts_exhausted"), &Value::Null)
    );
    let path = format!("/v1/dead-letters/{id}");
    let shown = call(&rig, &admin, "GET", &path, None).await.json();
    assert_eq!(
        (&shown["request"]["body"], &shown["metadata"]),
        (&submission["body"], &json!({"a": "b"}))
    );
    assert_eq!(shown["signature"], "attempts_exhausted/upstream_error/500");
    assert_refused(
        &call(
            &rig,
            &admin,
            "GET",
            &format!("/v1/dead-letters/{alive}"),
            None,
        )
        .await,
        404,
        "not_found",
        None,
    );
    let refused = call(
        &rig,
        &admin,
        "POST",
        &format!("/v1/dead-letters/{alive}/requeue"),
        None,
    )
    .await;
    assert_refused(&refused, 409, "conflict", None);
    assert_eq!(refused.header("x-should-retry"), "false");

    let requeue = || {
        send(
            rig.call_as(&admin, "POST", &format!("{path}/requeue"))
                .header("idempotency-key", "once"),
        )
    };
    assert_eq!(
        (requeue().await.status, requeue().await.status),
        (200, 200),
        "the same requeue twice is one"
    );
    let job = rig.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(
        (
            &job["status"],
            &job["dead"],
            &job["attempts"],
            &job["error"]
        ),
        (&json!("queued"), &json!(false), &json!(0), &Value::Null)
    );
    // It went behind the one that was there.
    let first = rig.claim().await;
    assert_eq!(first.id, alive);
    die().await;
    let purged = call(&rig, &admin, "POST", &format!("{path}/purge"), None).await;
    assert_eq!(
        (purged.status, &purged.json()["deleted"]),
        (200, &json!(true))
    );
    assert_refused(
        &rig.get(&format!("/v1/jobs/{id}")).await,
        404,
        "not_found",
        None,
    );
    assert_refused(
        &call(&rig, &admin, "POST", &format!("{path}/purge"), None).await,
        404,
        "not_found",
        None,
    );
    assert_eq!(rig.store.snapshot(&default_pool()).await.unwrap().dead, 0);
    rig.stop().await;
}
