//! Case 30: a planned stop of an ingress answers what it took and tells the rest where they stand.

use std::time::Duration;

use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Options, Rig, SOON, job};

use crate::common::call;

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_ingress_answers_everybody_and_resets_nobody() {
    let mut rig = Rig::start(Options::default(), 1, 1, 1).await;
    let api = rig.api.clone();
    let short = api
        .submit(&job(Script::tag("short")
            .sleep_ms(2_000_u64)
            .text("in time")))
        .await;
    let long = api
        .submit(&job(Script::tag("long").hold().text("later")))
        .await;
    call(&rig, "long", 1).await;
    call(&rig, "short", 1).await;

    // A waiting POST, a long-poll, two event streams, all on the ingress that stops.
    let post = {
        let script = Script::tag("post").sleep_ms(1_500_u64).text("posted");
        let request = api
            .request("POST", "/v1/jobs")
            .header("prefer", "wait=30")
            .json(&job(script));
        let api = api.clone();
        tokio::spawn(async move { api.send(request).await })
    };
    call(&rig, "post", 1).await;
    let poll = {
        let request = api.request("GET", &format!("/v1/jobs/{short}?wait=30"));
        let api = api.clone();
        tokio::spawn(async move { api.send(request).await })
    };
    let mut streams = Vec::new();
    for id in [&short, &long] {
        let request = api.request("GET", &format!("/v1/jobs/{id}/events"));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        streams.push(tokio::spawn(response.text()));
    }

    let told = std::time::Instant::now();
    rig.start_ingress().await;
    let at = rig.stop_ingress(0);
    let post = post.await.unwrap();
    assert!(matches!(post.status, 200 | 202), "{}", post.text());
    assert_eq!(post.header("connection"), "close", "{:?}", post.headers);
    api.note(&post.json());
    let poll = poll.await.unwrap();
    assert_eq!(poll.status, 200, "{}", poll.text());
    assert_eq!(poll.header("connection"), "close", "{:?}", poll.headers);

    let ended = streams.remove(0).await.unwrap().unwrap();
    assert!(
        ended.contains("event: terminal") || ended.contains("event: reconnect"),
        "{ended}"
    );
    let cut = streams.remove(0).await.unwrap().unwrap();
    assert!(!cut.contains("event: terminal"), "{cut}");
    assert!(
        cut.contains("event: reconnect"),
        "the reader is told to come back: {cut}"
    );
    let status = rig.gone[at].ended(Duration::from_secs(8)).await;
    assert!(status.success(), "{status}\n{}", rig.gone[at].tail());
    assert!(
        told.elapsed() < Duration::from_secs(8),
        "{:?}",
        told.elapsed()
    );

    // They come back to another one.
    rig.gpu.release("long");
    let again = api
        .send(api.request("GET", &format!("/v1/jobs/{long}/events")))
        .await;
    assert!(again.text().contains("event: terminal"), "{}", again.text());
    assert_eq!(api.ends(&short, SOON).await["status"], "succeeded");
    rig.settle_check().await;
}
