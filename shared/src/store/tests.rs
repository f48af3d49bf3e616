//! The store over a real server: one life of a job, and what comes back when the server's script cache is lost.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

mod modes;
mod place;

use self::place::Place;
use super::*;
use crate::config::PoolConfig;
use crate::domain::{DeadReason, Endpoint, Envelope, JobId, Owner, State, Verdict, WorkerId};
use crate::local::LocalOptions;
use crate::protocol::{
    Claim, ClaimReply, Delivery, Expire, Idempotency, Read, ReadReply, Settle, SettleTag, Submit,
    SubmitReply,
};

async fn store_of(place: &Place) -> Store {
    Store::connect(&place.config(), Arc::new(Metrics::new("test")))
        .await
        .unwrap()
}

/// Runs a command on every node.
async fn everywhere(store: &Store, command: &redis::Cmd) {
    for node in store.0.nodes.primaries() {
        let connection = store.0.shared.get_at(&node, store.0.timeout).await.unwrap();
        let () = connection.run(store.0.timeout, command).await.unwrap();
    }
}

fn submit_of(pool: &PoolName) -> Submit {
    let envelope = Envelope {
        endpoint: Endpoint::ChatCompletions,
        body: br#"{"model":"m"}"#.to_vec(),
        metadata: String::new(),
        webhook_url: String::new(),
        traceparent: String::new(),
    };
    Submit {
        id: JobId::mint(pool),
        tenant: "acme".into(),
        class: "default".into(),
        priority: 0,
        delay_ms: 0,
        deadline_ms: 0,
        timeout_ms: 0,
        max_attempts: 3,
        model: "m".into(),
        idempotency: Idempotency::default(),
        envelope: envelope.to_bytes(),
    }
}

fn success_of(delivery: &Delivery, result: Vec<u8>) -> Settle {
    Settle {
        id: delivery.id.clone(),
        fence: delivery.fence,
        owner: delivery.owner.clone(),
        verdict: Verdict::Succeed,
        delay_ms: 0,
        reason: DeadReason::Upstream,
        code: String::new(),
        error: String::new(),
        usage: None,
        content_type: "application/json".into(),
        result,
        next: None,
    }
}

#[tokio::test]
async fn a_job_lives_from_submit_to_its_result() {
    let server = Place::start(LocalOptions::default());
    let store = store_of(&server).await;
    let pool: PoolName = "default".parse().unwrap();
    store.apply(&pool, &PoolConfig::default()).await.unwrap();
    assert_eq!(store.pools().await.unwrap(), std::slice::from_ref(&pool));

    let submit = submit_of(&pool);
    assert_eq!(store.submit(&submit).await.unwrap(), SubmitReply::Accepted);
    assert_eq!(store.submit(&submit).await.unwrap(), SubmitReply::Accepted);
    assert_eq!(store.snapshot(&pool).await.unwrap().queued, 1);

    let worker = WorkerId::mint();
    let claim = Claim {
        pool: pool.clone(),
        worker: worker.clone(),
        owners: vec![Owner::mint()],
    };
    let ClaimReply::Deliveries(first) = store.claim(&claim).await.unwrap() else {
        panic!("nothing claimed")
    };
    let ClaimReply::Deliveries(again) = store.claim(&claim).await.unwrap() else {
        panic!("nothing claimed again")
    };
    assert_eq!(first[0].owner, again[0].owner);
    assert_eq!(first[0].fence, again[0].fence);

    let settle = success_of(&first[0], b"{}".to_vec());
    let reply = store.settle(&settle).await.unwrap();
    assert_eq!(
        (reply.tag, reply.state),
        (SettleTag::Settled, Some(State::Succeeded))
    );
    assert_eq!(
        store.settle(&settle).await.unwrap().tag,
        SettleTag::Duplicate
    );
    assert_eq!(store.result(&submit.id).await.unwrap().unwrap(), b"{}");
    let small = async |max_bytes| store.small_result(&submit.id, max_bytes).await.unwrap();
    assert_eq!(small(2).await.as_deref(), Some(b"{}".as_slice()));
    assert_eq!(small(1).await, None, "it is larger");
    assert_eq!(store.result_bytes(&submit.id).await.unwrap(), 2);
    let piece = async |from, max| store.result_piece(&submit.id, from, max).await.unwrap();
    assert_eq!(
        (piece(0, 1).await, piece(1, 9).await),
        (b"{".into(), b"}".into())
    );
    assert_eq!(piece(2, 9).await, b"", "behind its end");
    let missing = store.small_result(&JobId::mint(&pool), 2).await.unwrap();
    assert_eq!(missing, None);
    let read = Read {
        id: submit.id.clone(),
        tenant: Some("acme".into()),
    };
    let ReadReply::Job { job, .. } = store.read(&read).await.unwrap() else {
        panic!("no job")
    };
    assert_eq!((job.state, job.attempts), (State::Succeeded, 1));
    let foreign = Read {
        tenant: Some("other".into()),
        ..read
    };
    assert_eq!(store.read(&foreign).await.unwrap(), ReadReply::Unknown);
}

