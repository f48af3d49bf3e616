//! The worker as a whole: what it is made of, and how it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::config::{Config, WorkerConfig};
use tidegate_shared::domain::{PoolName, WorkerId};
use tidegate_shared::health::{self, Health};
use tidegate_shared::shutdown::{Shutdown, Tasks};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;
use tokio::sync::watch;

use crate::backend::{BackendError, Backends, Limits};
use crate::beat::{self, Identity};
use crate::capacity::Capacity;
use crate::live::Live;
use crate::pool::{self, Pool, Stages};
use crate::{claimer, renewer};

/// Of the drain's time so much, but at most [`MAX_RESERVE`], is kept for handing leases back.
const RESERVE_SHARE: u32 = 10;
/// Handing leases back takes one round trip; a second has room for one that hangs and another try.
const MAX_RESERVE: Duration = Duration::from_secs(1);
/// How long leases may take to be handed back once calls are closed: beyond it they lapse by themselves.
const HAND_BACK: Duration = Duration::from_secs(3);
/// After the drain's start, so long until the connections that waited for work are surely closed: the wake-up of a job
/// that is handed back must go to another worker.
const UNTIL_CLOSED: Duration = Duration::from_millis(20);
/// How long the tasks that only accompany the work may take to end.
const LEAVE: Duration = Duration::from_secs(3);

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The listener for health and metrics cannot be opened.
    #[error("worker.listen: cannot listen on {address}: {source}")]
    Listen {
        /// The address out of the settings.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A name that is no pool's.
    #[error("worker.pools: `{0}` is no pool's name")]
    Pool(String),
    /// An address of this worker's own model servers that cannot be one.
    #[error("worker.backends: {0}")]
    Backend(#[from] BackendError),
}

/// A worker that is ready to run.
pub struct Worker {
    id: WorkerId,
    config: WorkerConfig,
    pools: Vec<PoolName>,
    limits: Limits,
    store: Store,
    metrics: Arc<Metrics>,
    listener: Option<std::net::TcpListener>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Worker({})", self.id)
    }
}

impl Worker {
    /// A worker by its settings, under a new identity. Its listener is open when this returns.
    ///
    /// # Errors
    /// Where the listener cannot be opened, or a setting cannot be used.
    pub fn new(config: &Config, store: Store, metrics: Arc<Metrics>) -> Result<Self, WorkerError> {
        let mut worker = Self::without_listener(config, store, metrics)?;
        let address = config.worker.listen;
        let open = || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        worker.listener = Some(open().map_err(|source| WorkerError::Listen { address, source })?);
        Ok(worker)
    }

    /// The same without a listener, for a process that has one already.
    ///
    /// # Errors
    /// Where a setting cannot be used.
    pub fn without_listener(
        config: &Config,
        store: Store,
        metrics: Arc<Metrics>,
    ) -> Result<Self, WorkerError> {
        let config = config.worker.clone();
        let pool = |name: &String| name.parse().map_err(|_| WorkerError::Pool(name.clone()));
        let pools = config.pools.iter().map(pool).collect::<Result<_, _>>()?;
        let max_response_bytes = usize::try_from(config.max_response_bytes).unwrap_or(usize::MAX);
        let limits = Limits { max_response_bytes };
        Backends::new(&config.backends, limits)?;
        Ok(Self {
            id: WorkerId::mint(),
            config,
            pools,
            limits,
            store,
            metrics,
            listener: None,
        })
    }

    /// This process life.
    pub fn id(&self) -> &WorkerId {
        &self.id
    }

