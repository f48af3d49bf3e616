//! Answers that are not whole, or not what they claim to be.

use tokio_util::sync::CancellationToken;

use super::rig::*;
use crate::backend::{Backend, CallOutcome, Endpoint, FailureCode, Limits};

/// Five pieces, then this.
fn after_five(rest: &str) -> String {
    let pieces: Vec<String> = (0..5).map(|n| piece(&n.to_string())).collect();
    closing_stream(&pieces.iter().map(String::as_str).collect::<Vec<_>>()) + rest
}

async fn outcome_of(rest: &str) -> CallOutcome {
    let server = say(after_five(rest)).await;
    chat(&server.url, NO_HURRY).await
}

#[tokio::test]
async fn a_stream_that_ends_without_a_finish_reason_is_incomplete() {
    let half = format!("data: {}", &finish("stop")[..40]);
    let unended = format!("data: {}\n", finish("stop"));
    for rest in ["", "data: [DONE]\n\n", &half, &unended, ": bye\n\n"] {
        let failure = failure(outcome_of(rest).await);
        assert_eq!(failure.code, FailureCode::IncompleteResponse, "{rest}");
        assert!(failure.retryable());
        assert_eq!(failure.output_tokens_so_far, 5);
        assert_eq!(
            failure.partial.unwrap(),
            r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"01234"},"finish_reason":null}]}"#
        );
    }
}

#[tokio::test]
async fn a_chunked_stream_cut_before_its_last_part_is_incomplete_only_if_unfinished() {
    for (finished, whole) in [(false, false), (true, true)] {
        let server = serve(move |mut conn| async move {
            conn.request().await;
            conn.send(SSE_HEAD).await;
            conn.event(&piece("a")).await;
            if finished {
                conn.event(&finish("length")).await;
            }
            conn.send("ff\r\ndata: {\"ch").await;
        })
        .await;
        match chat(&server.url, NO_HURRY).await {
            CallOutcome::Answered(answer) => {
                assert!(whole);
                assert_eq!(answer.finish_reasons, ["length"]);
                assert!(answer.usage.estimated);
            }
            other => {
                assert!(!whole);
                assert_eq!(failure(other).code, FailureCode::IncompleteResponse);
            }
        }
    }
}

#[tokio::test]
async fn a_length_then_a_close_is_an_answer() {
    let answer = answer(outcome_of(&format!("data: {}\n\n", finish("length"))).await);
    assert_eq!(answer.finish_reasons, ["length"]);
    assert_eq!(
        (answer.usage.output_tokens, answer.usage.estimated),
        (5, true)
    );
}

