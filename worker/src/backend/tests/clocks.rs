//! The four time-outs, and giving a call up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::rig::*;
use crate::backend::{CallOutcome, Endpoint, FailureCode, Timeouts};

const SHORT: Duration = Duration::from_millis(150);

/// The failure of a call to such a server, checked to come when `SHORT` has passed and the connection to be closed.
async fn code_of<F, R>(timeouts: Timeouts, script: F) -> FailureCode
where
    F: FnOnce(Conn) -> R + Send + 'static,
    R: Future<Output = Conn> + Send + 'static,
{
    let server = serve(|conn| async move { script(conn).await.closed().await }).await;
    let started = Instant::now();
    let failure = failure(chat(&server.url, timeouts).await);
    assert!(
        started.elapsed() >= SHORT && started.elapsed() < LONG / 2,
        "{:?}",
        started.elapsed()
    );
    assert!(failure.retryable());
    server.done().await;
    failure.code
}

#[tokio::test]
async fn a_connection_that_does_not_come_to_stand_is_a_failed_connect() {
    // A listener that never answers the greeting of TLS.
    let server = serve(|mut conn| async move { conn.closed().await }).await;
    let url = server.url.replace("http:", "https:");
    let failure = failure(
        chat(
            &url,
            Timeouts {
                connect: SHORT,
                ..NO_HURRY
            },
        )
        .await,
    );
    assert_eq!(failure.code, FailureCode::ConnectFailed);
    server.done().await;
}

#[tokio::test]
async fn the_first_byte_is_one_of_the_body() {
    let timeouts = Timeouts {
        first_byte: SHORT,
        ..NO_HURRY
    };
    let silent = code_of(timeouts, |mut conn| async move {
        conn.request().await;
        conn
    });
    assert_eq!(silent.await, FailureCode::FirstByteTimeout);
    let head_only = code_of(timeouts, |mut conn| async move {
        conn.request().await;
        conn.send(SSE_HEAD).await;
        conn
    });
    assert_eq!(head_only.await, FailureCode::FirstByteTimeout);
}

#[tokio::test]
async fn silence_after_the_first_byte_is_a_stall() {
    let timeouts = Timeouts {
        between_chunks: SHORT,
        ..NO_HURRY
    };
    let stream = code_of(timeouts, |mut conn| async move {
        conn.request().await;
        conn.send(SSE_HEAD).await;
        conn.event(&piece("a")).await;
        conn
    });
    assert_eq!(stream.await, FailureCode::Stalled);
    let plain = code_of(timeouts, |mut conn| async move {
        conn.request().await;
        conn.send("HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{\"choices\"")
            .await;
        conn
    });
    assert_eq!(plain.await, FailureCode::Stalled);
}

#[tokio::test]
async fn heartbeats_do_not_hide_a_dead_model() {
    let timeouts = Timeouts {
        between_chunks: SHORT,
        ..NO_HURRY
    };
    let heartbeats = [
        "b\r\n: comment\n\n\r\n",
        "6\r\ndata:\n\r\n",
        "b\r\ndata: {}\n\n\n\r\n",
        "1\r\n:\r\n",
    ];
    for (heartbeat, pause) in heartbeats
        .into_iter()
        .flat_map(|beat| [(beat, 10), (beat, 0)])
    {
        let code = code_of(timeouts, move |mut conn| async move {
            conn.request().await;
            conn.send(SSE_HEAD).await;
            conn.flood(heartbeat.as_bytes(), Duration::from_millis(pause))
                .await;
            conn
        });
        assert_eq!(code.await, FailureCode::Stalled, "{heartbeat:?}");
    }
    let blank = code_of(timeouts, |mut conn| async move {
        conn.request().await;
        conn.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
            .await;
        conn.flood(b"\n", Duration::from_millis(10)).await;
        conn
    });
    assert_eq!(blank.await, FailureCode::Stalled);
}

