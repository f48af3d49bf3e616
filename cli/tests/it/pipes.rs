//! Readers that have enough, and people who press Ctrl-C.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::rig::{Dev, MODEL, program};

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_standard_output_ends_a_command_quietly() {
    let dev = Dev::start(&[]).await;
    for _ in 0..3 {
        dev.job("hello", &[]).await;
    }
    for arguments in [
        &["job", "list"][..],
        &["job", "list", "-o", "json", "--all"],
        &["job", "list", "-o", "jsonl", "--watch"],
        &["pool", "show", "default"],
        &["config", "show"],
        &["completions", "bash"],
    ] {
        let mut command = dev.command(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // One line is read of those that go on and on; the others meet a pipe closed from the start.
        let out = child.stdout.take().unwrap();
        if arguments.contains(&"--watch") {
            let mut line = String::new();
            BufReader::new(out).read_line(&mut line).unwrap();
        } else {
            drop(out);
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn help_into_a_closed_pipe_is_no_panic() {
    let mut child = program()
        .arg("--help")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}

/// Starts a command, waits until it has written a line to the stream, and interrupts it.
async fn interrupted(command: std::process::Command, on_stderr: bool) -> std::process::Output {
    let mut command = command;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    if on_stderr {
        BufReader::new(child.stderr.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
    } else {
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
    }
    assert!(!line.is_empty());
    let kill = std::process::Command::new("kill")
        .args(["-s", "INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    child.wait_with_output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_a_command_with_130() {
    let dev = Dev::start(&["--set", "pools.default.slots=0"]).await;
    let submitted = dev
        .cli(&[
            "job", "submit", "--model", MODEL, "--prompt", "x", "-o", "name",
        ])
        .await;
    let id = submitted.stdout.trim().to_owned();
    let output = interrupted(dev.command(&["job", "watch", &id]), true).await;
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let output = interrupted(
        dev.command(&["job", "list", "--watch", "-o", "jsonl"]),
        false,
    )
    .await;
    assert_eq!(output.status.code(), Some(130), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_bulk_command_says_how_far_it_came() {
    let dev = Dev::start(&[]).await;
    for tag in ["a", "b", "c", "d", "e"] {
        dev.dead(tag).await;
    }
    let nowhere = "job_default_00000000000000000000000000";
    let listed = dev.cli(&["dlq", "list", "-o", "name"]).await.stdout;
    let mut arguments = vec!["dlq", "purge", nowhere];
    arguments.extend(listed.lines());
    arguments.extend(["--yes", "--rate", "1", "-o", "json"]);
    let mut command = dev.command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // Once the first dead letter is gone, four are left, a second apart.
    let gone = async || {
        dev.cli(&["dlq", "list", "-o", "name"])
            .await
            .stdout
            .lines()
            .count()
            < 3
    };
    while !gone().await {}
    let kill = std::process::Command::new("kill")
        .args(["-s", "INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let counts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&counts["matched"], &counts["skipped"]),
        (&6.into(), &1.into()),
        "{counts:#}"
    );
    let done = counts["done"].as_u64().unwrap();
    assert!((1..5).contains(&done), "{counts:#}");
}
