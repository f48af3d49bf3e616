#![allow(clippy::unwrap_used)]
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use http_body_util::BodyExt as _;
use tidegate_shared::config::{Config, PoolConfig, StoreUrl};
use tidegate_shared::local::{LocalOptions, LocalServer};
use tidegate_shared::shutdown::{Shutdown, Tasks};
use tidegate_shared::store::{ApiKeyRecord, Scope, Store};
use tidegate_shared::telemetry::Metrics;

use super::*;
use crate::input::submission::judge;
use crate::service::Ask;

/// An app over a private store, silent for no longer than 20 ms, and a job in it.
async fn app_with_a_job() -> (LocalServer, Arc<App>, JobId) {
    let server = tokio::task::spawn_blocking(|| LocalServer::start(LocalOptions::default()));
    let server = server.await.unwrap().unwrap();
    let mut config = Config::default();
    config.store.url = StoreUrl::new(server.url());
    let metrics = Arc::new(Metrics::new("test"));
    let store = Store::connect(&config.store, Arc::clone(&metrics))
        .await
        .unwrap();
    let pool = "default".parse().unwrap();
    store.apply(&pool, &PoolConfig::default()).await.unwrap();
    let mut app = App::new(&config, store, metrics, Shutdown::manual(), Tasks::new());
    app.heartbeat = Duration::from_millis(20);
    let text = r#"{"body":{"model":"m","messages":[{"role":"user","content":"hi"}]}}"#;
    let submission = judge(text.as_bytes(), 64).unwrap();
    let caller = app.auth.caller(&open_headers(&app).await).await.unwrap();
    let taken = app
        .submit(&caller, submission, Ask::default())
        .await
        .unwrap();
    (server, Arc::new(app), taken.view.job.id)
}

async fn open_headers(app: &App) -> HeaderMap {
    let (record, key) = ApiKeyRecord::mint("acme", vec![Scope::Jobs], 0, None);
    app.store.put_key(&record).await.unwrap();
    HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {key}").parse().unwrap())])
}

#[tokio::test]
async fn a_waiting_stream_is_never_silent_and_ends_with_its_reader() {
    let (_server, app, id) = app_with_a_job().await;
    let answer = stream(&app, id, None, None, Hangup::default()).await;
    let mut body = answer
        .map_err(|problem| problem.code().to_owned())
        .unwrap()
        .into_body();
    let mut text = String::new();
    while text.matches(HEARTBEAT).count() < 3 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&frame).unwrap());
    }
    assert!(
        text.starts_with(HELLO) && text.contains("event: status\n"),
        "{text}"
    );
    assert_eq!(app.tasks.len(), 1);
    drop(body);
    app.tasks
        .close_and_wait(Duration::from_secs(20))
        .await
        .unwrap();
}

#[test]
fn no_text_can_end_its_field() {
    let text = event("chunk", (2, 7), "a\r\nb\rc\n\nevent: forged");
    let shown = std::str::from_utf8(&text).unwrap();
    assert_eq!(
        shown,
        "event: chunk\nid: 2-7\ndata: a\ndata: b\ndata: c\ndata: \ndata: event: forged\n\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_is_let_go_at_the_bound() {
    let (mut outlet, _body) = outlet();
    let event = Bytes::from(vec![b'x'; 100 * 1024]);
    let mut sent = 0;
    while outlet.send(event.clone()).await.is_ok() {
        sent += 1;
    }
    assert_eq!(sent, MAX_BEHIND_BYTES as usize / event.len());
    let hangup = Hangup::default();
    outlet.end(&hangup).await;
    assert!(hangup.is_hung_up());
}

#[tokio::test(start_paused = true)]
async fn small_events_are_bounded_by_their_number() {
    let (mut outlet, _body) = outlet();
    let mut sent = 0;
    while outlet.send("x".into()).await.is_ok() {
        sent += 1;
    }
    assert_eq!(sent, MAX_BEHIND_EVENTS);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_reads_gets_everything_however_large() {
    let (mut outlet, body) = outlet();
    let reading = tokio::spawn(body.collect());
    for _ in 0..5 {
        assert!(
            outlet
                .send(vec![b'x'; 3 * 1024 * 1024].into())
                .await
                .is_ok()
        );
    }
    let hangup = Hangup::default();
    outlet.end(&hangup).await;
    assert!(!hangup.is_hung_up());
    assert_eq!(
        reading.await.unwrap().unwrap().to_bytes().len(),
        15 * 1024 * 1024
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_left_holds_nobody() {
    let (mut outlet, body) = outlet();
    drop(body);
    let started = Instant::now();
    assert!(outlet.send("x".into()).await.is_err());
    let hangup = Hangup::default();
    outlet.end(&hangup).await;
    assert!(!hangup.is_hung_up() && started.elapsed() < STALL);
}
