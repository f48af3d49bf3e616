use std::collections::BTreeSet;

use serde_json::json;
use tidegate_shared::store::Scope;

use crate::rig::{Reply, Rig, assert_refused, chat, default_pool, pool_config, send};

async fn keyed(rig: &Rig, key: &str, text: &str) -> Reply {
    send(
        rig.call("POST", "/v1/jobs")
            .header("idempotency-key", key)
            .json(&chat(text)),
    )
    .await
}

#[tokio::test]
async fn fifty_at_once_over_two_ingresses_are_one_job() {
    let rig = Rig::start().await;
    let bases = [rig.base.clone(), rig.another().await];
    let calls = (0..50).map(|n| {
        let request = rig
            .http
            .post(format!("{}/v1/jobs", bases[n % 2]))
            .header("idempotency-key", "\"k\"");
        let key = rig.call("POST", "/").build().unwrap().headers()["authorization"].clone();
        tokio::spawn(send(request.header("authorization", key).json(&chat("hi"))))
    });
    let mut ids = BTreeSet::new();
    let mut first = 0;
    for call in calls.collect::<Vec<_>>() {
        let reply = call.await.unwrap();
        assert_eq!(reply.status, 202, "{}", reply.text());
        first += usize::from(reply.header("idempotency-replayed").is_empty());
        ids.insert(reply.json()["id"].as_str().unwrap().to_owned());
    }
    assert_eq!((ids.len(), first), (1, 1));
    assert_eq!(rig.store.snapshot(&default_pool()).await.unwrap().jobs, 1);
    rig.stop().await;
}

#[tokio::test]
async fn a_key_names_one_request_of_one_tenant_before_and_after_its_end() {
    let rig = Rig::start().await;
    let first = keyed(&rig, "k", "hi").await;
    assert_eq!(
        (first.status, first.header("idempotency-replayed")),
        (202, "")
    );
    let other = keyed(&rig, "k", "something else").await;
    assert_refused(&other, 422, "idempotency_mismatch", None);
    let quoted = keyed(&rig, "\"k\"", "hi").await;
    assert_eq!(
        (quoted.status, quoted.header("idempotency-replayed")),
        (202, "true")
    );
    assert_eq!(quoted.json()["id"], first.json()["id"]);

    rig.succeed(b"{}").await;
    let after = keyed(&rig, "k", "hi").await;
    assert_eq!(
        (after.status, after.header("idempotency-replayed")),
        (200, "true")
    );
    assert_eq!(
        (&after.json()["id"], &after.json()["status"]),
        (&first.json()["id"], &json!("succeeded"))
    );

    let key = rig.key_of("other", &[Scope::Jobs]).await;
    let theirs = send(
        rig.call_as(&key, "POST", "/v1/jobs")
            .header("idempotency-key", "k")
            .json(&chat("other")),
    )
    .await;
    assert_eq!(
        (theirs.status, theirs.header("idempotency-replayed")),
        (202, "")
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_refused_submit_leaves_no_key_behind() {
    let rig = Rig::start().await;
    let mut config = pool_config();
    config.max_queued = 1;
    rig.store.apply(&default_pool(), &config).await.unwrap();
    rig.submit(&chat("fills it")).await;
    let full = keyed(&rig, "k", "hi").await;
    assert_refused(&full, 503, "queue_full", None);
    assert_eq!(
        full.json()["limit"],
        json!({"name": "max_queued", "value": 1})
    );
    let seconds: u64 = full.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds));
    assert_eq!(full.header("x-should-retry"), "");
    rig.succeed(b"{}").await;
    let again = keyed(&rig, "k", "hi").await;
    assert_eq!(
        (again.status, again.header("idempotency-replayed")),
        (202, ""),
        "{}",
        again.text()
    );
    rig.stop().await;
}
