//! Leases: renewed, lost, taken over; cancels; a store that is away.

use std::time::{Duration, Instant};

use tidegate_loadtest::gpu::Script;
use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::State;
use tidegate_shared::protocol::{Cancel, CancelReply, Expire};

use crate::proxy::{Proxy, Traffic};
use crate::rig::{BY_HINT, LONG, Rig, hints_only, quick, text_of};

#[tokio::test]
async fn a_run_much_longer_than_its_lease_is_called_once() {
    let rig = Rig::start(PoolConfig {
        lease_ms: 500,
        renew_ms: 100,
        ..quick()
    })
    .await;
    let _workers = [rig.worker().await, rig.worker().await];
    let id = rig
        .chat(&Script::tag("long").sleep_ms(3_000_u64).text("done"))
        .await;
    let (job, _) = rig.success(&id).await;
    assert_eq!((job.attempts, job.fence.0, job.lost_leases), (1, 1, 0));
    assert_eq!(rig.gpu.calls().len(), 1);
}

#[tokio::test]
async fn a_cancel_closes_a_running_call_at_once_and_publishes_nothing() {
    let rig = Rig::start(hints_only()).await;
    let _worker = rig.worker().await;
    let id = rig
        .chat(&Script::tag("a").chunks(10_000_u32).chunk_ms(10_u64))
        .await;
    rig.gpu
        .wait_for(LONG, |call| call.chunks_sent > 3)
        .await
        .unwrap();
    let cancel = Cancel {
        id: id.clone(),
        tenant: None,
    };
    let asked = Instant::now();
    assert_eq!(
        rig.store.cancel(&cancel).await.unwrap(),
        CancelReply::Cancelling
    );
    let job = rig.end(&id).await;
    let call = rig.gpu.wait_for(LONG, |call| call.ended()).await.unwrap();
    assert!(asked.elapsed() < BY_HINT, "{:?}", asked.elapsed());
    assert_eq!((job.state, call.closed_by_caller), (State::Cancelled, true));
    assert!(
        job.usage
            .is_some_and(|usage| usage.estimated && usage.output_tokens > 3)
    );
    assert_eq!(rig.store.result(&id).await.unwrap(), None);
    assert_eq!(rig.store.snapshot(&rig.pool).await.unwrap().slots_used, 0);
}

