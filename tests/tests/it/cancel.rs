//! Case 15: a cancel wins or loses once, wherever the job is.

use std::time::Duration;

use serde_json::json;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Direction, LONG, Options, Reply, Rig, SOON, Signal, job};

use crate::common::{DELIVERIES, call, call_ended};

fn is(reply: &Reply, status: &str) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["status"], status, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_does_not_run_is_cancelled_at_once_and_never_runs() {
    let mut rig = Rig::start(
        Options {
            backoff_ms: 30_000,
            ..Options::default()
        },
        2,
        1,
        2,
    )
    .await;
    let failing = Script::tag("backoff").status(500_u16);
    let backoff = rig.api.submit(&job(failing)).await;
    rig.api.becomes(&backoff, "scheduled", SOON).await;
    rig.kill_worker(0);
    let waiting = rig.api.submit(&job(Script::tag("waiting"))).await;
    let mut delayed = job(Script::tag("delayed"));
    delayed["delay_ms"] = json!(1_500);
    let delayed = rig.api.submit(&delayed).await;
    rig.api.becomes(&delayed, "scheduled", SOON).await;
    for id in [&waiting, &delayed, &backoff] {
        let reply = rig.api.cancel(id).await;
        is(&reply, "cancelled");
        // Again: the same answer.
        let again = rig.api.cancel(id).await;
        is(&again, "cancelled");
        assert_eq!(again.json(), reply.json());
        assert_eq!(rig.api.get(id).await["status"], "cancelled");
        let result = rig
            .api
            .send(rig.api.request("GET", &format!("/v1/jobs/{id}/result")))
            .await;
        assert_ne!(result.status, 200, "{}", result.text());
    }
    rig.start_worker().await;
    // The delayed one would be due now.
    let mut later = job(Script::tag("later"));
    later["delay_ms"] = json!(2_000);
    let later = rig.api.submit(&later).await;
    rig.api.ends(&later, SOON).await;
    assert!(rig.gpu.calls_tagged("waiting").is_empty());
    assert!(rig.gpu.calls_tagged("delayed").is_empty());
    assert_eq!(rig.gpu.calls_tagged("backoff").len(), 1);
    let ended = rig.settle_check().await;
    assert_eq!(ended["cancelled"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_call_is_closed_within_a_second_of_its_cancel() {
    let mut rig = Rig::start(Options::default(), 2, 2, 2).await;
    for (tag, script) in [
        ("silent", Script::tag("silent").sleep_ms(30_000_u64)),
        (
            "stream",
            Script::tag("stream").chunks(300_u32).chunk_ms(100_u64),
        ),
    ] {
        let id = rig.api.submit(&job(script)).await;
        call(&rig, tag, 1).await;
        let asked = std::time::Instant::now();
        let reply = rig.api.cancel(&id).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let shown = reply.json();
        assert!(
            shown["status"] == "cancelled" || shown["cancel_requested"] == true,
            "{shown:#}"
        );
        let closed = call_ended(&rig, tag, 1, Duration::from_secs(1)).await;
        assert!(closed.closed_by_caller, "{closed:?}");
        let done = rig.api.ends(&id, SOON).await;
        assert_eq!(done["status"], "cancelled", "{done:#}");
        assert!(
            asked.elapsed() < Duration::from_millis(2_500),
            "{:?}",
            asked.elapsed()
        );
        is(&rig.api.cancel(&id).await, "cancelled");
    }
    // What is over stays what it is, and the answer says what.
    let id = rig.api.submit(&job(Script::tag("over").text("done"))).await;
    rig.api.ends(&id, SOON).await;
    is(&rig.api.cancel(&id).await, "succeeded");
    assert_eq!(rig.api.answer(&id).await, "done");
    let unknown = rig
        .api
        .cancel("job_default_aaaaaaaaaaaaaaaaaaaaaaaaaa")
        .await;
    assert_eq!(unknown.status, 404, "{}", unknown.text());
    let ended = rig.settle_check().await;
    assert_eq!((ended["cancelled"], ended["succeeded"]), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_cancelled_between_its_lease_and_its_call_ends_cancelled() {
    let mut rig = Rig::start(Options::default(), 1, 0, 2).await;
    rig.start_proxied_worker().await;
    let mut held = rig.proxy.hold_next(Direction::Reply, DELIVERIES);
    let id = rig
        .api
        .submit(&job(Script::tag("j").sleep_ms(30_000_u64)))
        .await;
    held.caught(SOON).await;
    rig.workers[0].signal(Signal::Stop);
    let reply = rig.api.cancel(&id).await;
    assert_eq!(reply.json()["cancel_requested"], true, "{}", reply.text());
    held.release();
    rig.workers[0].signal(Signal::Cont);
    let done = rig.api.ends(&id, LONG).await;
    assert_eq!(done["status"], "cancelled", "{done:#}");
    for call in rig.gpu.calls_tagged("j") {
        // It may have begun before its worker looked; then it was closed.
        assert!(call.closed_by_caller, "{call:?}");
    }
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_of_a_dead_worker_that_is_cancelled_does_not_run_again() {
    let mut rig = Rig::start(Options::default(), 1, 1, 2).await;
    let id = rig
        .api
        .submit(&job(Script::tag("j").sleep_ms(30_000_u64)))
        .await;
    call(&rig, "j", 1).await;
    rig.kill_worker(0);
    let reply = rig.api.cancel(&id).await;
    assert_eq!(reply.json()["cancel_requested"], true, "{}", reply.text());
    rig.start_worker().await;
    let done = rig.api.ends(&id, LONG).await;
    assert_eq!(done["status"], "cancelled", "{done:#}");
    assert_eq!(rig.gpu.calls_tagged("j").len(), 1);
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promised_cancel_outlives_the_deadline() {
    let mut rig = Rig::start(Options::default(), 1, 1, 1).await;
    let mut submission = job(Script::tag("j").hold());
    submission["deadline_ms"] = json!(1_500);
    let id = rig.api.submit(&submission).await;
    call(&rig, "j", 1).await;
    // Its worker hears nothing until the deadline has passed.
    rig.workers[0].signal(Signal::Stop);
    let reply = rig.api.cancel(&id).await;
    is(&reply, "running");
    assert_eq!(reply.json()["cancel_requested"], true);
    let done = rig.api.ends(&id, SOON).await;
    assert_eq!(done["status"], "cancelled", "{done:#}");
    rig.workers[0].signal(Signal::Cont);
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_the_store_did_not_take_is_a_503() {
    let mut rig = Rig::start(Options::default(), 1, 0, 1).await;
    let id = rig.api.submit(&job(Script::tag("j").text("ran"))).await;
    rig.store.kill();
    let reply = rig.api.cancel(&id).await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (503, "store_unavailable"),
        "{}",
        reply.text()
    );
    let retry_after: u64 = reply.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&retry_after), "{retry_after}");
    rig.store.restart().unwrap();
    rig.start_worker().await;
    let done = tidegate_tests::until(LONG, "the store is back", async || {
        let request = rig.api.request("GET", &format!("/v1/jobs/{id}"));
        let reply = rig.api.send(request).await;
        (reply.status == 200 && tidegate_tests::terminal(&reply.json())).then(|| reply.json())
    })
    .await;
    assert_eq!(done["status"], "succeeded", "{done:#}");
    rig.settle_check().await;
}
