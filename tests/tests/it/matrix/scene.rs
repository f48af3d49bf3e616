//! What a step finds: a pool brought, step by step, to where the step changes something.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::{JobId, Owner, PoolName, Verdict, WorkerId};
use tidegate_shared::protocol::{Claim, ClaimReply, Expire, Lineage, Renew};
use tidegate_shared::store::Store;
use tidegate_tests::{Ask, HeldDelivery as Held, LONG, until};
use tokio_util::task::AbortOnDropHandle;

use super::cells::Row;

/// Pause of the harness between two signs of life to the pool, far below half of the shortest lease: without any the
/// pool would take its store for one that was away.
const TICK: Duration = Duration::from_millis(50);
/// Before the delayed job of `expire` is due, and its deadline of another: both are over when its lease is.
const DUE_MS: u64 = 200;

/// The last sign of life, and the longest time between two.
type Signs = Mutex<(Option<Instant>, Duration)>;

/// A pool and the step that is to change it.
pub(crate) struct Scene {
    pub(crate) store: Store,
    pub(crate) pool: PoolName,
    /// All jobs that there are or will be.
    pub(crate) jobs: Vec<JobId>,
    /// The step.
    pub(crate) ask: Ask,
    /// Delivery that the step is about, or that it brings: the one that may become stale.
    pub(crate) held: Option<Held>,
    others: Arc<Mutex<Vec<Held>>>,
    signs: Arc<Signs>,
    _ticks: AbortOnDropHandle<()>,
}

/// Settings of a pool with this lease.
pub(crate) fn config(lease_ms: u64) -> PoolConfig {
    PoolConfig {
        slots: 4,
        lease_ms,
        renew_ms: lease_ms / 4,
        ..PoolConfig::default()
    }
}

impl Scene {
    /// Brings a pool that has its settings to where `row` changes something.
    pub(crate) async fn set(store: &Store, pool: &PoolName, row: Row, lease_ms: u64) -> Self {
        let (others, signs) = (Arc::default(), Arc::new(Signs::default()));
        let ticks = tokio::spawn(tick(
            store.clone(),
            pool.clone(),
            Arc::clone(&others),
            Arc::clone(&signs),
        ));
        let mut scene = Self {
            store: store.clone(),
            pool: pool.clone(),
            jobs: Vec::new(),
            ask: Ask::Pause(pool.to_string()),
            held: None,
            others,
            signs,
            _ticks: AbortOnDropHandle::new(ticks),
        };
        scene.ask = match row {
            Row::Submit => scene.new_job(0, 0, false),
            Row::SubmitWithKey => scene.new_job(0, 0, true),
            Row::Claim => scene.claim_step().await,
            Row::Follow => Ask::Follow(scene.waiting().await),
            Row::CancelWaiting => Ask::Cancel(scene.waiting().await),
            Row::CancelRunning => {
                let held = scene.running().await;
                scene.keeps(held.clone());
                Ask::Cancel(held.id)
            }
            Row::Requeue => Ask::Requeue(scene.dead().await, Owner::mint().expose().to_owned()),
            Row::Purge => Ask::Purge(scene.dead().await),
            Row::Expire => scene.expire_step().await,
            Row::Beat => Ask::Beat(pool.to_string(), WorkerId::mint().to_string()),
            Row::Apply => {
                let more = PoolConfig {
                    slots: 5,
                    ..config(lease_ms)
                };
                Ask::Apply(pool.to_string(), Box::new(more))
            }
            Row::Pause => {
                scene.waiting().await;
                Ask::Pause(pool.to_string())
            }
            _ => scene.delivery_step(row).await,
        };
        scene
    }

    /// Steps of a worker about a delivery that it has.
    async fn delivery_step(&mut self, row: Row) -> Ask {
        let held = self.running().await;
        if row == Row::SettleAndClaim {
            self.waiting().await;
        }
        if row == Row::Append {
            Ask::Follow(held.id.clone())
                .send(&self.store)
                .await
                .unwrap();
        }
        self.held = Some(held.clone());
        let settle = |verdict| Ask::Settle {
            held: held.clone(),
            verdict,
            next: None,
        };
        match row {
            Row::Renew => Ask::Renew(held),
            Row::Append => Ask::Append(held),
            Row::SettleSucceed => settle(Verdict::Succeed),
            Row::SettleFail => settle(Verdict::Fail),
            Row::SettleDead => settle(Verdict::Dead),
            Row::SettleRetry => settle(Verdict::Retry),
            Row::SettleRelease => settle(Verdict::Release),
            Row::SettleAndClaim => Ask::Settle {
                held,
                verdict: Verdict::Succeed,
                next: Some((
                    WorkerId::mint().to_string(),
                    Owner::mint().expose().to_owned(),
                )),
            },
            other => panic!("{other:?} is about no delivery"),
        }
    }