#[tokio::test]
async fn a_worker_cut_off_stops_its_call_by_its_own_clock_and_publishes_nothing_later() {
    let rig = Rig::start(PoolConfig {
        renew_ms: 200,
        ..quick()
    })
    .await;
    let proxy = Proxy::start(rig.socket()).await;
    let cut_off = rig.worker_with(&proxy.url(), |_| ()).await;
    let script = format!(
        "{}{}",
        Script::tag("j").hold(),
        Script::tag("j").text("from the second")
    );
    let body = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": script}]});
    let id = rig
        .submit(
            tidegate_shared::domain::Endpoint::ChatCompletions,
            body,
            |_| (),
        )
        .await;
    rig.gpu.wait_for(LONG, |call| call.seq == 1).await.unwrap();
    proxy.set(Traffic::Hold);
    let second = rig.worker().await;
    let lapse = Expire {
        pool: rig.pool.clone(),
        limit: 100,
        lineage: String::new(),
    };
    while !rig.job(&id).await.state.is_terminal() {
        rig.store.expire(&lapse).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (job, result) = rig.success(&id).await;
    assert_eq!(text_of(&result), "from the second");
    assert_eq!(job.worker.as_deref(), Some(second.id.as_str()));
    assert_eq!((job.fence.0, job.attempts, job.lost_leases), (2, 1, 1));
    let calls = rig.gpu.calls();
    assert!(calls[0].closed_by_caller);
    assert!(
        calls[0].closed_ms <= Some(calls[1].arrived_ms),
        "closed before the lease went to another: {calls:#?}"
    );
    second.stop().await;

    // Back again, it takes new work and has changed nothing of the old.
    proxy.set(Traffic::Pass);
    let next = rig.chat(&Script::tag("next").text("new work")).await;
    let (next, _) = rig.success(&next).await;
    assert_eq!(next.worker.as_deref(), Some(cut_off.id.as_str()));
    assert_eq!(rig.job(&id).await, job);
    assert!(
        cut_off
            .get("/metrics")
            .await
            .1
            .contains("tidegate_stale_writes_total{pool=\"default\",step=\"settle\"} 1")
    );
}

#[tokio::test]
async fn a_delivery_that_the_store_does_not_know_any_more_is_closed_at_the_next_renewal() {
    let mut rig = Rig::start(PoolConfig {
        lease_ms: 20_000,
        renew_ms: 200,
        ..quick()
    })
    .await;
    let worker = rig.worker().await;
    let id = rig.chat(&Script::tag("a").hold()).await;
    rig.gpu.wait_for(LONG, |call| call.seq == 1).await.unwrap();
    // It keeps nothing on disk.
    rig.redis.restart().unwrap();
    rig.apply(quick()).await;
    let call = rig.gpu.wait_for(LONG, |call| call.ended()).await.unwrap();
    assert!(call.closed_by_caller);
    assert_eq!(rig.store.result(&id).await.unwrap(), None);
    let after = rig.chat(&Script::tag("b")).await;
    rig.success(&after).await;
    assert!(
        worker
            .get("/metrics")
            .await
            .1
            .contains("tidegate_stale_writes_total{pool=\"default\",step=\"renew\"} 1")
    );
}

#[tokio::test]
async fn a_result_that_cannot_be_stored_is_kept_until_it_can() {
    let rig = Rig::start(quick()).await;
    let proxy = Proxy::start(rig.socket()).await;
    let _worker = rig.worker_with(&proxy.url(), |_| ()).await;
    let id = rig.chat(&Script::tag("a").hold().text("kept")).await;
    rig.gpu.wait_for(LONG, |call| call.seq == 1).await.unwrap();
    proxy.set(Traffic::Hold);
    rig.gpu.release("a");
    rig.gpu
        .wait_for(LONG, |call| call.finished_ms.is_some())
        .await
        .unwrap();
    // Longer than the settle's own time-out of a quarter of the lease, shorter than the lease.
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(rig.job(&id).await.state, State::Running);
    proxy.set(Traffic::Pass);
    let (job, result) = rig.success(&id).await;
    assert_eq!(
        (text_of(&result).as_str(), job.attempts, job.lost_leases),
        ("kept", 1, 0)
    );
    assert_eq!(rig.gpu.calls().len(), 1);
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_strands_nothing() {
    let rig = Rig::start(PoolConfig {
        lease_ms: 10_000,
        renew_ms: 500,
        ..quick()
    })
    .await;
    let proxy = Proxy::start(rig.socket()).await;
    let worker = rig.worker_with(&proxy.url(), |_| ()).await;
    for n in 0..5 {
        proxy.set(Traffic::LoseClaims);
        let id = rig.chat(&Script::tag(format!("n{n}"))).await;
        rig.until(&id, |job| job.state == State::Running).await;
        proxy.set(Traffic::Pass);
        let (job, _) = rig.success(&id).await;
        assert_eq!((job.fence.0, job.attempts, job.lost_leases), (1, 1, 0));
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_streams_at_once_delay_no_renewal() {
    let rig = Rig::start(PoolConfig {
        slots: 200,
        lease_ms: 1_000,
        renew_ms: 200,
        ..quick()
    })
    .await;
    let _workers = [rig.worker().await, rig.worker().await];
    let mut ids = Vec::new();
    for n in 0..100 {
        let script = Script::tag(format!("s{n}"))
            .bytes(200_000_u64)
            .chunks(200_u32)
            .chunk_ms(10_u64);
        ids.push(rig.chat(&script).await);
    }
    for id in &ids {
        let (job, result) = rig.success(id).await;
        assert_eq!((job.attempts, job.fence.0, job.lost_leases), (1, 1, 0));
        assert_eq!(text_of(&result).len(), 200_000);
    }
    assert_eq!(rig.gpu.calls().len(), 100);
}

#[tokio::test]
async fn an_outage_shorter_than_the_lease_costs_no_work() {
    let rig = Rig::start(PoolConfig {
        lease_ms: 3_000,
        renew_ms: 300,
        ..quick()
    })
    .await;
    let proxy = Proxy::start(rig.socket()).await;
    let _worker = rig.worker_with(&proxy.url(), |_| ()).await;
    let id = rig
        .chat(&Script::tag("a").sleep_ms(4_500_u64).text("x"))
        .await;
    rig.gpu.wait_for(LONG, |call| call.seq == 1).await.unwrap();
    for _ in 0..2 {
        proxy.set(Traffic::Hold);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        proxy.set(Traffic::Pass);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    let (job, _) = rig.success(&id).await;
    assert_eq!((job.attempts, job.fence.0, job.lost_leases), (1, 1, 0));
    assert_eq!(rig.gpu.calls().len(), 1);
}

#[tokio::test]
async fn a_store_that_crashes_and_comes_back_finds_its_workers_at_work() {
    let mut rig = Rig::start_durable(PoolConfig {
        lease_ms: 5_000,
        ..quick()
    })
    .await;
    let _worker = rig.worker().await;
    let mut ids = Vec::new();
    for n in 0..12 {
        ids.push(
            rig.chat(&Script::tag(format!("n{n}")).sleep_ms(300_u64))
                .await,
        );
    }
    rig.gpu.wait_for(LONG, |call| call.seq == 3).await.unwrap();
    rig.redis.restart().unwrap();
    for id in &ids {
        let (job, _) = rig.success(id).await;
        assert_eq!((job.attempts, job.fence.0, job.lost_leases), (1, 1, 0));
    }
    assert_eq!(rig.gpu.calls().len(), 12);
}
