use std::time::Duration;

use serde_json::{Value, json};
use tidegate_shared::domain::Verdict;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::rig::{LONG, Rig, assert_refused, chat, send};

#[derive(Clone, Debug, PartialEq)]
struct Event {
    kind: String,
    id: String,
    data: String,
}

fn parse(text: &str) -> Vec<Event> {
    let block = |block: &str| {
        let field = |name: &str| {
            let lines: Vec<&str> = block
                .lines()
                .filter_map(|line| line.strip_prefix(name))
                .collect();
            lines.join("\n")
        };
        let event = Event {
            kind: field("event: "),
            id: field("id: "),
            data: field("data: "),
        };
        (!event.kind.is_empty()).then_some(event)
    };
    text.split("\n\n").filter_map(block).collect()
}

fn number(id: &str) -> (u64, u64) {
    let (fence, n) = id.split_once('-').unwrap();
    (fence.parse().unwrap(), n.parse().unwrap())
}

#[tokio::test]
async fn a_stream_tells_the_life_of_a_job_in_order_over_two_deliveries() {
    let rig = Rig::start().await;
    let id = rig.submit(&chat("hi")).await;
    let mut response = rig
        .call("GET", &format!("/v1/jobs/{id}/events"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    // Reads on until the text has what is waited for.
    let mut until = async |what: &str, text: &mut String| {
        while !text.contains(what) {
            let piece = tokio::time::timeout(LONG, response.chunk())
                .await
                .expect("something comes")
                .unwrap();
            let piece = piece.unwrap_or_else(|| panic!("it ended without {what}: {text}"));
            text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    };
    until("\"status\":\"queued\"", &mut text).await;
    let first = rig.claim().await;
    rig.append(&first, 1, &["{\"n\":1}", "{\"n\":2}"]).await;
    until("{\"n\":2}", &mut text).await;
    rig.settle(
        &first,
        Verdict::Retry,
        b"",
        r#"{"code":"upstream_error","message":"again"}"#,
    )
    .await;
    let second = loop {
        let counts = rig
            .store
            .snapshot(&crate::rig::default_pool())
            .await
            .unwrap();
        if counts.queued + counts.scheduled > 0 {
            break rig.claim().await;
        }
    };
    rig.append(&second, 1, &["{\"n\":1}"]).await;
    rig.settle(&second, Verdict::Succeed, b"{}", "").await;
    until("event: terminal", &mut text).await;
    until("\"status\":\"succeeded\"", &mut text).await;

    let events = parse(&text);
    let chunks: Vec<&str> = events
        .iter()
        .filter(|e| e.kind == "chunk")
        .map(|e| e.id.as_str())
        .collect();
    assert_eq!(chunks, ["1-1", "1-2", "2-1"]);
    let ids: Vec<(u64, u64)> = events.iter().map(|e| number(&e.id)).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    let last = events.last().unwrap();
    assert_eq!(last.kind, "terminal");
    let job: Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!(
        (&job["id"], &job["attempts"]),
        (&json!(id.to_string()), &json!(2))
    );
    let states: Vec<Value> = events
        .iter()
        .filter(|e| e.kind == "status")
        .map(|e| serde_json::from_str::<Value>(&e.data).unwrap()["status"].clone())
        .collect();
    assert_eq!(states.first(), Some(&json!("queued")));
    assert!(states.contains(&json!("running")), "{states:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_reader_comes_back_to_another_ingress_where_it_left_off() {
    let rig = Rig::start().await;
    let id = rig.submit(&chat("hi")).await;
    let path = format!("/v1/jobs/{id}/events");
    let delivery = rig.claim().await;
    rig.store
        .follow(&tidegate_shared::protocol::Follow {
            id: id.clone(),
            tenant: None,
        })
        .await
        .unwrap();
    rig.append(&delivery, 1, &["a", "b", "c\nd"]).await;
    rig.settle(&delivery, Verdict::Succeed, b"{}", "").await;

    let whole = parse(&rig.get(&path).await.text());
    assert_eq!(
        whole.iter().map(|e| e.kind.as_str()).collect::<Vec<_>>(),
        ["chunk", "chunk", "chunk", "terminal"]
    );
    assert_eq!(whole[2].data, "c\nd");
    let base = rig.another().await;
    for (seen, left) in [(0, 3), (1, 2), (2, 1), (3, 1)] {
        let request = rig.call("GET", &path).build().unwrap();
        let again = rig
            .http
            .get(format!("{base}{path}"))
            .headers(request.headers().clone());
        let reply = send(again.header("last-event-id", &whole[seen].id)).await;
        let events = parse(&reply.text());
        assert_eq!(
            events,
            whole[whole.len() - left..],
            "after {}",
            whole[seen].id
        );
    }
    let bad = rig.call("GET", &path).header("last-event-id", "x");
    assert_refused(
        &send(bad).await,
        400,
        "invalid_value",
        Some("last-event-id"),
    );
    rig.stop().await;
}

#[tokio::test]
async fn an_event_comes_within_the_moment_of_what_it_tells() {
    let rig = Rig::start().await;
    let id = rig.submit(&chat("hi")).await;
    let delivery = rig.claim().await;
    let mut response = rig
        .call("GET", &format!("/v1/jobs/{id}/events"))
        .send()
        .await
        .unwrap();
    response.chunk().await.unwrap();
    let started = std::time::Instant::now();
    for n in 1..=10 {
        rig.append(&delivery, n, &[&format!("piece {n}.")]).await;
        let mut text = String::new();
        while !text.contains(&format!("piece {n}.")) {
            text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
        }
    }
    // Ten polls of a second each would take ten.
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_full_store_still_tells_where_a_job_stands() {
    let rig = Rig::start().await;
    let id = rig.submit(&chat("hi")).await;
    let path = rig.server.url();
    let mut server = UnixStream::connect(path.strip_prefix("unix://").unwrap())
        .await
        .unwrap();
    server
        .write_all(b"CONFIG SET maxmemory 1\r\n")
        .await
        .unwrap();
    let mut ok = [0; 5];
    server.read_exact(&mut ok).await.unwrap();
    assert_eq!(&ok, b"+OK\r\n");

    let mut response = rig
        .call("GET", &format!("/v1/jobs/{id}/events"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let mut text = String::new();
    while !text.contains("event: status") {
        text += std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap();
    }
    drop(response);
    rig.stop().await;
}