#[tokio::test]
async fn a_missing_choice_makes_an_answer_incomplete() {
    let server = say(closing_stream(&[&finish("stop")])).await;
    let request = request(Endpoint::ChatCompletions, r#"{"n":2}"#);
    let outcome = backend(&server.url)
        .call(&request, NO_HURRY, &(), &CancellationToken::new())
        .await;
    assert_eq!(failure(outcome).code, FailureCode::IncompleteResponse);
}

#[tokio::test]
async fn a_reset_in_the_middle_is_incomplete() {
    let heard = std::sync::Arc::new(Heard::default());
    let listener = std::sync::Arc::clone(&heard);
    let server = serve(|mut conn| async move {
        conn.request().await;
        conn.send(SSE_HEAD).await;
        conn.event(&piece("a")).await;
        // A reset throws away what the other side has not read yet.
        listener.until(1).await;
        conn.reset();
    })
    .await;
    let request = request(Endpoint::ChatCompletions, "{}");
    let outcome = backend(&server.url)
        .call(&request, NO_HURRY, &*heard, &CancellationToken::new())
        .await;
    let failure = failure(outcome);
    assert_eq!(
        (failure.code, failure.output_tokens_so_far),
        (FailureCode::IncompleteResponse, 1)
    );
    assert!(failure.partial.is_some());
}

#[tokio::test]
async fn an_error_event_fails_with_what_the_server_said() {
    for rest in [
        "data: {\"error\":{\"message\":\"out of memory\",\"code\":\"oom\"}}\n\n",
        "event: error\ndata: {\"message\":\"out of memory\",\"code\":\"oom\"}\n\n",
    ] {
        let failure = failure(outcome_of(rest).await);
        assert_eq!(
            (failure.code, failure.upstream_status()),
            (FailureCode::UpstreamError, None)
        );
        assert!(
            failure.message.contains("out of memory") && failure.message.contains("oom"),
            "{}",
            failure.message
        );
        assert!(failure.partial.is_some());
    }
    for code in ["400", "\"insufficient_quota\""] {
        let outcome = outcome_of(&format!(
            "data: {{\"error\":{{\"message\":\"no\",\"code\":{code}}}}}\n\n"
        ))
        .await;
        assert!(matches!(outcome, CallOutcome::Refused(_)), "{outcome:?}");
    }
}

#[tokio::test]
async fn bare_nan_is_an_invalid_response() {
    let bad = r#"{"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content":[{"logprob":NaN}]}}]}"#;
    let streamed = failure(outcome_of(&format!("data: {bad}\n\n")).await);
    let server = say(plain("200 OK", "content-type: application/json\r\n", bad)).await;
    let whole = failure(chat(&server.url, NO_HURRY).await);
    assert_eq!(
        (streamed.code, whole.code),
        (FailureCode::InvalidResponse, FailureCode::InvalidResponse)
    );
    assert_eq!(whole.partial.unwrap(), bad);
}

#[tokio::test]
async fn a_plain_body_short_of_its_length_is_incomplete() {
    // Also where what came happens to be whole JSON.
    for body in [r#"{"choices":[]"#, r#"{"choices":[]}"#] {
        let server = say(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{body}"
        ))
        .await;
        let failure = failure(chat(&server.url, NO_HURRY).await);
        assert_eq!(
            (failure.code, failure.partial.unwrap().as_ref()),
            (FailureCode::IncompleteResponse, body.as_bytes())
        );
    }
    let server = say("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"choices\":[").await;
    assert_eq!(
        failure(chat(&server.url, NO_HURRY).await).code,
        FailureCode::IncompleteResponse
    );
    for status in ["200 OK", "204 No Content"] {
        let server = say(plain(status, "", "")).await;
        assert_eq!(
            failure(chat(&server.url, NO_HURRY).await).code,
            FailureCode::IncompleteResponse
        );
    }
}

#[tokio::test]
async fn a_page_instead_of_an_answer_is_invalid() {
    let server = say(plain(
        "200 OK",
        "content-type: text/html\r\n",
        "<html>log in</html>",
    ))
    .await;
    assert_eq!(
        failure(chat(&server.url, NO_HURRY).await).code,
        FailureCode::InvalidResponse
    );
    for encoding in ["gzip", "br", "gzip, br"] {
        let server = say(plain(
            "200 OK",
            &format!("content-encoding: {encoding}\r\n"),
            "no bytes of any such encoding",
        ))
        .await;
        assert_eq!(
            failure(chat(&server.url, NO_HURRY).await).code,
            FailureCode::InvalidResponse
        );
    }
}

#[tokio::test]
async fn a_small_body_that_unpacks_to_a_huge_one_is_too_large() {
    let body = gzipped(&[b' '; 1_000_000]);
    assert!(body.len() < 2_000);
    let server = say(compressed("application/json", &body)).await;
    let failure = failure(chat(&server.url, NO_HURRY).await);
    assert_eq!(failure.code, FailureCode::ResponseTooLarge);
}

#[tokio::test]
async fn an_answer_that_is_too_large_closes_the_call_and_is_final() {
    let text = piece(&"x".repeat(100));
    let heads = [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"a\":\"",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: ",
    ];
    for (head, more) in heads.into_iter().zip([
        "xxxxxxxx".to_owned(),
        format!("data: {text}\n\n"),
        "xxxxxxxx".to_owned(),
    ]) {
        let server = serve(move |mut conn| async move {
            conn.request().await;
            conn.send(head).await;
            conn.flood(more.repeat(10).as_bytes(), std::time::Duration::ZERO)
                .await;
        })
        .await;
        let backend = Backend::new(
            &server.url,
            Limits {
                max_response_bytes: 2_000,
            },
        )
        .unwrap();
        let request = request(Endpoint::ChatCompletions, "{}");
        let failure = failure(
            backend
                .call(&request, NO_HURRY, &(), &CancellationToken::new())
                .await,
        );
        assert_eq!(
            (failure.code, failure.retryable()),
            (FailureCode::ResponseTooLarge, false)
        );
        assert_eq!(failure.partial, None);
        server.done().await;
    }
}
