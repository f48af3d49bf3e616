//! The store with `store.audit` on: its record, taken away piece by piece, replays to all that it keeps.

use std::sync::Arc;

use tidegate_shared::audit::{Replay, dump, history::Effects};
use tidegate_shared::config::{PoolConfig, StoreConfig, StoreMode, StoreUrl};
use tidegate_shared::domain::{DeadReason, JobId, Owner, PoolName, Verdict, WorkerId};
use tidegate_shared::local::{LocalCluster, LocalOptions, LocalServer};
use tidegate_shared::protocol::{Claim, ClaimReply, Delivery, Idempotency, Settle, Submit};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;

async fn store_of(url: String, mode: StoreMode, audit: bool) -> Store {
    let config = StoreConfig {
        url: StoreUrl::new(url),
        mode,
        audit,
        ..StoreConfig::default()
    };
    Store::connect(&config, Arc::new(Metrics::new("test")))
        .await
        .unwrap()
}

/// A job from its submit to its success.
async fn one_job(store: &Store, pool: &PoolName) {
    let submit = Submit {
        id: JobId::mint(pool),
        tenant: "acme".into(),
        class: "default".into(),
        priority: 0,
        delay_ms: 0,
        deadline_ms: 0,
        timeout_ms: 0,
        max_attempts: 3,
        model: String::new(),
        idempotency: Idempotency {
            key_hash: Idempotency::key_hash_of("acme", &JobId::mint(pool).to_string()),
            body_hash: "b".into(),
        },
        envelope: vec![0xc1, 0x00],
    };
    store.submit(&submit).await.unwrap();
    let claim = Claim {
        pool: pool.clone(),
        worker: WorkerId::mint(),
        owners: vec![Owner::mint()],
    };
    let ClaimReply::Deliveries(all) = store.claim(&claim).await.unwrap() else {
        panic!("a job waits");
    };
    store.settle(&success(&all[0])).await.unwrap();
}

fn success(delivery: &Delivery) -> Settle {
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
        result: b"{}".to_vec(),
        next: None,
    }
}

#[tokio::test]
async fn a_record_is_taken_away_piece_by_piece_and_replays_to_all_that_the_store_keeps() {
    let server = LocalServer::start(LocalOptions::default()).unwrap();
    let store = store_of(server.url(), StoreMode::Single, true).await;
    recorded(&store, &"default".parse().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_each_pools_record_where_the_pool_is() {
    let start = || LocalCluster::start(3, 0, &LocalOptions::default()).unwrap();
    let cluster = tokio::task::spawn_blocking(start).await.unwrap();
    let store = store_of(cluster.url(), StoreMode::Cluster, true).await;
    // Their slots lie on the first, the second and the third node.
    for pool in ["batch", "default", "gpu"] {
        recorded(&store, &pool.parse().unwrap()).await;
    }
}

/// Runs jobs, and takes the record away meanwhile.
async fn recorded(store: &Store, pool: &PoolName) {
    store.apply(pool, &PoolConfig::default()).await.unwrap();
    let (mut replay, mut effects) = (Replay::new(pool.clone()), Effects::default());
    let mut last = 0;
    for _ in 0..5 {
        one_job(store, pool).await;
        loop {
            let piece = store.audit(pool, last, 2).await.unwrap();
            let Some(newest) = piece.last() else { break };
            last = newest.number;
            for entry in &piece {
                effects.note(&replay.feed(entry).unwrap());
            }
            store.audit_drop(pool, last).await.unwrap();
        }
        assert_eq!(store.audit(pool, 0, 10).await.unwrap(), []);
    }
    replay.look().unwrap();
    let counts = replay.counts();
    assert_eq!(
        (counts.entries, counts.accepted, counts.ended()),
        (16, 5, 5)
    );
    assert_eq!(counts.steps["settle"], 5);
    let (mut kept, raw_now_ms) = store.dump(pool).await.unwrap();
    let mut should = dump::of_reference(replay.state());
    // Workers take it outside any script.
    for side in [&mut kept, &mut should] {
        side.leave_out("marker");
    }
    assert_eq!(dump::difference(&kept, &should, raw_now_ms), None);
}

#[tokio::test]
async fn without_the_setting_nothing_is_recorded() {
    let server = LocalServer::start(LocalOptions::default()).unwrap();
    let store = store_of(server.url(), StoreMode::Single, false).await;
    let pool: PoolName = "default".parse().unwrap();
    store.apply(&pool, &PoolConfig::default()).await.unwrap();
    one_job(&store, &pool).await;
    assert_eq!(store.audit(&pool, 0, 10).await.unwrap(), []);
}
