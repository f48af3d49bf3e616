//! `tidegate pool`, `worker`, `key`, and the same commands straight at the store.

use serde_json::json;
use tidegate_shared::local::{LocalOptions, LocalServer};

use crate::rig::{Dev, MODEL, tidegate};

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_shown_steered_and_applied() {
    let dev = Dev::start(&[]).await;
    let shown = dev
        .cli(&["pool", "show", "default", "-o", "json"])
        .await
        .ok();
    assert_eq!(
        (&shown["models"], &shown["paused"]),
        (&json!([MODEL]), &json!(false)),
        "{shown:#}"
    );
    assert_eq!(
        dev.cli(&["pool", "list", "-o", "name"]).await.stdout,
        "default\n"
    );
    assert_eq!(
        dev.cli(&["pool", "pause", "default", "-o", "json"])
            .await
            .ok()["paused"],
        true
    );
    let job = dev
        .cli(&[
            "job", "submit", "--model", MODEL, "--prompt", "x", "-o", "name",
        ])
        .await;
    let demand = dev
        .cli(&["pool", "demand", "default", "-o", "json"])
        .await
        .ok();
    assert_eq!(demand["demand"], 1, "{demand:#}");
    assert_eq!(
        dev.cli(&["pool", "resume", "default", "-o", "json"])
            .await
            .ok()["paused"],
        false
    );
    assert_eq!(dev.cli(&["job", "watch", job.stdout.trim()]).await.code, 0);
    assert_eq!(
        dev.cli(&["pool", "drain", "default", "-o", "json"])
            .await
            .ok()["draining"],
        true
    );
    let refused = dev
        .cli(&["job", "submit", "--model", MODEL, "--prompt", "x"])
        .await;
    refused.fails(5, "draining");

    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    std::fs::write(file.path(), "[pools.extra]\nmodels = [\"m\"]\nslots = 3\n").unwrap();
    let change = async |more: &[&str]| {
        let applied = dev
            .cli(&[&["pool", "apply", "-f", path, "-o", "json"], more].concat())
            .await
            .ok();
        applied[0]["change"].as_str().unwrap().to_owned()
    };
    assert_eq!(change(&["--dry-run"]).await, "created");
    dev.cli(&["pool", "show", "extra"]).await.fails(3, "extra");
    assert_eq!(change(&[]).await, "created");
    assert_eq!(change(&[]).await, "unchanged");
    std::fs::write(file.path(), "[pools.extra]\nmodels = [\"m\"]\nslots = 4\n").unwrap();
    assert_eq!(change(&["--dry-run"]).await, "updated");
    assert_eq!(
        dev.cli(&["pool", "show", "extra", "-o", "json"]).await.ok()["slots"],
        3
    );
    assert_eq!(change(&[]).await, "updated");
    assert_eq!(
        dev.cli(&["pool", "show", "extra", "-o", "json"]).await.ok()["slots"],
        4
    );
    std::fs::write(file.path(), "[pools.extra]\nslotz = 4\n").unwrap();
    dev.cli(&["pool", "apply", "-f", path])
        .await
        .fails(2, "slotz");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_are_here_are_listed() {
    let dev = Dev::start(&[]).await;
    dev.job("hello", &[]).await;
    let workers = dev.cli(&["worker", "list", "-o", "json"]).await.ok();
    assert_eq!(workers.as_array().unwrap().len(), 1, "{workers:#}");
    assert_eq!(
        (&workers[0]["name"], &workers[0]["pools"]),
        (&json!("dev"), &json!(["default"])),
        "{workers:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_created_listed_without_their_secrets_and_revoked() {
    let server = LocalServer::start(LocalOptions::default()).unwrap();
    let url = server.url();
    let cli = async |arguments: &[&str]| tidegate(&[arguments, &["--redis", &url]].concat()).await;
    assert_eq!(cli(&["key", "list", "-o", "json"]).await.stdout, "[]\n");
    let created = cli(&[
        "key",
        "create",
        "--tenant",
        "acme",
        "--scope",
        "read",
        "--scope",
        "jobs",
        "--expires",
        "90d",
    ])
    .await
    .ok();
    let (id, key) = (
        created["id"].as_str().unwrap(),
        created["key"].as_str().unwrap(),
    );
    assert!(key.starts_with(&format!("tgk_{id}_")), "{created:#}");
    assert_eq!(
        (&created["tenant"], &created["scopes"]),
        (&json!("acme"), &json!(["jobs", "read"]))
    );
    let lasts =
        created["expires_at_ms"].as_u64().unwrap() - created["created_at_ms"].as_u64().unwrap();
    assert_eq!(lasts, 90 * 86_400_000);

    let listed = cli(&["key", "list", "-o", "json"]).await;
    assert_eq!(listed.ok()[0]["id"], id);
    let secret = key.rsplit('_').next().unwrap();
    assert!(
        !listed.stdout.contains(secret) && !listed.stdout.contains("hash"),
        "{listed:?}"
    );
    assert_eq!(
        cli(&["key", "list", "-o", "json", "--tenant", "other"])
            .await
            .stdout,
        "[]\n"
    );
    assert_eq!(cli(&["key", "revoke", id]).await.code, 0);
    cli(&["key", "revoke", id]).await.fails(3, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn straight_at_the_store_the_same_commands_print_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let id = {
        let mut dev = Dev::start(&["--data", data.to_str().unwrap()]).await;
        let id = dev.dead("a").await;
        let over_http = dev.cli(&["dlq", "show", &id, "-o", "json"]).await.stdout;
        std::fs::write(dir.path().join("shown"), over_http).unwrap();
        dev.running.signal("TERM");
        assert_eq!(dev.running.ended().await, 0);
        id
    };
    // The ingress is down; its store is up.
    let options = LocalOptions {
        data_dir: Some(data),
        durable: true,
        ..LocalOptions::default()
    };
    let server = LocalServer::start(options).unwrap();
    let url = server.url();
    let cli = async |arguments: &[&str]| tidegate(&[arguments, &["--redis", &url]].concat()).await;
    let shown = cli(&["dlq", "show", &id, "-o", "json"]).await;
    assert_eq!(
        shown.stdout,
        std::fs::read_to_string(dir.path().join("shown")).unwrap(),
        "{shown:?}"
    );
    assert_eq!(
        cli(&["job", "list", "-o", "name"]).await.stdout,
        format!("{id}\n")
    );
    assert_eq!(
        cli(&["pool", "pause", "default", "-o", "json"]).await.ok()["paused"],
        true
    );
    let requeued = cli(&["dlq", "requeue", &id, "-o", "json"]).await.ok();
    assert_eq!(requeued["done"], 1, "{requeued:#}");
    assert_eq!(
        cli(&["job", "cancel", &id, "-o", "json"]).await.ok()["status"],
        "cancelled"
    );
    cli(&["job", "watch", &id]).await.fails(1, "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_what_is_wrong_and_ends_with_1_only_then() {
    let server = LocalServer::start(LocalOptions {
        durable: true,
        ..LocalOptions::default()
    })
    .unwrap();
    let ran = tidegate(&["doctor", "--redis", &server.url(), "-o", "json"]).await;
    let report = ran.ok();
    assert_eq!(report["ok"], true, "{report:#}");
    let findings = report["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    for finding in findings {
        assert!(
            finding["id"].is_string() && finding["message"].is_string(),
            "{finding:#}"
        );
        assert!(
            ["pass", "warn", "fail"]
                .map(|word| json!(word))
                .contains(&finding["status"]),
            "{finding:#}"
        );
    }

    let settings = vec![
        ("maxmemory".to_owned(), "100mb".to_owned()),
        ("maxmemory-policy".to_owned(), "allkeys-lru".to_owned()),
    ];
    let server = LocalServer::start(LocalOptions {
        settings,
        ..LocalOptions::default()
    })
    .unwrap();
    let ran = tidegate(&["doctor", "--redis", &server.url(), "-o", "json"]).await;
    assert_eq!((ran.code, &ran.json()["ok"]), (1, &json!(false)), "{ran:?}");
    let table = tidegate(&["doctor", "--redis", &server.url()]).await;
    assert!(
        table.code == 1 && table.stdout.contains("fail"),
        "{table:?}"
    );

    drop(server);
    let gone = tidegate(&["doctor", "--redis", "redis://127.0.0.1:1", "-o", "json"]).await;
    assert_eq!(
        (gone.code, &gone.json()["findings"][0]["id"]),
        (6, &json!("redis.reachable")),
        "{gone:?}"
    );
}
