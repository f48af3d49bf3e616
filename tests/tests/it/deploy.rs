//! Case 30: a planned stop of a worker cuts nothing that can finish and hands back the rest.

use std::time::Duration;

use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, LONG, Options, Rig, SOON, Signal, job};

use crate::common::{call, call_ended, outcomes, ran_just_once, sequence, workers_of};

/// The rig's drain, and what the end of a process may take after it.
const DRAIN: Duration = Duration::from_secs(5);
const EXIT: Duration = Duration::from_secs(3);

async fn ready(rig: &Rig, health: &str) -> u16 {
    let answer = rig.api.plain(&format!("{health}/readyz")).await;
    answer.map_or(0, |answer| answer.status)
}

fn long_call(tag: &str) -> String {
    sequence(&[
        Script::tag(tag).sleep_ms(60_000_u64),
        Script::tag(tag).text("elsewhere"),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_worker_finishes_what_it_can_and_hands_back_the_rest() {
    let options = Options {
        slots: 8,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 0, 2).await;
    let health = rig
        .start_worker_with(&[("TIDEGATE_WORKER__CONCURRENCY", "8")])
        .await;
    assert_eq!(ready(&rig, &health).await, 200);
    let mut streams = Vec::new();
    for tag in ["s1", "s2"] {
        let script = Script::tag(tag).chunks(25_u32).chunk_ms(100_u64);
        streams.push(rig.api.submit(&job(script)).await);
        call(&rig, tag, 1).await;
    }
    let mut long = Vec::new();
    for tag in ["l1", "l2"] {
        long.push(rig.api.submit(&job(long_call(tag))).await);
        call(&rig, tag, 1).await;
    }
    rig.start_worker().await;

    let told = std::time::Instant::now();
    let at = rig.stop_worker(0);
    let red = tidegate_tests::until(SOON, "readiness is red", async || {
        let status = ready(&rig, &health).await;
        (status != 200).then_some(status)
    })
    .await;
    assert!(
        told.elapsed() < Duration::from_secs(1),
        "{:?}",
        told.elapsed()
    );
    assert_eq!(red, 503, "it still answers while it drains");
    // Nothing new for it: the other worker has this one.
    let new = rig.api.submit(&job(Script::tag("new"))).await;
    let new = rig.api.ends(&new, SOON).await;
    let stopping = workers_of(&rig.api.get(&long[0]).await).remove(0);
    assert_ne!(workers_of(&new)[0], stopping);

    for id in &streams {
        ran_just_once(&rig.api.ends(id, SOON).await);
    }
    assert!(
        told.elapsed() < DRAIN + Duration::from_secs(1),
        "{:?}",
        told.elapsed()
    );
    for (tag, id) in ["l1", "l2"].into_iter().zip(&long) {
        let closed = call_ended(&rig, tag, 1, SOON).await;
        assert!(closed.closed_by_caller, "{closed:?}");
        let again = call(&rig, tag, 2).await;
        let gap = again.arrived_ms.saturating_sub(closed.closed_ms.unwrap());
        assert!(gap <= 1_000, "{gap} ms until it started elsewhere");
        let done = rig.api.ends(id, SOON).await;
        assert_eq!(
            done["attempts"], 1,
            "a planned stop is no attempt: {done:#}"
        );
        assert_eq!(outcomes(&done), ["release", "succeed"], "{done:#}");
    }
    let status = rig.gone[at].ended(DRAIN + EXIT).await;
    assert!(status.success(), "{status}\n{}", rig.gone[at].tail());
    assert!(told.elapsed() < DRAIN + EXIT, "{:?}", told.elapsed());
    rig.settle_check_allowing(Allow {
        peak_above_slots: 2,
        ..Allow::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_still_hands_the_leases_back() {
    let mut rig = Rig::start(Options::default(), 1, 1, 2).await;
    let id = rig.api.submit(&job(long_call("l"))).await;
    call(&rig, "l", 1).await;
    rig.start_worker().await;
    let at = rig.stop_worker(0);
    rig.gone[at].says(SOON, &["draining"]).await;
    rig.gone[at].signal(Signal::Term);
    rig.gone[at].ended(EXIT).await;
    let closed = call_ended(&rig, "l", 1, SOON).await;
    let again = call(&rig, "l", 2).await;
    let gap = again.arrived_ms.saturating_sub(closed.closed_ms.unwrap());
    assert!(gap <= 1_000, "{gap} ms until it started elsewhere");
    let done = rig.api.ends(&id, SOON).await;
    assert_eq!(outcomes(&done), ["release", "succeed"], "{done:#}");
    assert_eq!(done["attempts"], 1, "{done:#}");
    rig.settle_check_allowing(Allow {
        peak_above_slots: 1,
        ..Allow::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_deploys_under_load_fail_no_request_and_repeat_no_call() {
    let options = Options {
        slots: 16,
        max_queued: 1_000,
        weight: 3,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 2, 2).await;
    let api = rig.api.clone();
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    let load = tokio::spawn(async move {
        let mut jobs = Vec::new();
        while !stopped.is_cancelled() {
            let tag = format!("n{}", jobs.len());
            let script = Script::tag(&tag).chunks(3_u32).chunk_ms(50_u64);
            jobs.push((api.submit(&job(script)).await, tag));
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        jobs
    });
    for _ in 0..10 {
        rig.start_ingress().await;
        let ingress = rig.stop_ingress(0);
        rig.start_worker().await;
        let worker = rig.stop_worker(0);
        rig.start_reaper().await;
        let mut reaper = rig.reapers.remove(0);
        reaper.signal(Signal::Term);
        rig.gone.push(reaper);
        let reaper = rig.gone.len() - 1;
        for at in [ingress, worker, reaper] {
            let status = rig.gone[at].ended(DRAIN + EXIT).await;
            assert!(
                status.success(),
                "{}: {status}\n{}",
                rig.gone[at].label,
                rig.gone[at].tail()
            );
        }
    }
    stop.cancel();
    let jobs = load.await.unwrap();
    assert!(jobs.len() > 40, "{} jobs are no load", jobs.len());
    for (id, tag) in &jobs {
        let done = rig.api.ends(id, LONG).await;
        assert_eq!(done["status"], "succeeded", "{done:#}");
        assert_eq!(done["attempts"], 1, "{done:#}");
        // A claim that met the signal is handed back before any call.
        let outcomes = outcomes(&done);
        let (last, before) = outcomes.split_last().unwrap();
        assert_eq!(last, "succeed", "{done:#}");
        assert!(before.iter().all(|o| o == "release"), "{done:#}");
        assert_eq!(rig.gpu.calls_tagged(tag).len(), 1, "{tag}: {done:#}");
    }
    rig.settle_check().await;
}
