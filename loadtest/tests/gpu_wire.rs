//! What the simulated GPU server puts on the wire when it misbehaves, read from a bare socket.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::{chat, start};
use serde_json::json;
use tidegate_loadtest::gpu::{Config, CutHow, Script, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How the server ended a connection.
#[derive(Debug, PartialEq)]
enum End {
    Closed,
    Reset,
}

/// Sends one request and reads until the connection ends.
async fn exchange(server: &Server, request: &[u8]) -> (String, End) {
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    socket.write_all(request).await.unwrap();
    let (mut read, mut buf) = (Vec::new(), [0; 4096]);
    loop {
        match socket.read(&mut buf).await {
            Ok(0) => return (String::from_utf8_lossy(&read).into_owned(), End::Closed),
            Ok(n) => read.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => {
                return (String::from_utf8_lossy(&read).into_owned(), End::Reset);
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// A chat call with `script`, over a connection that is closed after the answer.
async fn call(server: &Server, script: &Script, stream: bool) -> (String, End) {
    let mut body = chat(&script.to_string());
    body["stream"] = json!(stream);
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: sim\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    exchange(server, format!("{head}{body}").as_bytes()).await
}

fn body_of(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

fn announced(answer: &str) -> usize {
    let line = answer
        .lines()
        .find_map(|l| l.strip_prefix("content-length: "))
        .unwrap();
    line.parse().unwrap()
}

#[tokio::test]
async fn a_body_is_cut_at_the_byte_by_close_or_by_reset() {
    let server = start().await;
    for (how, end) in [(CutHow::Close, End::Closed), (CutHow::Reset, End::Reset)] {
        let (answer, seen) = call(
            &server,
            &Script::untagged().bytes(500).cut(40).cut_how(how),
            false,
        )
        .await;
        assert_eq!((body_of(&answer).len(), seen), (40, end));
        assert!(announced(&answer) > 500);
    }
    let (answer, _) = call(&server, &Script::untagged().cut(0), false).await;
    assert_eq!(body_of(&answer), "");
    assert!(
        server
            .calls()
            .iter()
            .all(|c| c.finished_ms.is_some() && !c.closed_by_caller)
    );
}

#[tokio::test]
async fn a_plain_body_closes_short_of_what_was_announced_even_where_a_stream_was_asked_for() {
    let server = start().await;
    for stream in [false, true] {
        let (answer, end) = call(
            &server,
            &Script::untagged().text("hello").short_by(7),
            stream,
        )
        .await;
        assert_eq!(
            (body_of(&answer).len() + 7, end),
            (announced(&answer), End::Closed)
        );
    }
}

#[tokio::test]
async fn a_stream_is_cut_after_so_many_chunks_in_each_way() {
    let server = start().await;
    let script = Script::untagged().chunks(20).cut_chunks(5);
    for how in [CutHow::Close, CutHow::Reset, CutHow::Error, CutHow::Half] {
        let (answer, end) = call(&server, &script.clone().cut_how(how), true).await;
        assert_eq!(
            end,
            if how == CutHow::Reset {
                End::Reset
            } else {
                End::Closed
            }
        );
        let whole = answer.matches("\n\n").count() - usize::from(how == CutHow::Error);
        assert_eq!(whole, 1 + 5, "role and five chunks: {answer}");
        assert!(
            !answer.contains("[DONE]") && !answer.contains("\"stop\""),
            "{answer}"
        );
        assert_eq!(
            answer.ends_with("0\r\n\r\n"),
            how == CutHow::Error,
            "{answer}"
        );
        assert_eq!(
            answer.contains("\"error\":"),
            how == CutHow::Error,
            "{answer}"
        );
        let after_last = answer.rsplit_once("\n\n").unwrap().1;
        assert_eq!(
            after_last.contains("data: {"),
            how == CutHow::Half,
            "{answer}"
        );
        assert_eq!(server.calls().last().unwrap().chunks_sent, 5);
    }
}

#[tokio::test]
async fn a_refused_call_gets_no_byte() {
    let server = start().await;
    let script = Script::untagged().refuse();
    assert_eq!(
        call(&server, &script, true).await,
        (String::new(), End::Closed)
    );
    assert_eq!(
        call(&server, &script.cut_how(CutHow::Reset), true).await,
        (String::new(), End::Reset)
    );
    assert!(
        server
            .calls()
            .iter()
            .all(|c| c.status.is_none() && c.finished_ms.is_some())
    );
}

#[tokio::test]
async fn comments_only_sends_nothing_that_is_an_event() {
    let server = start().await;
    let (answer, _) = call(
        &server,
        &Script::untagged().comments_only().chunks(3).chunk_ms(1),
        true,
    )
    .await;
    assert_eq!(answer.matches(": keep-alive\n\n").count(), 3);
    assert!(!answer.contains("data:"));
}

#[tokio::test]
async fn the_head_comes_before_the_wait_for_the_first_chunk_and_after_the_sleep() {
    let server = start().await;
    let script = Script::tag("slow").hold().first_ms(200).text("x");
    let mut body = chat(&script.to_string());
    body["stream"] = json!(true);
    let asked = tokio::spawn(common::request(&server, "/v1/chat/completions", &body).send());
    let soon = Duration::from_secs(10);
    assert_eq!(
        server
            .wait_for(soon, |c| c.started_ms.is_some())
            .await
            .unwrap()
            .status,
        None
    );
    server.release("slow");
    let mut response = asked.await.unwrap().unwrap();
    assert_eq!(
        (response.status().as_u16(), server.calls()[0].chunks_sent),
        (200, 0)
    );
    let head_ms = server.calls()[0].arrived_ms;
    while response.chunk().await.unwrap().is_some() {}
    assert!(server.calls()[0].finished_ms.unwrap() >= head_ms + 200);
}

/// A caller that has the end of its answer may call again at once, and must not be counted twice. The last write of these
/// answers is larger than any socket buffer and the caller reads none of it, so the server is held in that write.
#[tokio::test]
async fn the_slot_is_free_and_the_end_recorded_before_the_last_bytes_are_out() {
    let server = start().await;
    let model = "m".repeat(16 * 1024);
    let script = Script::untagged().text("").to_string();
    let many_ends = json!({"model": model, "prompt": [script, "b", "c", "d", "e", "f", "g", "h"], "n": 128, "stream": true});
    let long = json!({"model": "m", "prompt": Script::untagged().bytes(16 << 20).to_string()});
    for body in [many_ends, long] {
        let body = body.to_string();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut socket = TcpStream::connect(server.addr()).await.unwrap();
        socket
            .write_all(format!("{head}{body}").as_bytes())
            .await
            .unwrap();
        let soon = Duration::from_secs(10);
        server
            .wait_for(soon, |c| c.status == Some(200) && c.ended())
            .await
            .unwrap();
        assert_eq!(server.running(), 0);
        drop(socket);
        server.wait_for(soon, |c| c.closed_by_caller).await.unwrap();
        server.reset_log();
    }
}

#[tokio::test]
async fn a_malformed_request_is_told_why_and_the_connection_closed() {
    let server = start().await;
    for (request, status) in [
        ("nonsense\r\n\r\n", "400"),
        ("GET /health HTTP/1.0\r\n\r\n", "505"),
        (
            "POST /v1/completions HTTP/1.1\r\ncontent-length: x\r\n\r\n",
            "400",
        ),
        (
            "POST /v1/completions HTTP/1.1\r\ncontent-length: 67108865\r\n\r\n",
            "413",
        ),
        (
            "POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "400",
        ),
    ] {
        let (answer, end) = exchange(&server, request.as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer}"
        );
        assert_eq!(end, End::Closed);
    }
}

#[tokio::test]
async fn a_chunked_request_and_the_next_on_the_same_connection_are_both_served() {
    let server = start().await;
    let body = json!({"model": "m", "prompt": "x"}).to_string();
    let (one, two) = body.split_at(5);
    let chunked = format!(
        "POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{one}\r\n{:x};x=y\r\n{two}\r\n0\r\na: b\r\n\r\n",
        one.len(),
        two.len()
    );
    let pipelined = format!("{chunked}GET /health HTTP/1.1\r\nconnection: close\r\n\r\n");
    let (answer, _) = exchange(&server, pipelined.as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{answer}");
    assert_eq!(server.calls()[0].body, body);
}

#[tokio::test]
async fn stopping_closes_the_port_and_the_calls_that_run_and_the_port_can_be_taken_again() {
    let server = start().await;
    let held = tokio::spawn(
        common::request(
            &server,
            "/v1/chat/completions",
            &chat("[[sim tag=a; hold]]"),
        )
        .send(),
    );
    server
        .wait_for(Duration::from_secs(10), |c| c.started_ms.is_some())
        .await
        .unwrap();
    server.stop().await;
    assert!(held.await.unwrap().is_err());
    assert!(TcpStream::connect(server.addr()).await.is_err());
    let again = common::start_with(Config {
        listen: server.addr(),
        ..Config::default()
    })
    .await;
    assert_eq!(common::get(&again, "/health").await.status(), 200);
}

#[tokio::test]
async fn an_impossible_setting_is_an_error_that_names_it() {
    for (config, says) in [
        (
            Config {
                slots: 0,
                ..Config::default()
            },
            "slots",
        ),
        (
            Config {
                decode_tokens_per_s: f64::NAN,
                ..Config::default()
            },
            "decode_tokens_per_s",
        ),
        (
            Config {
                busy_status: 500,
                ..Config::default()
            },
            "busy_status",
        ),
        (
            Config {
                log: Some("/".into()),
                ..Config::default()
            },
            "call log",
        ),
    ] {
        let error = Server::start(config).await.unwrap_err();
        assert!(format!("{error:#}").contains(says), "{error:#}");
    }
}
