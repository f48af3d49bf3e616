//! Case 15: a cancel within milliseconds of the completion.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Options, Rig, SOON, job};

/// Tries of a default run.
const TRIES: u64 = 160;
const TOGETHER: usize = 8;
/// How long the model works on each.
const WORK_MS: u64 = 80;

/// One try: the cancel is sent `early_us` before the answer is due (or after, where it is negative). Gives the final status.
async fn race(rig: &Rig, n: u64, early_us: i64) -> String {
    let tag = format!("r{n}");
    let id = rig
        .api
        .submit(&job(Script::tag(&tag).sleep_ms(WORK_MS).text("won")))
        .await;
    rig.gpu
        .wait_for(SOON, |c| {
            c.tag.as_deref() == Some(&tag) && c.started_ms.is_some()
        })
        .await
        .unwrap();
    let wait_us = i64::try_from(WORK_MS * 1_000).unwrap() - early_us;
    tokio::time::sleep(Duration::from_micros(u64::try_from(wait_us).unwrap_or(0))).await;
    let reply = rig.api.cancel(&id).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let said = reply.json();
    let done = rig.api.ends(&id, SOON).await;
    let status = done["status"].as_str().unwrap().to_owned();
    match said["status"].as_str().unwrap() {
        "running" => {
            assert_eq!(said["cancel_requested"], true, "{said:#}");
            assert_eq!(status, "cancelled", "said {said:#} then {done:#}");
        }
        terminal => assert_eq!(terminal, status, "said {said:#} then {done:#}"),
    }
    let again = rig.api.cancel(&id).await.json();
    assert_eq!(again["status"], *status, "{again:#}");
    let result = rig
        .api
        .send(rig.api.request("GET", &format!("/v1/jobs/{id}/result")))
        .await;
    assert_eq!(
        result.status == 200,
        status == "succeeded",
        "{status}: {}",
        result.text()
    );
    assert_eq!(rig.gpu.calls_tagged(&tag).len(), 1);
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn cancels_at_the_moment_of_completion_agree_with_the_end() {
    let options = Options {
        slots: 16,
        weight: 2,
        ..Options::default()
    };
    let rig = Arc::new(Rig::start(options, 2, 2, 2).await);
    let statuses: Vec<String> = futures_util::stream::iter(0..TRIES)
        .map(|n| {
            let rig = Arc::clone(&rig);
            // Most within 5 ms of the answer's time on either side; the answer's own way to the store takes some, too.
            let spread = i64::try_from(n % 41).unwrap() - 20;
            async move { race(&rig, n, spread * 500 - 5_000).await }
        })
        .buffer_unordered(TOGETHER)
        .collect()
        .await;
    let mut counts = BTreeMap::new();
    for status in statuses {
        *counts.entry(status).or_insert(0) += 1;
    }
    let mut rig = Arc::into_inner(rig).expect("all tries are over");
    let ended = rig.settle_check().await;
    assert_eq!(ended, counts);
    assert_eq!(
        ended.values().sum::<usize>(),
        usize::try_from(TRIES).unwrap()
    );
    assert!(
        ended.keys().all(|s| s == "cancelled" || s == "succeeded"),
        "{ended:?}"
    );
}
