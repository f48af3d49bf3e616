use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_shared::store::Scope;

use crate::rig::{Rig, assert_refused, chat, pool_config, send};

/// Every page of a list.
async fn walk(rig: &Rig, key: &str, path: &str) -> Vec<Vec<Value>> {
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let reply = send(rig.call_as(key, "GET", &format!("{path}{after}"))).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let list = reply.json();
        assert_eq!(list["object"], "list");
        let data = list["data"].as_array().unwrap().clone();
        assert!(
            !data.is_empty() || list["has_more"] == false,
            "an empty page before the end"
        );
        assert_eq!(
            list["last_id"],
            data.last().map_or(Value::Null, |job| job["id"].clone())
        );
        after = format!("&after={}", list["last_id"].as_str().unwrap_or_default());
        pages.push(data);
        if list["has_more"] == false {
            return pages;
        }
    }
}

#[tokio::test]
async fn a_walk_over_pools_meets_every_job_once_newest_first() {
    let rig = Rig::start().await;
    let mut config = pool_config();
    config.models = vec!["other".into()];
    rig.store
        .apply(&"a".parse().unwrap(), &config)
        .await
        .unwrap();
    let mut ids = BTreeSet::new();
    let mut order = Vec::new();
    for n in 0..25 {
        let mut submission = chat("hi");
        submission["body"]["model"] = json!(if n % 5 == 0 { "other" } else { "m" });
        order.push(rig.submit(&submission).await.to_string());
        ids.insert(order[n].clone());
    }
    let key = rig.key_of("acme", &[Scope::Jobs]).await;
    let pages = walk(&rig, &key, "/v1/jobs?limit=7").await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [7, 7, 7, 4]);
    let seen: Vec<String> = pages
        .concat()
        .iter()
        .map(|job| job["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(seen.iter().cloned().collect::<BTreeSet<_>>(), ids);
    let newest: Vec<&String> = order
        .iter()
        .rev()
        .filter(|id| id.starts_with("job_default_"))
        .collect();
    assert_eq!(seen[5..].iter().collect::<Vec<_>>(), newest);
    let exact = walk(&rig, &key, "/v1/jobs?limit=25").await;
    assert_eq!(exact.len(), 1, "a page that holds all says so");
    rig.stop().await;
}

#[tokio::test]
async fn filters_hold_and_a_rare_match_is_found_beyond_one_look() {
    let rig = Rig::start().await;
    let mut config = pool_config();
    config.max_queued = 5000;
    rig.store
        .apply(&crate::rig::default_pool(), &config)
        .await
        .unwrap();
    let mut scheduled = chat("later");
    scheduled["delay_ms"] = json!(3_600_000);
    let rare = rig.submit(&scheduled).await.to_string();
    for _ in 0..620 {
        rig.submit(&chat("hi")).await;
    }
    let key = rig.key_of("acme", &[Scope::Jobs]).await;
    let pages = walk(&rig, &key, "/v1/jobs?status=scheduled").await;
    assert_eq!(pages.len(), 1);
    assert_eq!(pages[0][0]["id"], rare);
    assert_eq!(
        walk(&rig, &key, "/v1/jobs?status=failed").await.concat(),
        Vec::<Value>::new()
    );
    assert_eq!(
        walk(&rig, &key, "/v1/jobs?pool=default&class=default&limit=100")
            .await
            .concat()
            .len(),
        621
    );
    let other = rig.key_of("other", &[Scope::Jobs]).await;
    assert_eq!(
        walk(&rig, &other, "/v1/jobs?limit=20").await.concat(),
        Vec::<Value>::new()
    );
    let admin = rig.key_of("admin", &[Scope::Admin]).await;
    assert_eq!(
        walk(&rig, &admin, "/v1/jobs?tenant=other").await.concat(),
        Vec::<Value>::new()
    );
    assert_eq!(
        walk(&rig, &admin, "/v1/jobs?tenant=acme&limit=100")
            .await
            .concat()
            .len(),
        621
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_wrong_query_is_refused_by_name() {
    let rig = Rig::start().await;
    let forged = "job_default_00000000000000000000000000";
    for (query, status, code, param) in [
        ("limit=0", 400, "invalid_value", "limit"),
        ("limit=-1", 400, "invalid_value", "limit"),
        ("limit=1000000000", 400, "invalid_value", "limit"),
        ("after=nonsense", 400, "invalid_value", "after"),
        (&format!("after={forged}"), 400, "invalid_value", "after"),
        (
            "after=job_nowhere_00000000000000000000000000",
            400,
            "invalid_value",
            "after",
        ),
        ("status=done", 400, "invalid_value", "status"),
        ("pool=nowhere", 404, "not_found", "pool"),
        ("pool=A", 400, "invalid_value", "pool"),
        ("tenant=other", 403, "forbidden", "tenant"),
        ("tenant=acme", 403, "forbidden", "tenant"),
        ("sort=asc", 400, "unsupported_parameter", "sort"),
    ] {
        let reply = rig.get(&format!("/v1/jobs?{query}")).await;
        assert_refused(&reply, status, code, Some(param));
    }
    let id = rig.submit(&chat("hi")).await;
    for bad in ["61", "-1", "x"] {
        assert_refused(
            &rig.get(&format!("/v1/jobs/{id}?wait={bad}")).await,
            400,
            "invalid_value",
            Some("wait"),
        );
    }
    rig.stop().await;
}
