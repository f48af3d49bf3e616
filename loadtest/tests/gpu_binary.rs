//! `tidegate-loadtest gpu` as a process of its own.

#![allow(clippy::unwrap_used)]

use std::process::Stdio;

use serde_json::{Value, json};
use tidegate_loadtest::gpu::Call;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

#[tokio::test]
async fn the_binary_says_where_it_listens_logs_each_call_and_ends_on_sigterm() {
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("gpu-{}.jsonl", std::process::id()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate-loadtest"))
        .args([
            "gpu",
            "--listen",
            "127.0.0.1:0",
            "--seed",
            "3",
            "--models",
            "a,b",
            "--log",
        ])
        .arg(&log)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let url = line.strip_prefix("listening on ").unwrap();
    let body = json!({"model": "b", "prompt": "[[sim tag=t; text=hi]]"});
    let answer = reqwest::Client::new()
        .post(format!("{url}/v1/completions"))
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(
        answer.json::<Value>().await.unwrap()["choices"][0]["text"],
        "hi"
    );
    let pid = child.id().unwrap().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .await
            .unwrap()
            .success()
    );
    assert!(child.wait().await.unwrap().success());
    let logged = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    let calls: Vec<Call> = logged
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(
        (
            calls.len(),
            calls[0].tag.as_deref(),
            calls[0].model.as_str()
        ),
        (1, Some("t"), "b")
    );
}
