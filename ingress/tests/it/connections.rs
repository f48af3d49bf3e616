use std::time::{Duration, Instant};

use tidegate_shared::config::AuthMode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::rig::{LONG, Rig, assert_refused, chat, send};

async fn connect(rig: &Rig) -> TcpStream {
    TcpStream::connect(rig.base.strip_prefix("http://").unwrap())
        .await
        .unwrap()
}

/// What comes until the other side ends it.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    tokio::time::timeout(LONG, stream.read_to_end(&mut bytes))
        .await
        .expect("the connection is ended")
        .unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_connection_that_says_nothing_or_not_enough_is_ended_in_time() {
    let rig = Rig::with(|config| config.ingress.header_timeout_ms = 300).await;
    for start in ["", "GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: "] {
        let opened = Instant::now();
        let mut stream = connect(&rig).await;
        stream.write_all(start.as_bytes()).await.unwrap();
        rest(&mut stream).await;
        let took = opened.elapsed();
        assert!(
            took >= Duration::from_millis(250) && took < Duration::from_secs(5),
            "{start:?}: {took:?}"
        );
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_body_that_stays_out_is_refused_in_time() {
    let rig = Rig::with(|config| {
        config.ingress.body_timeout_ms = 300;
        config.ingress.auth = AuthMode::Open;
    })
    .await;
    let mut stream = connect(&rig).await;
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 408 ") && answer.contains("request_timeout"),
        "{answer}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_length_given_twice_is_refused_even_where_both_say_the_same() {
    let rig = Rig::with(|config| config.ingress.auth = AuthMode::Open).await;
    let body = chat("hi").to_string();
    let length = format!("content-length: {}\r\n", body.len());
    for (lengths, status, code) in [
        (length.repeat(2), 400, "duplicate_key"),
        (length, 202, "queued"),
    ] {
        let mut stream = connect(&rig).await;
        let head = format!(
            "POST /v1/jobs HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n{lengths}\r\n"
        );
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .await
            .unwrap();
        let answer = rest(&mut stream).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(code),
            "{answer}"
        );
    }
    rig.stop().await;
}

#[tokio::test]
async fn the_body_of_a_refused_request_is_not_taken_for_the_next_ones_head() {
    let rig = Rig::with(|config| config.ingress.auth = AuthMode::Open).await;
    let body = "{}\ncontent-length: 1\ncontent-length: 2\n";
    let refused = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = connect(&rig).await;
    stream.write_all(refused.as_bytes()).await.unwrap();
    let mut first = [0; 1024];
    let read = stream.read(&mut first).await.unwrap();
    assert!(first[..read].starts_with(b"HTTP/1.1 415 "));
    let next = "GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream
        .write_all(format!("{body}{next}").as_bytes())
        .await
        .unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.contains("HTTP/1.1 200 "), "{answer}");
    rig.stop().await;
}

#[tokio::test]
async fn a_promise_of_too_much_is_refused_before_it_is_sent() {
    let rig = Rig::with(|config| config.ingress.auth = AuthMode::Open).await;
    let mut stream = connect(&rig).await;
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 99999999999\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 413 ") && answer.contains("body_too_large"),
        "{answer}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_drain_answers_who_waits_and_tells_everyone_to_close() {
    let rig = Rig::start().await;
    let id = rig.submit(&chat("hi")).await;
    let poll = tokio::spawn(send(rig.call("GET", &format!("/v1/jobs/{id}?wait=60"))));
    let post = tokio::spawn(send(
        rig.call("POST", "/v1/jobs")
            .header("prefer", "wait=60")
            .json(&chat("ho")),
    ));
    let events = tokio::spawn(send(rig.call("GET", &format!("/v1/jobs/{id}/events"))));
    while rig
        .store
        .snapshot(&crate::rig::default_pool())
        .await
        .unwrap()
        .queued
        < 2
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let started = Instant::now();
    rig.shutdown.start_drain();
    let (poll, post, events) = (
        poll.await.unwrap(),
        post.await.unwrap(),
        events.await.unwrap(),
    );
    assert_eq!((poll.status, poll.header("connection")), (200, "close"));
    assert_eq!((post.status, post.header("connection")), (202, "close"));
    assert!(
        events
            .text()
            .ends_with("event: reconnect\ndata: {\"reason\":\"draining\"}\n\n"),
        "{}",
        events.text()
    );
    // Not ready any more, and still there for who has not noticed.
    let ready = send(rig.http.get(format!("{}/readyz", rig.base))).await;
    assert_refused(&ready, 503, "draining", None);
    let late = rig.post(&chat("late")).await;
    assert_eq!((late.status, late.header("connection")), (202, "close"));
    rig.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn an_abort_leaves_at_once() {
    let rig = Rig::start().await;
    let id = rig.submit(&chat("hi")).await;
    let mut stream = connect(&rig).await;
    stream
        .write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n")
        .await
        .unwrap();
    assert_eq!(rig.get(&format!("/v1/jobs/{id}")).await.status, 200);
    let started = Instant::now();
    rig.shutdown.abort();
    rig.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn operators_routes_move_to_their_own_listener() {
    let mut at = None;
    let rig = Rig::with(|config| {
        // A port of our own for the test: bound, noted and given back.
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        config.ingress.admin_listen = Some(free);
        config.ingress.auth = AuthMode::Open;
        at = Some(free);
    })
    .await;
    let admin = format!("http://{}", at.unwrap());
    assert_eq!(
        send(rig.http.get(format!("{admin}/v1/pools"))).await.status,
        200
    );
    assert_eq!(
        send(rig.http.get(format!("{admin}/v1/jobs"))).await.status,
        404
    );
    assert_eq!(
        send(rig.http.get(format!("{}/v1/pools", rig.base)))
            .await
            .status,
        404
    );
    assert_eq!(
        send(rig.http.get(format!("{}/v1/jobs", rig.base)))
            .await
            .status,
        200
    );
    rig.stop().await;
}