    async fn claim_step(&mut self) -> Ask {
        let id = self.waiting().await;
        let owner = Owner::mint().expose().to_owned();
        self.held = Some(Held {
            id,
            fence: 1,
            owner: owner.clone(),
        });
        Ask::Claim {
            pool: self.pool.to_string(),
            worker: WorkerId::mint().to_string(),
            owner,
        }
    }

    /// One job of each kind that a pass moves: its lease over, due, past its deadline.
    async fn expire_step(&mut self) -> Ask {
        let held = self.running().await;
        for (delay_ms, deadline_ms) in [(DUE_MS, 0), (0, DUE_MS)] {
            let step = self.new_job(delay_ms, deadline_ms, false);
            step.send(&self.store).await.unwrap();
        }
        let expiry = self.now_ms().await + config_lease(&self.store, &self.pool).await;
        until(LONG, "the lease ends", async || {
            (self.now_ms().await > expiry).then_some(())
        })
        .await;
        drop(held);
        Ask::Expire(self.pool.to_string(), self.lineage().await)
    }

    /// The submit of one more job, not sent.
    fn new_job(&mut self, delay_ms: u64, deadline_ms: u64, with_key: bool) -> Ask {
        let id = JobId::mint(&self.pool);
        self.jobs.push(id.clone());
        let key = if with_key { id.bare() } else { "" }.to_owned();
        Ask::Submit {
            id,
            key,
            delay_ms,
            deadline_ms,
        }
    }

    async fn waiting(&mut self) -> JobId {
        let step = self.new_job(0, 0, false);
        assert_eq!(step.send(&self.store).await.unwrap(), "accepted");
        self.jobs.last().unwrap().clone()
    }

    async fn running(&mut self) -> Held {
        self.waiting().await;
        self.claim().await.expect("a job waits")
    }

    async fn dead(&mut self) -> JobId {
        let held = self.running().await;
        let settle = held.settle(Verdict::Dead, None);
        self.store.settle(&settle).await.unwrap();
        held.id
    }

    /// A worker of the harness takes a job, if one waits.
    pub(crate) async fn claim(&self) -> Option<Held> {
        let step = Claim {
            pool: self.pool.clone(),
            worker: WorkerId::mint(),
            owners: vec![Owner::mint()],
        };
        match self.store.claim(&step).await.unwrap() {
            ClaimReply::Deliveries(all) => all.into_iter().next().map(|d| Held {
                id: d.id,
                fence: d.fence.0,
                owner: d.owner.expose().to_owned(),
            }),
            ClaimReply::None { .. } => None,
        }
    }

    /// The harness's workers renew this delivery from now on.
    pub(crate) fn keeps(&self, held: Held) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.push(held);
    }

    /// A pass of the harness's reaper.
    pub(crate) async fn reap(&self) {
        let step = Expire {
            pool: self.pool.clone(),
            limit: 100,
            lineage: self.lineage().await,
        };
        self.store.expire(&step).await.unwrap();
    }

    async fn lineage(&self) -> String {
        let pool = self.pool.clone();
        self.store.lineage(&Lineage { pool }).await.unwrap()
    }

    /// The longest time without a sign of life of the harness so far, in milliseconds: a machine too slow for them is too
    /// slow for leases that only they renew.
    pub(crate) fn silence_ms(&self) -> u128 {
        let (last, longest) = *self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        let now = last.map_or(Duration::ZERO, |last| last.elapsed());
        longest.max(now).as_millis()
    }

    /// The pool's time.
    pub(crate) async fn now_ms(&self) -> u64 {
        self.store.snapshot(&self.pool).await.unwrap().now_ms
    }
}

async fn config_lease(store: &Store, pool: &PoolName) -> u64 {
    let def = store.pool(pool).await.unwrap();
    def.expect("it has its settings").config.lease_ms
}

/// Signs of life, and renewals of what the harness's own workers run. Trouble passes: the store may be down.
async fn tick(store: Store, pool: PoolName, others: Arc<Mutex<Vec<Held>>>, signs: Arc<Signs>) {
    loop {
        let held = others
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let step = Renew {
            pool: pool.clone(),
            default_timeout_ms: 1_800_000,
            items: held
                .iter()
                .flat_map(|held| held.renewal().items)
                .map(|mut item| {
                    item.output_tokens = 0;
                    item
                })
                .collect(),
        };
        if store.renew(&step).await.is_ok() {
            let mut signs = signs.lock().unwrap_or_else(PoisonError::into_inner);
            let silence = signs.0.map_or(Duration::ZERO, |last| last.elapsed());
            *signs = (Some(Instant::now()), signs.1.max(silence));
        }
        tokio::time::sleep(TICK).await;
    }
}
