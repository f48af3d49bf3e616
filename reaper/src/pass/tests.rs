//! Passes over a real server that goes away and comes back.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use tidegate_shared::config::{PoolConfig, StoreConfig, StoreUrl};
use tidegate_shared::domain::{JobId, Owner, WorkerId};
use tidegate_shared::local::{LocalOptions, LocalServer};
use tidegate_shared::protocol::{
    Claim, ClaimReply, Idempotency, Renew, RenewItem, RenewStatus, Submit,
};

use super::*;

const LEASE_MS: u64 = 1_000;

/// A reaper: its own store, metrics and memory.
struct Rig {
    store: Store,
    metrics: Arc<Metrics>,
    reported: Reported,
}

impl Rig {
    async fn new(server: &LocalServer) -> Self {
        let config = StoreConfig {
            url: StoreUrl::new(server.url()),
            ..StoreConfig::default()
        };
        let metrics = Arc::new(Metrics::new("test"));
        metrics.allow("gpu", ["default"]);
        let store = Store::connect(&config, metrics.clone()).await.unwrap();
        Self {
            store,
            metrics,
            reported: Reported::default(),
        }
    }

    /// One pass; gives how many epochs this reaper has told of.
    async fn pass(&mut self) -> u64 {
        pass(&self.store, &self.metrics, &mut self.reported)
            .await
            .unwrap();
        let sample = "tidegate_store_epochs_total{pool=\"gpu\"} ";
        let text = self.metrics.encode();
        text.lines()
            .find_map(|line| line.strip_prefix(sample))
            .map_or(0, |count| count.parse().unwrap())
    }
}

async fn lease(store: &Store, pool: &PoolName) -> RenewItem {
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
        idempotency: Idempotency::default(),
        envelope: vec![1],
    };
    store.submit(&submit).await.unwrap();
    let claim = Claim {
        pool: pool.clone(),
        worker: WorkerId::mint(),
        owners: vec![Owner::mint()],
    };
    let ClaimReply::Deliveries(taken) = store.claim(&claim).await.unwrap() else {
        panic!("nothing to claim");
    };
    RenewItem {
        id: submit.id,
        fence: taken[0].fence,
        owner: taken[0].owner.clone(),
        output_tokens: 0,
    }
}

#[tokio::test]
async fn a_restarted_store_begins_an_epoch_and_its_leases_live_on() {
    let mut server = LocalServer::start(LocalOptions {
        durable: true,
        ..LocalOptions::default()
    })
    .unwrap();
    let (mut one, mut two) = (Rig::new(&server).await, Rig::new(&server).await);
    let pool: PoolName = "gpu".parse().unwrap();
    let config = PoolConfig {
        lease_ms: LEASE_MS,
        renew_ms: LEASE_MS / 5,
        ..PoolConfig::default()
    };
    one.store.apply(&pool, &config).await.unwrap();
    assert_eq!((one.pass().await, two.pass().await), (0, 0));
    let item = lease(&one.store, &pool).await;
    for epoch in 1..=2 {
        server.kill();
        // Every lease looks dead when the server comes back.
        tokio::time::sleep(Duration::from_millis(LEASE_MS + 100)).await;
        server.restart().unwrap();
        // The first of them finds it, the other hears of it, and both tell once.
        assert_eq!((one.pass().await, two.pass().await), (epoch, epoch));
        assert_eq!((one.pass().await, two.pass().await), (epoch, epoch));
        let renew = Renew {
            pool: pool.clone(),
            default_timeout_ms: 60_000,
            items: vec![item.clone()],
        };
        let renewed = one.store.renew(&renew).await.unwrap();
        assert_eq!(renewed, [RenewStatus::Ok], "epoch {epoch}");
    }
    let mut late = Rig::new(&server).await;
    assert_eq!(late.pass().await, 0, "it tells what happened on its watch");
}
