//! Servers that say no, or say nothing at all.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::rig::*;
use crate::backend::{Backends, CallOutcome, Endpoint, FailureCode, Limits};

#[tokio::test]
async fn a_final_refusal_carries_status_code_and_message() {
    let body = r#"{"error":{"message":"maximum context length is 4096","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#;
    let server = say(plain(
        "400 Bad Request",
        "content-type: application/json\r\n",
        body,
    ))
    .await;
    let CallOutcome::Refused(error) = chat(&server.url, NO_HURRY).await else {
        panic!("not refused")
    };
    assert_eq!(error.code, FailureCode::UpstreamRefused);
    assert_eq!(error.upstream.status, Some(400));
    assert_eq!(
        error.upstream.code.as_deref(),
        Some("context_length_exceeded")
    );
    assert_eq!(error.upstream.param.as_deref(), Some("messages"));
    assert_eq!(
        error.message,
        "the model server answered 400 (context_length_exceeded): maximum context length is 4096"
    );
}

#[tokio::test]
async fn a_busy_server_is_a_failure_that_carries_its_wait() {
    for (status, headers, wait) in [
        (
            "429 Too Many Requests",
            "retry-after: 1.5\r\n",
            Some(Duration::from_millis(1_500)),
        ),
        (
            "503 Service Unavailable",
            "retry-after-ms: 250\r\n",
            Some(Duration::from_millis(250)),
        ),
        ("503 Service Unavailable", "retry-after: -1\r\n", None),
        (
            "429 Too Many Requests",
            "retry-after: 999999\r\n",
            Some(Duration::from_secs(999_999)),
        ),
        (
            "503 Service Unavailable",
            "date: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: Sun, 06 Nov 1994 08:49:40 GMT\r\n",
            Some(Duration::from_secs(3)),
        ),
    ] {
        let server = say(plain(status, headers, r#"{"error":"busy"}"#)).await;
        let failure = failure(chat(&server.url, NO_HURRY).await);
        assert_eq!(
            (failure.code, failure.retry_after, failure.retryable()),
            (FailureCode::UpstreamError, wait, true)
        );
        assert_eq!(
            failure.upstream_status(),
            Some(status[..3].parse().unwrap())
        );
        assert!(failure.message.ends_with("busy"));
    }
}

#[tokio::test]
async fn an_exhausted_quota_is_final() {
    let body = r#"{"error":{"message":"no money","code":"insufficient_quota"}}"#;
    let server = say(plain("429 Too Many Requests", "", body)).await;
    assert!(matches!(
        chat(&server.url, NO_HURRY).await,
        CallOutcome::Refused(_)
    ));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let location = format!("location: http://{}/\r\n", elsewhere.local_addr().unwrap());
    let server = say(plain("307 Temporary Redirect", &location, "")).await;
    let CallOutcome::Refused(error) = chat(&server.url, NO_HURRY).await else {
        panic!("not refused")
    };
    assert_eq!(
        (error.code, error.upstream.status),
        (FailureCode::UpstreamError, Some(307))
    );
    assert_eq!(
        elsewhere.accept().unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock
    );
}

#[tokio::test]
async fn an_error_body_that_breaks_off_or_never_ends_leaves_the_status() {
    let server =
        say("HTTP/1.1 422 Unprocessable Entity\r\ncontent-length: 500\r\n\r\n{\"error\":{\"mess")
            .await;
    assert!(matches!(
        chat(&server.url, NO_HURRY).await,
        CallOutcome::Refused(_)
    ));
    let server = serve(|mut conn| async move {
        conn.request().await;
        conn.send("HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\n\r\n")
            .await;
        conn.flood(&[b'x'; 4_096], Duration::ZERO).await;
    })
    .await;
    let failure = failure(chat(&server.url, NO_HURRY).await);
    assert_eq!(failure.upstream_status(), Some(500));
    assert!(failure.message.chars().count() <= 1_000);
    server.done().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_failed_connect() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let failure = failure(chat(&format!("http://{gone}"), NO_HURRY).await);
    assert_eq!(
        (failure.code, failure.retryable(), failure.partial),
        (FailureCode::ConnectFailed, true, None)
    );
    assert!(failure.message.contains("refused"), "{}", failure.message);
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_head_is_a_failed_connect_and_one_call() {
    for reset in [false, true] {
        // A second connection would be refused, and say so.
        let server = serve(move |mut conn| async move {
            conn.request().await;
            if reset {
                conn.reset();
            }
        })
        .await;
        let failure = failure(chat(&server.url, NO_HURRY).await);
        assert_eq!(failure.code, FailureCode::ConnectFailed);
        assert!(!failure.message.contains("refused"), "{}", failure.message);
        server.done().await;
    }
}

#[tokio::test]
async fn a_head_that_is_no_http_is_an_invalid_response() {
    let server = say("SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
    assert_eq!(
        failure(chat(&server.url, NO_HURRY).await).code,
        FailureCode::InvalidResponse
    );
}

#[tokio::test]
async fn a_server_that_gave_no_connection_is_passed_over_while_another_is_there() {
    let gone = format!(
        "http://{}",
        std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
    );
    let there = "http://127.0.0.1:9";
    let backends = Backends::new(
        &[gone.as_str(), there],
        Limits {
            max_response_bytes: 1_000,
        },
    )
    .unwrap();
    let request = request(Endpoint::ChatCompletions, "{}");
    let picked = backends.pick().unwrap();
    assert_eq!(picked.backend().url(), gone);
    let outcome = picked
        .call(&request, NO_HURRY, &(), &CancellationToken::new())
        .await;
    assert_eq!(failure(outcome).code, FailureCode::ConnectFailed);
    let picks: Vec<_> = (0..4).map(|_| backends.pick().unwrap()).collect();
    assert!(picks.iter().all(|picked| picked.backend().url() == there));
}
