//! Wrong command lines, and servers that are not there.

use crate::rig::{program, run, tidegate};

/// A port that nobody listens on: it was free a moment ago.
fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[tokio::test]
async fn a_wrong_command_line_ends_with_2_and_names_what_is_wrong() {
    for (arguments, says) in [
        (&["job"][..], "Usage"),
        (&["job", "lst"], "lst"),
        (&["job", "get"], "<ID>"),
        (&["job", "submit", "--model", "m"], "--prompt"),
        (&["job", "submit", "--prompt", "x"], "--model"),
        (
            &[
                "job",
                "submit",
                "--model",
                "m",
                "--prompt",
                "x",
                "--priority",
                "10",
            ],
            "--priority",
        ),
        (
            &[
                "job", "submit", "--model", "m", "--prompt", "x", "--wait", "0",
            ],
            "--wait",
        ),
        (
            &["job", "submit", "--file", "/no/such/file"],
            "/no/such/file",
        ),
        (&["job", "list", "-o", "yaml"], "yaml"),
        (&["job", "list", "--limit", "0"], "--limit"),
        (&["job", "list", "--timeout", "soon"], "--timeout"),
        (&["job", "list", "--url", "ftp://x"], "ftp://x"),
        (&["dlq", "purge"], "--all"),
        (&["dlq", "requeue", "--filter", "colour=red"], "colour"),
        (
            &["dlq", "requeue", "--all", "--filter", "pool=a"],
            "--filter",
        ),
        (&["pool", "apply"], "--file"),
        (&["pool", "apply", "-f", "/no/such/file"], "/no/such/file"),
        (&["key", "create", "--tenant", "a"], "--scope"),
        (
            &["key", "create", "--tenant", "A b", "--scope", "jobs"],
            "--tenant",
        ),
        (
            &["key", "create", "--tenant", "a", "--scope", "root"],
            "root",
        ),
        (
            &[
                "key",
                "create",
                "--tenant",
                "a",
                "--scope",
                "jobs",
                "--expires",
                "90",
            ],
            "--expires",
        ),
        (&["worker", "--watch"], "--watch"),
        (&["dev", "--redis", "redis://127.0.0.1:1"], "--redis"),
        (&["dev", "--set", "pools.default.lease_ms=1"], "lease_ms"),
    ] {
        let ran = tidegate(arguments).await;
        ran.fails(2, says);
        assert_eq!(ran.stdout, "", "{arguments:?}");
    }
}

#[tokio::test]
async fn help_and_completions_go_to_standard_output() {
    for arguments in [
        &["--help"][..],
        &["job", "submit", "--help"],
        &["--version"],
        &["completions", "zsh"],
    ] {
        let ran = tidegate(arguments).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(ran.stdout.contains("tidegate"), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_ends_with_6() {
    let port = closed_port();
    let (url, redis) = (
        format!("http://127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
    );
    for arguments in [
        &["job", "list", "--url", &url][..],
        &[
            "job", "submit", "--model", "m", "--prompt", "x", "--url", &url,
        ],
        &["dlq", "requeue", "--all", "--yes", "--url", &url],
        &["pool", "list", "--redis", &redis],
        &[
            "key", "create", "--tenant", "a", "--scope", "jobs", "--redis", &redis,
        ],
        &["dev", "--upstream", &url],
    ] {
        let ran = tidegate(arguments).await;
        ran.fails(6, &port.to_string());
        assert_eq!(ran.stdout, "", "{arguments:?}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_ends_with_124() {
    // It takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    tidegate(&["job", "list", "--url", &url, "--timeout", "0.2"])
        .await
        .fails(124, "--timeout");
}

#[tokio::test]
async fn a_key_out_of_a_file_that_is_not_there_is_named() {
    let mut command = program();
    command
        .env("TIDEGATE_API_KEY_FILE", "/no/such/key")
        .args(["job", "list"]);
    run(command).await.fails(2, "/no/such/key");
}