#[tokio::test]
async fn a_flushed_script_cache_is_filled_again_without_an_error() {
    let server = Place::start(LocalOptions::default());
    let store = store_of(&server).await;
    let pool: PoolName = "default".parse().unwrap();
    store.apply(&pool, &PoolConfig::default()).await.unwrap();
    for _ in 0..10 {
        everywhere(&store, redis::cmd("SCRIPT").arg("FLUSH")).await;
        assert_eq!(
            store.submit(&submit_of(&pool)).await.unwrap(),
            SubmitReply::Accepted
        );
    }
}

#[tokio::test]
async fn a_waiting_worker_is_woken_by_a_submit() {
    let server = Place::start(LocalOptions::default());
    let store = store_of(&server).await;
    let pool: PoolName = "default".parse().unwrap();
    store.apply(&pool, &PoolConfig::default()).await.unwrap();
    let mut waiter = store.work_waiter(&pool);
    waiter.wait(Duration::from_millis(1)).await;
    let started = Instant::now();
    let submit = submit_of(&pool);
    let (_, reply) = tokio::join!(waiter.wait(Duration::from_secs(30)), store.submit(&submit));
    assert_eq!(reply.unwrap(), SubmitReply::Accepted);
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "it waited to its end"
    );
}

#[tokio::test]
async fn a_store_that_restarts_is_used_again_without_a_new_store() {
    let mut server = Place::start(LocalOptions {
        durable: true,
        ..LocalOptions::default()
    });
    let store = store_of(&server).await;
    let pool: PoolName = "default".parse().unwrap();
    store.apply(&pool, &PoolConfig::default()).await.unwrap();
    let submit = submit_of(&pool);
    store.submit(&submit).await.unwrap();
    let mut watch = store.hints().job(&submit.id).await;
    while watch.next().await != Hint::Resync {}
    server.kill();
    assert!(
        store
            .submit(&submit_of(&pool))
            .await
            .unwrap_err()
            .is_unavailable()
    );
    server.restart();
    while watch.next().await != Hint::Resync {}
    assert_eq!(store.snapshot(&pool).await.unwrap().queued, 1);
}

#[tokio::test]
async fn a_key_counts_for_the_tenant_whatever_the_pool() {
    let server = Place::start(LocalOptions::default());
    let store = store_of(&server).await;
    let (a, b): (PoolName, PoolName) = ("a".parse().unwrap(), "b".parse().unwrap());
    for pool in [&a, &b] {
        store.apply(pool, &PoolConfig::default()).await.unwrap();
    }
    let keyed = |pool: &PoolName, body_hash: &str| Submit {
        idempotency: Idempotency {
            key_hash: "key".into(),
            body_hash: body_hash.into(),
        },
        ..submit_of(pool)
    };
    let first = keyed(&a, "one");
    assert_eq!(store.submit(&first).await.unwrap(), SubmitReply::Accepted);
    assert_eq!(
        store.submit(&keyed(&b, "two")).await.unwrap(),
        SubmitReply::Conflict(first.id.clone())
    );
    assert_eq!(
        store.submit(&keyed(&b, "one")).await.unwrap(),
        SubmitReply::Duplicate(first.id)
    );
    assert_eq!(store.snapshot(&b).await.unwrap().jobs, 0);
}

#[tokio::test]
async fn a_key_used_in_two_pools_at_once_makes_one_job() {
    let server = Place::start(LocalOptions::default());
    let (one, two) = (store_of(&server).await, store_of(&server).await);
    let (a, b): (PoolName, PoolName) = ("a".parse().unwrap(), "b".parse().unwrap());
    for pool in [&a, &b] {
        one.apply(pool, &PoolConfig::default()).await.unwrap();
    }
    for round in 0..50 {
        let keyed = |pool: &PoolName| Submit {
            idempotency: Idempotency {
                key_hash: format!("key{round}"),
                body_hash: pool.to_string(),
            },
            ..submit_of(pool)
        };
        let (first, second) = (keyed(&a), keyed(&b));
        let (x, y) = tokio::join!(one.submit(&first), two.submit(&second));
        let accepted = [x.unwrap(), y.unwrap()].map(|reply| reply == SubmitReply::Accepted);
        assert_eq!(accepted.iter().filter(|was| **was).count(), 1, "{round}");
    }
}

