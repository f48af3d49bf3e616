//! The same through the store's own API, every guarantee on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use hdrhistogram::Histogram;
use tidegate_shared::config::{PoolConfig, StoreConfig, StoreUrl};
use tidegate_shared::domain::{
    DeadReason, Endpoint, Envelope, JobId, Owner, PoolName, Verdict, WorkerId,
};
use tidegate_shared::local::LocalServer;
use tidegate_shared::protocol::{
    Claim, ClaimReply, Delivery, Idempotency, Settle, SettleTag, Submit, SubmitReply,
};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;

use super::measure::{self, Figure};
use super::resp::Client;
use super::{BODY_BYTES, RESULT_BYTES};

/// The store and what the figures send through it.
struct Ours {
    store: Store,
    pool: PoolName,
    worker: WorkerId,
    body: Vec<u8>,
    result: Vec<u8>,
}

impl Ours {
    async fn open(server: &LocalServer) -> anyhow::Result<Self> {
        Client::connect(&server.url())
            .await?
            .run(&[b"FLUSHALL"])
            .await?;
        let config = StoreConfig {
            url: StoreUrl::new(server.url()),
            ..StoreConfig::default()
        };
        let store = Store::connect(&config, Arc::new(Metrics::new("bench"))).await?;
        let pool: PoolName = "default".parse()?;
        let settings = PoolConfig {
            slots: 100_000,
            max_queued: 10_000_000,
            max_queued_bytes: 1 << 40,
            ..PoolConfig::default()
        };
        store.apply(&pool, &settings).await?;
        Ok(Self {
            store,
            pool,
            worker: WorkerId::mint(),
            body: measure::filler(BODY_BYTES),
            result: measure::filler(RESULT_BYTES),
        })
    }

    async fn submit(&self) -> anyhow::Result<JobId> {
        let id = JobId::mint(&self.pool);
        let envelope = Envelope {
            endpoint: Endpoint::ChatCompletions,
            body: self.body.clone(),
            metadata: String::new(),
            webhook_url: String::new(),
            traceparent: String::new(),
        };
        let step = Submit {
            id: id.clone(),
            tenant: "bench".into(),
            class: "default".into(),
            priority: 0,
            delay_ms: 0,
            deadline_ms: 0,
            timeout_ms: 0,
            max_attempts: 3,
            model: "model".into(),
            idempotency: Idempotency::default(),
            envelope: envelope.to_bytes(),
        };
        let reply = self.store.submit(&step).await?;
        ensure!(reply == SubmitReply::Accepted, "submit: {reply:?}");
        Ok(id)
    }

    async fn claim(&self) -> anyhow::Result<Option<Delivery>> {
        let step = Claim {
            pool: self.pool.clone(),
            worker: self.worker.clone(),
            owners: vec![Owner::mint()],
        };
        match self.store.claim(&step).await? {
            ClaimReply::Deliveries(mut deliveries) => Ok(deliveries.pop()),
            ClaimReply::None { .. } => Ok(None),
        }
    }

    async fn settle(&self, delivery: &Delivery) -> anyhow::Result<()> {
        let envelope = Envelope::from_bytes(&delivery.envelope)?;
        ensure!(envelope.body.len() == BODY_BYTES, "no body");
        let step = Settle {
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
            result: self.result.clone(),
            next: None,
        };
        let reply = self.store.settle(&step).await?;
        ensure!(reply.tag == SettleTag::Settled, "settle: {reply:?}");
        Ok(())
    }

    async fn read(&self, id: &JobId) -> anyhow::Result<()> {
        let result = self.store.result(id).await?.context("a result")?;
        ensure!(result.len() == RESULT_BYTES, "read {} bytes", result.len());
        Ok(())
    }

    /// The exact-delivery check: every job ended, nothing is owed.
    async fn check(&self, jobs: u32) -> anyhow::Result<()> {
        let counts = self.store.snapshot(&self.pool).await?;
        let owed =
            counts.queued + counts.scheduled + counts.slots_used + counts.dead + counts.owed_bytes;
        if counts.ended != u64::from(jobs) || owed != 0 {
            bail!("exact-delivery check failed: {counts:?}");
        }
        Ok(())
    }
}

/// `jobs` lifecycles with `in_flight` callers, each submit → claim → settle → read.
pub(super) async fn lifecycle(
    server: &LocalServer,
    in_flight: usize,
    jobs: u32,
) -> anyhow::Result<Figure> {
    let ours = Arc::new(Ours::open(server).await?);
    let next = Arc::new(AtomicU64::new(0));
    let before = measure::redis_cpu(server.pid())?;
    let started = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..in_flight {
        let (ours, next) = (Arc::clone(&ours), Arc::clone(&next));
        callers.spawn(async move {
            while next.fetch_add(1, Ordering::Relaxed) < u64::from(jobs) {
                ours.submit().await?;
                let delivery = ours
                    .claim()
                    .await?
                    .context("a job for each that was submitted")?;
                ours.settle(&delivery).await?;
                ours.read(&delivery.id).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(result) = callers.join_next().await {
        result??;
    }
    let took = started.elapsed();
    let redis_cpu = measure::redis_cpu(server.pid())? - before;
    ours.check(jobs).await?;
    Ok(Figure {
        jobs,
        took,
        redis_cpu,
    })
}

/// From submit called to the worker having the job, through the waiter that workers use.
pub(super) async fn pickup(server: &LocalServer, count: u32) -> anyhow::Result<Histogram<u64>> {
    let ours = Arc::new(Ours::open(server).await?);
    let mut waiter = ours.store.work_waiter(&ours.pool);
    waiter.wait(Duration::from_millis(1)).await;
    let mut histogram = Histogram::new(3)?;
    for _ in 0..count {
        let worker = Arc::clone(&ours);
        let waiting = tokio::spawn(async move {
            // The marker of the job before may still be set: such a wake finds nothing and waits on.
            loop {
                waiter.wait(Duration::from_secs(10)).await;
                if let Some(delivery) = worker.claim().await? {
                    return anyhow::Ok((waiter, delivery, Instant::now()));
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(2)).await;
        let started = Instant::now();
        ours.submit().await?;
        let (back, delivery, got) = waiting.await??;
        waiter = back;
        histogram.record(measure::micros(got - started))?;
        ours.settle(&delivery).await?;
    }
    ours.check(count).await?;
    Ok(histogram)
}

/// Memory of the server for each waiting job, beyond its body.
pub(super) async fn bytes_per_waiting_job(server: &LocalServer, count: u32) -> anyhow::Result<f64> {
    let ours = Ours::open(server).await?;
    let client = Client::connect(&server.url()).await?;
    ours.store.snapshot(&ours.pool).await?;
    let before = measure::used_memory(&client).await?;
    for _ in 0..count {
        ours.submit().await?;
    }
    let after = measure::used_memory(&client).await?;
    ensure!(
        ours.store.snapshot(&ours.pool).await?.queued == u64::from(count),
        "not all wait"
    );
    Ok(measure::each(after.saturating_sub(before), count) - measure::each(BODY_BYTES as u64, 1))
}
