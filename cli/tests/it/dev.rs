//! `tidegate dev`.

use tidegate_loadtest::gpu;

use crate::rig::{Dev, MODEL, program, run};

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_off_a_terminal_shows_a_life_and_an_answer_and_ends_with_0() {
    let gpu = gpu::Server::start(gpu::Config {
        models: vec![MODEL.into()],
        ..gpu::Config::default()
    })
    .await
    .unwrap();
    let mut command = program();
    command.args(["dev", "--demo", "--port", "0", "--upstream", &gpu.url()]);
    let ran = run(command).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let calls = gpu.calls();
    assert_eq!(calls.len(), 1, "{calls:#?}");
    for says in [
        "accepted as job_default_",
        "succeeded",
        "by the store's clock",
        "store          unix://",
        "listening on http://127.0.0.1:",
        "curl -s",
    ] {
        assert!(
            ran.stdout.contains(says),
            "`{says}` is not in {}",
            ran.stdout
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_fails_where_the_answer_does_not_come() {
    let config = gpu::Config {
        models: vec![MODEL.into()],
        prefill_tokens_per_s: 1.0,
        ..gpu::Config::default()
    };
    let gpu = gpu::Server::start(config).await.unwrap();
    let mut command = program();
    command
        .args(["dev", "--demo", "--port", "0", "--upstream", &gpu.url()])
        .args([
            "--set",
            "pools.default.max_attempts=1",
            "--set",
            "pools.default.first_byte_ms=20",
        ]);
    run(command).await.fails(1, "first_byte_timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_in_order_with_0() {
    let mut dev = Dev::start(&[]).await;
    dev.running.signal("INT");
    assert_eq!(dev.running.ended().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn data_and_key_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let mut dev = Dev::start(&["--data", data]).await;
    let job = dev.job("hello", &[]).await;
    assert_eq!(job["status"], "succeeded", "{job:#}");
    let (id, key) = (job["id"].as_str().unwrap().to_owned(), dev.key.clone());
    dev.running.signal("TERM");
    assert_eq!(dev.running.ended().await, 0);

    let dev = Dev::start(&["--data", data]).await;
    assert_eq!(dev.key, key, "the key is the same");
    assert_eq!(
        dev.cli(&["job", "get", &id, "-o", "json"]).await.ok()["status"],
        "succeeded"
    );
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(dir.path().join("data/api_key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let config = gpu::Config {
        models: vec![MODEL.into()],
        ..gpu::Config::default()
    };
    let gpu = gpu::Server::start(config).await.unwrap();
    let mut command = program();
    command.args([
        "dev",
        "--headless",
        "--port",
        &port,
        "--upstream",
        &gpu.url(),
    ]);
    run(command).await.fails(1, &port);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_curl_line_works_as_it_stands() {
    let mut dev = Dev::start(&[]).await;
    let line = dev.running.line("curl ");
    // A shell reads it, as where a person pastes it; in place of curl its words are printed.
    let script = format!("curl() {{ for word; do printf '%s\\n' \"$word\"; done; }}; curl {line}");
    let output = tokio::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .await
        .unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = words.lines().collect();
    let ["-s", url, rest @ ..] = words.as_slice() else {
        panic!("{words:?}")
    };
    let mut call = reqwest::Client::new().post(*url);
    for pair in rest.chunks(2) {
        call = match (pair[0], pair[1].split_once(": ")) {
            ("-H", Some((name, value))) => call.header(name, value),
            ("-d", _) => call.body(pair[1].to_owned()),
            _ => panic!("{words:?}"),
        };
    }
    let answer = call.send().await.unwrap();
    assert_eq!(answer.status(), 200, "{words:?}");
    let job: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(job["status"], "succeeded", "{job:#}");
}
