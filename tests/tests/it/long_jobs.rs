//! Case 6: a healthy job is never handed out again, however long it takes and however busy its worker is.

use std::time::Duration;

use serde_json::json;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Direction, LONG, Options, Rig, SOON, Signal, job};

use crate::common::{call_ended, on_a_calm_machine, outcomes, ran_just_once, sequence};

/// Far beyond a lease.
const LONG_JOB_MS: u64 = 8_000;
/// Where a tenth of a second decides, a machine that stands still for half of it says nothing of the product.
const STALL: Duration = Duration::from_millis(50);

async fn each_ran_just_once(rig: &Rig, jobs: &[(String, String)]) {
    for (id, tag) in jobs {
        ran_just_once(&rig.api.ends(id, LONG).await);
        assert_eq!(rig.gpu.calls_tagged(tag).len(), 1, "{tag}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_many_leases_is_called_for_once() {
    let mut rig = Rig::start(Options::default(), 2, 3, 2).await;
    let mut jobs = Vec::new();
    let silent = Script::tag("silent").sleep_ms(4 * LONG_JOB_MS / 3);
    let chunks = u32::try_from(LONG_JOB_MS / 200).unwrap();
    let flowing = Script::tag("flowing").chunks(chunks).chunk_ms(200_u64);
    for (tag, script) in [("silent", silent), ("flowing", flowing)] {
        jobs.push((rig.api.submit(&job(script)).await, tag.to_owned()));
    }
    let large = "word ".repeat(1_000_000);
    let slow = Script::tag("large").sleep_ms(LONG_JOB_MS / 2).text("read");
    let id = rig.api.submit(&job(format!("{large}{slow}"))).await;
    jobs.push((id, "large".into()));
    each_ran_just_once(&rig, &jobs).await;
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_streams_of_a_megabyte_do_not_starve_the_renewals() {
    let options = Options {
        slots: 200,
        max_queued: 300,
        weight: 4,
        ..Options::default()
    };
    // Idle workers would take what lapses; one worker has all the streams.
    let mut rig = Rig::start(options, 2, 1, 2).await;
    let mut jobs = Vec::new();
    for n in 0..200 {
        let tag = format!("s{n}");
        let script = Script::tag(&tag)
            .bytes(1_000_000_u64)
            .chunks(100)
            .chunk_ms(60_u64);
        jobs.push((rig.api.submit(&job(script)).await, tag));
    }
    rig.start_worker().await;
    each_ran_just_once(&rig, &jobs).await;
    assert_eq!(rig.api.answer(&jobs[7].0).await.len(), 1_000_000);
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_fifth_of_a_processor_keeps_its_leases() {
    on_a_calm_machine(STALL, with_a_fifth_of_a_processor).await;
}

async fn with_a_fifth_of_a_processor() {
    let alone = Options {
        weight: 4,
        ..Options::default()
    };
    let mut rig = Rig::start(alone, 1, 1, 2).await;
    let mut jobs = Vec::new();
    for n in 0..3 {
        let tag = format!("d{n}");
        let script = Script::tag(&tag).chunks(60).chunk_ms(100_u64);
        jobs.push((rig.api.submit(&job(script)).await, tag));
    }
    for (_, tag) in &jobs {
        crate::common::call(&rig, tag, 1).await;
    }
    rig.start_worker().await;
    // 20 ms on, 80 ms off.
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(LONG_JOB_MS) {
        rig.workers[0].signal(Signal::Stop);
        tokio::time::sleep(Duration::from_millis(80)).await;
        rig.workers[0].signal(Signal::Cont);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    each_ran_just_once(&rig, &jobs).await;
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_answers_late_loses_no_lease() {
    on_a_calm_machine(STALL, with_late_answers).await;
}

async fn with_late_answers() {
    let options = Options {
        // A tenth of a second decides here.
        weight: 4,
        through_proxy: true,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    rig.proxy.delay_replies(Duration::from_millis(400));
    let mut jobs = Vec::new();
    for n in 0..4 {
        let tag = format!("e{n}");
        let script = Script::tag(&tag).sleep_ms(LONG_JOB_MS / 2);
        let id = rig.api.submit_until_stored(&tag, &job(script)).await;
        jobs.push((id, tag));
    }
    each_ran_just_once(&rig, &jobs).await;
    rig.proxy.delay_replies(Duration::ZERO);
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_past_its_time_out_ends_as_timeout_and_frees_its_slot() {
    let mut rig = Rig::start(Options::default(), 1, 2, 2).await;
    let mut submission = job(Script::tag("slow").sleep_ms(30_000_u64));
    submission["timeout_ms"] = json!(2_500);
    submission["max_attempts"] = json!(1);
    let id = rig.api.submit(&submission).await;
    let done = rig.api.ends(&id, SOON).await;
    assert_eq!(done["status"], "failed", "{done:#}");
    assert_eq!(done["dead"], true, "{done:#}");
    assert_eq!(done["error"]["code"], "timeout", "{done:#}");
    assert_eq!(done["attempts"], 1, "{done:#}");
    assert!(!outcomes(&done).contains(&"lost".to_owned()), "{done:#}");
    let closed = call_ended(&rig, "slow", 1, Duration::from_secs(1)).await;
    assert!(closed.closed_by_caller, "{closed:?}");

    // With attempts left it runs again.
    let script = sequence(&[
        Script::tag("twice").sleep_ms(30_000_u64),
        Script::tag("twice").text("well"),
    ]);
    let mut submission = job(script);
    submission["timeout_ms"] = json!(1_000);
    let id = rig.api.submit(&submission).await;
    let done = rig.api.ends(&id, SOON).await;
    assert_eq!(
        (&done["status"], &done["attempts"]),
        (&json!("succeeded"), &json!(2)),
        "{done:#}"
    );

    // Nothing of it comes back later: the slot is free and there was one call.
    let next = rig
        .api
        .submit(&job(Script::tag("next").sleep_ms(2_500_u64)))
        .await;
    rig.api.ends(&next, SOON).await;
    assert_eq!(rig.gpu.calls_tagged("slow").len(), 1);
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_reached_while_running_fails_the_job_and_closes_the_call() {
    let mut rig = Rig::start(Options::default(), 1, 2, 2).await;
    let mut submission = job(Script::tag("late").sleep_ms(30_000_u64));
    submission["deadline_ms"] = json!(1_500);
    let id = rig.api.submit(&submission).await;
    let done = rig.api.ends(&id, SOON).await;
    assert_eq!(done["status"], "failed", "{done:#}");
    assert_eq!(done["error"]["code"], "deadline_exceeded", "{done:#}");
    let closed = call_ended(&rig, "late", 1, Duration::from_secs(2)).await;
    assert!(closed.closed_by_caller, "{closed:?}");

    rig.kill_worker(1);
    rig.kill_worker(0);
    let mut submission = job(Script::tag("never"));
    submission["deadline_ms"] = json!(700);
    let id = rig.api.submit(&submission).await;
    let done = rig.api.ends(&id, SOON).await;
    assert_eq!(done["status"], "expired", "{done:#}");
    rig.start_worker().await;
    let last = rig.api.submit(&job("hello")).await;
    rig.api.ends(&last, SOON).await;
    assert!(rig.gpu.calls_tagged("never").is_empty());
    rig.settle_check().await;
}

/// A lost answer to a renewal is no lost lease: the next one comes in time.
#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_while_jobs_run_lose_no_lease() {
    let options = Options {
        through_proxy: true,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    let mut jobs = Vec::new();
    for n in 0..4 {
        let tag = format!("c{n}");
        let script = Script::tag(&tag).sleep_ms(LONG_JOB_MS / 2);
        jobs.push((rig.api.submit(&job(script)).await, tag));
    }
    rig.proxy
        .lose_next(2, Direction::Reply, b"$7\r\nrenewed\r\n");
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(600)).await;
        rig.proxy.reset_all();
    }
    each_ran_just_once(&rig, &jobs).await;
    rig.settle_check().await;
}
