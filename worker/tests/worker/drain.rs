//! A planned stop.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_loadtest::gpu::Script;
use tidegate_shared::domain::State;

use crate::rig::{LONG, Rig, hints_only, quick};

#[tokio::test]
async fn what_cannot_finish_is_handed_back_without_spending_an_attempt() {
    let rig = Rig::start(quick()).await;
    let first = rig
        .worker_with(&rig.redis.url(), |config| config.worker.drain_ms = 1_000)
        .await;
    let long = rig.chat(&Script::tag("long").sleep_ms(20_000_u64)).await;
    let short = rig.chat(&Script::tag("short").sleep_ms(400_u64)).await;
    rig.gpu.wait_for(LONG, |call| call.seq == 2).await.unwrap();
    let asked = Instant::now();
    first.shutdown.start_drain();
    let ready = first.get("/readyz").await;
    assert_eq!(
        (ready.0, ready.1.as_str()),
        (503, "not ready: draining\n"),
        "red at once"
    );
    let late = rig.chat(&Script::tag("late")).await;
    first.ended().await;
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );

    assert_eq!(
        rig.job(&short).await.state,
        State::Succeeded,
        "it could finish"
    );
    let job = rig.job(&long).await;
    assert_eq!(
        (job.state, job.attempts, job.stops, job.lost_leases),
        (State::Queued, 0, 1, 0)
    );
    let call = &rig.gpu.calls_tagged("long")[0];
    assert!(call.closed_by_caller);
    assert_eq!(
        rig.job(&late).await.state,
        State::Queued,
        "nothing new was claimed"
    );
    assert_eq!(rig.store.snapshot(&rig.pool).await.unwrap().slots_used, 0);
    assert!(
        rig.store.workers(&rig.pool).await.unwrap().is_empty(),
        "it has left the list"
    );

    let second = rig.worker().await;
    let job = rig.until(&long, |job| job.state == State::Running).await;
    assert_eq!((job.attempts, job.fence.0), (0, 2));
    assert_eq!(job.worker.as_deref(), Some(second.id.as_str()));
    rig.success(&late).await;
}

#[tokio::test]
async fn handed_back_work_is_started_elsewhere_by_a_wake_up() {
    let rig = Rig::start(hints_only()).await;
    let mut holder = rig.worker().await;
    let id = rig.chat(&Script::tag("a").hold()).await;
    rig.gpu.wait_for(LONG, |call| call.seq == 1).await.unwrap();
    let mut quickest = LONG;
    for round in 1..=3 {
        let next = rig.worker().await;
        while rig.store.workers(&rig.pool).await.unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let asked = Instant::now();
        // The second signal leaves at once, and still gives its leases back.
        holder.shutdown.start_drain();
        holder.shutdown.abort();
        holder.ended().await;
        rig.gpu
            .wait_for(LONG, |call| call.seq == round + 1)
            .await
            .unwrap();
        quickest = quickest.min(asked.elapsed());
        holder = next;
    }
    // Without a wake-up a worker looks again after a second at the earliest; one round in three may meet a busy machine.
    assert!(quickest < Duration::from_millis(900), "{quickest:?}");
    rig.gpu.release("a");
    let (job, _) = rig.success(&id).await;
    assert_eq!((job.attempts, job.stops, job.lost_leases), (1, 3, 0));
    assert_eq!(job.worker.as_deref(), Some(holder.id.as_str()));
}

#[tokio::test]
async fn an_idle_worker_leaves_at_once() {
    let rig = Rig::start(quick()).await;
    let worker = rig.worker().await;
    let id = rig.chat(&Script::tag("a")).await;
    rig.success(&id).await;
    let asked = Instant::now();
    worker.stop().await;
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );
}

#[tokio::test]
async fn a_worker_without_a_store_leaves_in_time() {
    let mut rig = Rig::start(quick()).await;
    let worker = rig
        .worker_with(&rig.redis.url(), |config| config.worker.drain_ms = 500)
        .await;
    let id = rig.chat(&Script::tag("a").hold()).await;
    rig.gpu.wait_for(LONG, |call| call.seq == 1).await.unwrap();
    rig.redis.kill();
    let asked = Instant::now();
    worker.stop().await;
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
    assert!(
        rig.gpu
            .wait_for(LONG, |call| call.ended())
            .await
            .unwrap()
            .closed_by_caller
    );
    drop(id);
}

#[tokio::test]
async fn health_metrics_and_the_list_of_workers_show_what_is() {
    let rig = Rig::start(quick()).await;
    let worker = rig
        .worker_with(&rig.redis.url(), |config| {
            config.worker.name = "label".into()
        })
        .await;
    let done = rig.chat(&Script::tag("done")).await;
    rig.success(&done).await;
    let id = rig.chat(&Script::tag("a").hold()).await;
    rig.gpu.wait_for(LONG, |call| call.seq == 2).await.unwrap();
    assert_eq!(worker.get("/livez").await.0, 200);
    assert_eq!(worker.get("/readyz").await.0, 200);
    let metrics = worker.get("/metrics").await.1;
    for line in [
        "tidegate_jobs_finished_total{pool=\"default\",class=\"default\",outcome=\"succeeded\"} 1",
        "tidegate_slots{pool=\"default\",class=\"default\",kind=\"used\"} 1",
        "tidegate_job_wait_seconds_count{pool=\"default\",class=\"default\"} 2",
        "tidegate_job_run_seconds_count{pool=\"default\",class=\"default\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let info = loop {
        let all = rig.store.workers(&rig.pool).await.unwrap();
        let info: Value = serde_json::from_str(&all[0]).unwrap();
        if info["running"] == 1 {
            break info;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(info["id"], worker.id.as_str());
    assert_eq!(info["object"], "worker");
    assert_eq!(info["name"], "label");
    assert_eq!(info["job_ids"][0], id.to_string());
    assert_eq!(
        (&info["draining"], &info["pools"][0]),
        (&Value::Bool(false), &Value::from("default"))
    );
    rig.gpu.release("a");
    rig.success(&id).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_under_load_lose_nothing_and_charge_nobody() {
    let rig = Rig::start(quick()).await;
    let mut ids = Vec::new();
    for n in 0..150 {
        ids.push(
            rig.chat(&Script::tag(format!("n{n}")).sleep_ms(20_u64))
                .await,
        );
    }
    let mut workers = vec![rig.worker().await, rig.worker().await];
    for _ in 0..8 {
        let asked = Instant::now();
        workers.push(
            rig.worker_with(&rig.redis.url(), |config| config.worker.drain_ms = 0)
                .await,
        );
        workers.remove(0).stop().await;
        assert!(
            asked.elapsed() < Duration::from_secs(2),
            "{:?}",
            asked.elapsed()
        );
    }
    for id in &ids {
        let (job, _) = rig.success(id).await;
        assert_eq!((job.attempts, job.lost_leases), (1, 0));
        assert_eq!(job.fence.0, 1 + u64::from(job.stops));
    }
    assert!(rig.gpu.peak() <= 4, "{}", rig.gpu.peak());
}
