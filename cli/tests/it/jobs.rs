//! `tidegate job` against a running ingress, and straight at its store.

use serde_json::{Value, json};
use tidegate_loadtest::gpu::Script;

use crate::rig::{Dev, MODEL, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_submitted_waited_for_listed_read_and_its_result_written() {
    let dev = Dev::start(&[]).await;
    let prompt = Script::untagged().text("the tide is high").to_string();
    let job = dev
        .job(&prompt, &["--priority", "7", "--idempotency-key", "k1"])
        .await;
    let id = job["id"].as_str().unwrap();
    assert_eq!(
        (&job["status"], &job["priority"]),
        (&json!("succeeded"), &json!(7)),
        "{job:#}"
    );
    let again = dev
        .job(&prompt, &["--priority", "7", "--idempotency-key", "k1"])
        .await;
    assert_eq!(again["id"], id, "the same key and body is the same job");

    let result = dev.cli(&["job", "result", id]).await.ok();
    assert_eq!(
        result["choices"][0]["message"]["content"], "the tide is high",
        "{result:#}"
    );

    assert_eq!(
        dev.cli(&["job", "get", id, "-o", "json"]).await.ok()["id"],
        id
    );
    let listed = dev.cli(&["job", "list", "-o", "json"]).await.ok();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    let names = dev
        .cli(&["job", "list", "-o", "name", "--status", "succeeded"])
        .await;
    assert_eq!(names.stdout, format!("{id}\n"));
    let lines = dev.cli(&["job", "list", "-o", "jsonl"]).await.stdout;
    assert_eq!(
        serde_json::from_str::<Value>(lines.trim_end()).unwrap()["id"],
        id
    );
    assert_eq!(
        dev.cli(&["job", "list", "-o", "json", "--status", "queued"])
            .await
            .stdout,
        "[]\n"
    );

    let table = dev.cli(&["job", "list"]).await;
    assert!(
        table.stdout.starts_with("ID") && table.stdout.contains(id),
        "{table:?}"
    );
    assert!(
        !table.stdout.contains('\u{1b}'),
        "no colour off a terminal: {table:?}"
    );
    let wide = dev.cli(&["job", "list", "-o", "wide"]).await;
    assert!(
        wide.stdout.contains("TENANT") && !table.stdout.contains("TENANT"),
        "{wide:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_walked_page_by_page() {
    let dev = Dev::start(&["--set", "pools.default.slots=0"]).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let job = dev
            .cli(&[
                "job",
                "submit",
                "--model",
                MODEL,
                "--prompt",
                &n.to_string(),
                "-o",
                "json",
            ])
            .await
            .ok();
        ids.insert(0, job["id"].as_str().unwrap().to_owned());
    }
    let of = async |more: &[&str]| {
        let listed = dev
            .cli(&[&["job", "list", "-o", "name"], more].concat())
            .await;
        listed.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of(&["--all"]).await, ids);
    assert_eq!(of(&["--limit", "2"]).await, ids[..2]);
    assert_eq!(of(&["--limit", "2", "--after", &ids[1]]).await, ids[2..4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_out_of_a_file_reaches_the_model_number_for_number() {
    let dev = Dev::start(&[]).await;
    let body = format!(
        r#"{{"model": "{MODEL}", "messages": [{{"role": "user", "content": "hi"}}], "temperature": 0.50, "x_ours": 12345678901234567890}}"#
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &body).unwrap();
    let path = file.path().to_str().unwrap();
    let job = dev
        .cli(&[
            "job", "submit", "--file", path, "--wait", "30", "-o", "json",
        ])
        .await
        .ok();
    assert_eq!(job["status"], "succeeded", "{job:#}");
    let sent = format!("{:?}", dev.gpu.calls());
    assert!(
        sent.contains("12345678901234567890") && sent.contains("0.50"),
        "{sent}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_on_standard_input_is_a_job_too() {
    let dev = Dev::start(&[]).await;
    let mut command =
        tokio::process::Command::from(dev.command(&["job", "submit", "-", "-o", "json"]));
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let body =
        format!(r#"{{"model": "{MODEL}", "messages": [{{"role": "user", "content": "hi"}}]}}"#);
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, body.as_bytes())
        .await
        .unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(job["model"], MODEL, "{job:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_job_gives_its_text_on_standard_output_and_its_states_beside_it() {
    let dev = Dev::start(&[]).await;
    let prompt = Script::untagged()
        .text("one two three four")
        .chunks(4_u32)
        .chunk_ms(30_u64)
        .to_string();
    let submitted = dev
        .cli(&[
            "job", "submit", "--model", MODEL, "--prompt", &prompt, "-o", "json",
        ])
        .await
        .ok();
    let watched = dev
        .cli(&["job", "watch", submitted["id"].as_str().unwrap()])
        .await;
    assert_eq!(watched.code, 0, "{watched:?}");
    assert!(watched.stderr.contains("succeeded"), "{watched:?}");
    assert!(!watched.stdout.contains("succeeded"), "{watched:?}");
    let events = dev
        .cli(&[
            "job",
            "watch",
            submitted["id"].as_str().unwrap(),
            "-o",
            "jsonl",
        ])
        .await;
    let last: Value = serde_json::from_str(events.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["event"], events.code),
        (&json!("terminal"), 0),
        "{last:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_ends_the_wait_with_1_and_its_error() {
    let dev = Dev::start(&[]).await;
    let prompt = Script::untagged().status(400_u16).to_string();
    let ran = dev
        .cli(&[
            "job", "submit", "--model", MODEL, "--prompt", &prompt, "--wait", "30", "-o", "json",
        ])
        .await;
    ran.fails(1, "upstream_refused");
    let id = ran.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(ran.json()["status"], "failed");
    dev.cli(&["job", "watch", &id])
        .await
        .fails(1, "upstream_refused");
    dev.cli(&["job", "result", &id])
        .await
        .fails(1, "upstream_refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_over_ends_with_124_and_the_job_goes_on() {
    let dev = Dev::start(&[]).await;
    let prompt = Script::tag("held").hold().to_string();
    let ran = dev
        .cli(&[
            "job", "submit", "--model", MODEL, "--prompt", &prompt, "--wait", "0.3", "-o", "json",
        ])
        .await;
    ran.fails(124, "goes on");
    let id = ran.json()["id"].as_str().unwrap().to_owned();
    dev.cli(&["job", "result", &id])
        .await
        .fails(5, "not_finished");

    let cancelled = dev.cli(&["job", "cancel", &id, "-o", "json"]).await.ok();
    assert!(
        cancelled["cancel_requested"] == true || cancelled["status"] == "cancelled",
        "{cancelled:#}"
    );
    let watched = dev.cli(&["job", "watch", &id]).await;
    watched.fails(1, "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_ends_with_3_and_a_wrong_key_with_4() {
    let dev = Dev::start(&[]).await;
    let nowhere = "job_default_00000000000000000000000000";
    for arguments in [
        &["job", "get", nowhere][..],
        &["job", "watch", nowhere],
        &["job", "result", nowhere],
        &["job", "cancel", nowhere],
        &["job", "get", "nonsense"],
        &["dlq", "show", nowhere],
        &["pool", "show", "nowhere"],
        &["pool", "demand", "nowhere"],
        &["job", "submit", "--model", "unknown-model", "--prompt", "x"],
    ] {
        let ran = dev.cli(arguments).await;
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (3, ""),
            "{arguments:?}: {ran:?}"
        );
        assert!(!ran.stderr.is_empty(), "{arguments:?}");
    }
    dev.cli(&["job", "list", "--api-key", "tgk_0000000000000000_00"])
        .await
        .fails(4, "unauthorized");
    let mut without = dev.command(&["job", "list"]);
    without.env_remove("TIDEGATE_API_KEY");
    run(without).await.fails(4, "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_jobs_are_cancelled_off_a_terminal_only_with_yes() {
    let dev = Dev::start(&["--set", "pools.default.slots=0"]).await;
    let submit = async || {
        let job = dev
            .cli(&[
                "job", "submit", "--model", MODEL, "--prompt", "x", "-o", "name",
            ])
            .await;
        job.stdout.trim().to_owned()
    };
    let (a, b) = (submit().await, submit().await);
    dev.cli(&["job", "cancel", &a, &b]).await.fails(2, "--yes");
    assert_eq!(
        dev.cli(&["job", "get", &a, "-o", "json"]).await.ok()["status"],
        "queued"
    );
    let nowhere = "job_default_00000000000000000000000000";
    let partly = dev
        .cli(&["job", "cancel", &a, &b, nowhere, "--yes", "-o", "json"])
        .await;
    partly.fails(5, nowhere);
    let done = partly.json();
    assert_eq!(
        done.as_array()
            .unwrap()
            .iter()
            .filter(|job| job["status"] == "cancelled")
            .count(),
        2,
        "{done:#}"
    );
}
