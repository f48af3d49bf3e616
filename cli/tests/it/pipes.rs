//! Readers that have enough.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::rig::{Dev, program};

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