#[tokio::test]
async fn a_full_store_takes_no_more_work_and_finishes_what_it_has() {
    let server = Place::start(LocalOptions::default());
    let store = store_of(&server).await;
    let pool: PoolName = "default".parse().unwrap();
    store.apply(&pool, &PoolConfig::default()).await.unwrap();
    let submit = submit_of(&pool);
    store.submit(&submit).await.unwrap();
    let limit = |bytes: &str| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(bytes);
        set
    };
    everywhere(&store, &limit("1")).await;

    let refused = store.submit(&submit_of(&pool)).await.unwrap_err();
    assert!(
        matches!(
            refused,
            StoreError::Unavailable {
                trouble: Trouble::Full,
                ..
            }
        ),
        "{refused}"
    );
    let counts = store.snapshot(&pool).await.unwrap();
    assert_eq!((counts.jobs, counts.queued), (1, 1), "half a job was left");
    let claim = Claim {
        pool: pool.clone(),
        worker: WorkerId::mint(),
        owners: vec![Owner::mint()],
    };
    let ClaimReply::Deliveries(taken) = store.claim(&claim).await.unwrap() else {
        panic!("nothing claimed")
    };
    let settle = success_of(&taken[0], vec![b' '; 100_000]);
    let reply = store.settle(&settle).await.unwrap();
    assert_eq!(reply.state, Some(State::Succeeded));

    everywhere(&store, &limit("0")).await;
    let again = submit_of(&pool);
    assert_eq!(store.submit(&again).await.unwrap(), SubmitReply::Accepted);
}

fn claim_of(pool: &PoolName, worker: &WorkerId, most: usize) -> Claim {
    Claim {
        pool: pool.clone(),
        worker: worker.clone(),
        owners: std::iter::repeat_with(Owner::mint).take(most).collect(),
    }
}

async fn claimed(store: &Store, claim: &Claim) -> Vec<JobId> {
    match store.claim(claim).await.unwrap() {
        ClaimReply::Deliveries(deliveries) => deliveries.into_iter().map(|d| d.id).collect(),
        ClaimReply::None { .. } => Vec::new(),
    }
}

#[tokio::test]
async fn a_claim_hands_out_no_more_bytes_than_a_reply_should_carry() {
    let server = Place::start(LocalOptions::default());
    let store = store_of(&server).await;
    let pool: PoolName = "default".parse().unwrap();
    store.apply(&pool, &PoolConfig::default()).await.unwrap();
    let mut ids = Vec::new();
    for megabytes in [3, 3, 3, 20, 1] {
        let submit = Submit {
            envelope: vec![b'x'; megabytes * 1_000_000],
            ..submit_of(&pool)
        };
        store.submit(&submit).await.unwrap();
        ids.push(submit.id);
    }
    let worker = WorkerId::mint();
    // In order all the same, and the one that is larger than the bound alone.
    for expected in [&ids[..2], &ids[2..3], &ids[3..4], &ids[4..]] {
        let claim = claim_of(&pool, &worker, 5);
        assert_eq!(claimed(&store, &claim).await, expected);
        assert_eq!(claimed(&store, &claim).await, expected, "sent again");
    }
}

#[tokio::test]
async fn suspects_at_the_head_of_a_line_do_not_hide_the_jobs_behind_them() {
    const CRASHED: u64 = 64;
    let server = Place::start(LocalOptions::default());
    let store = store_of(&server).await;
    let pool: PoolName = "default".parse().unwrap();
    let config = PoolConfig {
        slots: 100,
        lease_ms: 1000,
        renew_ms: 50,
        max_lost_leases: 2,
        ..PoolConfig::default()
    };
    store.apply(&pool, &config).await.unwrap();
    for _ in 0..CRASHED {
        store.submit(&submit_of(&pool)).await.unwrap();
    }
    let crashes = WorkerId::mint();
    for _ in 0..2 {
        let claim = claim_of(&pool, &crashes, 32);
        assert_eq!(claimed(&store, &claim).await.len(), 32);
    }
    let mut lapsed = 0;
    while lapsed < CRASHED {
        let expire = Expire {
            pool: pool.clone(),
            limit: 100,
            lineage: String::new(),
        };
        lapsed += store.expire(&expire).await.unwrap().lapsed;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let innocent = submit_of(&pool);
    store.submit(&innocent).await.unwrap();

    let taken = claimed(&store, &claim_of(&pool, &WorkerId::mint(), 8)).await;
    assert_eq!(taken.len(), 2, "one suspect, and the job behind them all");
    assert_eq!(taken[1], innocent.id);
}