    /// Where health and metrics are served, with the true port; none without a listener.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener
            .as_ref()
            .and_then(|listener| listener.local_addr().ok())
    }

    /// Works until the shutdown's drain is over.
    ///
    /// At the first signal no more is claimed, and running calls may go on for `worker.drain_ms`; at its end, or at the
    /// second signal, calls are closed and their leases handed back without spending an attempt. Returns at most a few
    /// seconds after that. Dropping the future closes everything at once.
    ///
    /// # Errors
    /// Where the listener cannot be used.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), WorkerError> {
        let stages = Stages::default();
        let _dropped = [
            &stages.drain,
            &stages.close_calls,
            &stages.give_up,
            &stages.end,
        ]
        .map(|stage| stage.clone().drop_guard());
        let (work, company) = (Tasks::new(), Tasks::new());
        let pools = self.pools(&stages, &work);
        self.listen(&company, &stages, &shutdown)?;
        self.start(&pools, &work, &company);
        tracing::info!(worker = %self.id, pools = ?self.config.pools, "worker started");

        shutdown.draining().await;
        stages.drain.cancel();
        let drain = Duration::from_millis(self.config.drain_ms);
        let running: usize = pools.iter().map(|pool| pool.live.len()).sum();
        tracing::info!(
            running,
            drain_ms = self.config.drain_ms,
            "draining: no more claims"
        );
        tokio::time::sleep(UNTIL_CLOSED).await;
        let finishing = work.close_and_wait(drain.saturating_sub(reserve(drain)));
        tokio::select! {
            _ = finishing => {}
            () = shutdown.aborted() => {}
        }
        stages.close_calls.cancel();
        if work.close_and_wait(HAND_BACK).await.is_err() {
            stages.give_up.cancel();
        }
        let left_work = work.close_and_wait(LEAVE).await;
        stages.end.cancel();
        let left_company = company.close_and_wait(LEAVE).await;
        match left_work.and(left_company) {
            Ok(()) => tracing::info!(worker = %self.id, "worker ended"),
            Err(left) => tracing::error!(worker = %self.id, %left, "worker ended with tasks left"),
        }
        Ok(())
    }

    fn pools(&self, stages: &Stages, work: &Tasks) -> Vec<Arc<Pool>> {
        let capacity = Capacity::new(self.config.concurrency as usize, self.pools.len());
        let pool = |(number, name): (usize, &PoolName)| {
            Arc::new(Pool {
                name: name.clone(),
                worker: self.id.clone(),
                store: self.store.clone(),
                metrics: Arc::clone(&self.metrics),
                stages: stages.clone(),
                live: Live::default(),
                capacity: Arc::clone(&capacity),
                number,
                work: work.clone(),
                settings: watch::Sender::new(None),
                own_backends: self.config.backends.clone(),
                limits: self.limits,
            })
        };
        self.pools.iter().enumerate().map(pool).collect()
    }

    fn listen(
        &mut self,
        company: &Tasks,
        stages: &Stages,
        shutdown: &Shutdown,
    ) -> Result<(), WorkerError> {
        let Some(listener) = self.listener.take() else {
            return Ok(());
        };
        let address = self.config.listen;
        let listener = tokio::net::TcpListener::from_std(listener)
            .map_err(|source| WorkerError::Listen { address, source })?;
        let (store, metrics) = (self.store.clone(), Arc::clone(&self.metrics));
        let health = Health::new(store, metrics, shutdown.clone());
        company.spawn(health::serve(listener, health, stages.end.clone()));
        Ok(())
    }

    fn start(&self, pools: &[Arc<Pool>], work: &Tasks, company: &Tasks) {
        for pool in pools {
            company.spawn(pool::follow_settings(Arc::clone(pool)));
            company.spawn(renewer::run(Arc::clone(pool)));
            company.spawn(renewer::answer_hints(Arc::clone(pool)));
            work.spawn(claimer::run(Arc::clone(pool)));
        }
        let identity = Identity {
            name: self.config.name.clone(),
            pools: self.config.pools.clone(),
            concurrency: self.config.concurrency,
            started_at_ms: beat::wall_ms(),
        };
        company.spawn(beat::run(pools.to_vec(), identity));
    }
}

/// The part of the drain's time that is kept for handing leases back, so that all of it is over within `drain_ms`.
fn reserve(drain: Duration) -> Duration {
    (drain / RESERVE_SHARE).min(MAX_RESERVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_closed_early_enough_to_hand_leases_back_within_the_drain() {
        for (drain_ms, reserve_ms) in [(0, 0), (500, 50), (5_000, 500), (25_000, 1_000)] {
            assert_eq!(
                reserve(Duration::from_millis(drain_ms)),
                Duration::from_millis(reserve_ms)
            );
        }
    }
}