#[tokio::test]
async fn steady_progress_is_no_stall_but_ends_at_the_total() {
    let each = SHORT / 3;
    let timeouts = Timeouts {
        between_chunks: SHORT,
        total: SHORT * 3,
        ..NO_HURRY
    };
    let code = code_of(timeouts, move |mut conn| async move {
        conn.request().await;
        conn.send(SSE_HEAD).await;
        let event = format!("data: {}\n\n", piece("a"));
        conn.flood(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes(), each)
            .await;
        conn
    });
    assert_eq!(code.await, FailureCode::Timeout);
}

#[tokio::test]
async fn a_finished_answer_whose_stream_stays_open_is_an_answer() {
    // Also without any hurry: what may still come after the end is not waited for as long as for an answer.
    for timeouts in [
        Timeouts {
            between_chunks: SHORT,
            ..NO_HURRY
        },
        Timeouts {
            total: SHORT,
            ..NO_HURRY
        },
        NO_HURRY,
    ] {
        let server = serve(|mut conn| async move {
            conn.request().await;
            conn.send(SSE_HEAD).await;
            conn.event(&finish("stop")).await;
            conn.closed().await;
        })
        .await;
        let started = Instant::now();
        assert_eq!(
            answer(chat(&server.url, timeouts).await).finish_reasons,
            ["stop"]
        );
        assert!(started.elapsed() < LONG / 2);
        server.done().await;
    }
}

#[tokio::test]
async fn a_cancel_closes_the_connection_at_once() {
    for streaming in [false, true] {
        let heard = Arc::new(Heard::default());
        let cancel = CancellationToken::new();
        let (listener, trigger) = (Arc::clone(&heard), cancel.clone());
        let server = serve(move |mut conn| async move {
            conn.request().await;
            if streaming {
                conn.send(SSE_HEAD).await;
                conn.event(&piece("a")).await;
                listener.until(1).await;
            }
            trigger.cancel();
            let cancelled = Instant::now();
            conn.closed().await;
            cancelled.elapsed()
        })
        .await;
        let request = request(Endpoint::ChatCompletions, "{}");
        let outcome = backend(&server.url)
            .call(&request, NO_HURRY, &*heard, &cancel)
            .await;
        let sent_tokens = u64::from(streaming);
        assert!(
            matches!(outcome, CallOutcome::Cancelled { output_tokens_so_far } if output_tokens_so_far == sent_tokens)
        );
        assert!(server.done().await < Duration::from_secs(1));
    }
}

#[tokio::test]
async fn a_call_cancelled_beforehand_is_never_made() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let backend = backend(&format!("http://{}", listener.local_addr().unwrap()));
    let outcome = backend
        .call(
            &request(Endpoint::ChatCompletions, "{}"),
            NO_HURRY,
            &(),
            &cancel,
        )
        .await;
    assert!(matches!(
        outcome,
        CallOutcome::Cancelled {
            output_tokens_so_far: 0
        }
    ));
    assert_eq!(
        listener.accept().unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock
    );
}

#[tokio::test]
async fn dropping_a_call_closes_the_connection_and_is_no_longer_counted() {
    let server = serve(|mut conn| async move {
        conn.request().await;
        conn.send(SSE_HEAD).await;
        conn.event(&piece("a")).await;
        conn.closed().await;
    })
    .await;
    let backend = backend(&server.url);
    let heard = Heard::default();
    let request = request(Endpoint::ChatCompletions, "{}");
    let never = CancellationToken::new();
    let mut call = Box::pin(backend.call(&request, NO_HURRY, &heard, &never));
    tokio::select! {
        outcome = &mut call => panic!("{outcome:?}"),
        () = heard.until(1) => assert_eq!(backend.in_flight(), 1),
    }
    drop(call);
    server.done().await;
    assert_eq!(backend.in_flight(), 0);
}

#[test]
fn a_call_may_run_on_any_thread() {
    fn is_send<T: Send>(_: &T) {}
    let backend = backend("http://127.0.0.1:9");
    let request = request(Endpoint::ChatCompletions, "{}");
    let never = CancellationToken::new();
    is_send(&backend.call(&request, NO_HURRY, &(), &never));
}
