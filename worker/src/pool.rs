//! What the tasks of one pool share, and how they follow the pool's settings.

use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::{PoolName, WorkerId};
use tidegate_shared::shutdown::Tasks;
use tidegate_shared::store::{PoolDef, Store};
use tidegate_shared::telemetry::Metrics;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backend::{BackendError, Backends, Limits};
use crate::capacity::Capacity;
use crate::live::Live;

/// How often the settings are looked at: a running system follows within a second.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// The stages of a worker's end, each started once and in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stages {
    /// No more claims; what is not started is handed back.
    pub(crate) drain: CancellationToken,
    /// Calls are closed, their leases handed back.
    pub(crate) close_calls: CancellationToken,
    /// Verdicts that the store has not taken are given up.
    pub(crate) give_up: CancellationToken,
    /// Renewals, hints and signs of life end.
    pub(crate) end: CancellationToken,
}

/// A pool's settings as this worker uses them.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Of the definition.
    version: u64,
    /// The definition.
    pub(crate) config: PoolConfig,
    /// Where its calls go: this worker's own servers, else the pool's.
    pub(crate) backends: Arc<Backends>,
    urls: Vec<String>,
}

impl Settings {
    /// Time bound of a lease.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.config.lease_ms)
    }

    /// Time between two renewals.
    pub(crate) fn renew_every(&self) -> Duration {
        Duration::from_millis(self.config.renew_ms)
    }

    /// The settings after `def`; the model servers, with their connections, stay where their addresses do.
    fn next(
        before: Option<&Self>,
        def: PoolDef,
        own: &[String],
        limits: Limits,
    ) -> Result<Self, BackendError> {
        let urls = if own.is_empty() {
            &def.config.backends
        } else {
            own
        };
        let backends = match before {
            Some(before) if before.urls == *urls => Arc::clone(&before.backends),
            _ => Arc::new(Backends::new(urls, limits)?),
        };
        Ok(Self {
            version: def.version,
            urls: urls.to_vec(),
            config: def.config,
            backends,
        })
    }
}

/// What the tasks of one pool share.
pub(crate) struct Pool {
    /// The pool.
    pub(crate) name: PoolName,
    /// This process life.
    pub(crate) worker: WorkerId,
    /// The store.
    pub(crate) store: Store,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// The stages of the end.
    pub(crate) stages: Stages,
    /// Deliveries in hand.
    pub(crate) live: Live,
    /// Room for more of them, shared by all pools.
    pub(crate) capacity: Arc<Capacity>,
    /// The pool's number in `capacity`.
    pub(crate) number: usize,
    /// Claimers and deliveries.
    pub(crate) work: Tasks,
    /// The settings; none until they were read.
    pub(crate) settings: watch::Sender<Option<Arc<Settings>>>,
    /// This worker's own model servers; empty: the pool's.
    pub(crate) own_backends: Vec<String>,
    /// Bounds of one answer.
    pub(crate) limits: Limits,
}

impl Pool {
    /// The settings as they are now.
    pub(crate) fn settings(&self) -> Option<Arc<Settings>> {
        self.settings.borrow().clone()
    }

    /// Waits for the pool's settings. Safe to cancel.
    pub(crate) async fn settled_settings(&self) -> Arc<Settings> {
        let mut settings = self.settings.subscribe();
        loop {
            if let Some(settings) = settings.borrow_and_update().clone() {
                return settings;
            }
            // The sender lives as long as `self`.
            let _ = settings.changed().await;
        }
    }

    /// Slots of the pool; none while its settings are not known.
    pub(crate) fn slots(&self) -> usize {
        self.settings()
            .map_or(0, |settings| settings.config.slots as usize)
    }
}

/// Keeps the pool's settings current.
pub(crate) async fn follow_settings(pool: Arc<Pool>) {
    let mut missing = false;
    loop {
        match pool.store.pool(&pool.name).await {
            Ok(Some(def)) => {
                missing = false;
                take_over(&pool, def);
            }
            Ok(None) if !missing => {
                missing = true;
                tracing::warn!(pool = %pool.name, "the pool is not in the store; waiting for it");
            }
            Ok(None) => {}
            Err(error) if error.is_unavailable() => {
                tracing::debug!(pool = %pool.name, %error, "the settings cannot be read");
            }
            Err(error) => tracing::error!(pool = %pool.name, %error, "the settings cannot be read"),
        }
        tokio::select! {
            () = pool.stages.end.cancelled() => return,
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
        }
    }
}

fn take_over(pool: &Pool, def: PoolDef) {
    let before = pool.settings();
    let same =
        |before: &Arc<Settings>| before.version == def.version && before.config == def.config;
    if before.as_ref().is_some_and(same) {
        return;
    }
    let version = def.version;
    match Settings::next(before.as_deref(), def, &pool.own_backends, pool.limits) {
        Ok(settings) => {
            tracing::info!(pool = %pool.name, version, slots = settings.config.slots, "settings of the pool");
            pool.metrics
                .allow(pool.name.as_str(), settings.config.class_names());
            pool.store
                .bound_by_lease(&pool.name, settings.config.lease_ms);
            pool.settings.send_replace(Some(Arc::new(settings)));
            pool.capacity.look_again();
        }
        Err(error) => {
            tracing::error!(pool = %pool.name, version, %error, "settings that cannot be used; the last ones stay");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIMITS: Limits = Limits {
        max_response_bytes: 1_000,
    };

    fn def(version: u64, backends: &[&str]) -> PoolDef {
        PoolDef {
            version,
            paused: false,
            draining: false,
            config: PoolConfig {
                backends: backends.iter().map(|url| (*url).to_owned()).collect(),
                ..PoolConfig::default()
            },
        }
    }

    #[test]
    fn model_servers_stay_while_their_addresses_do() {
        let first = Settings::next(None, def(1, &["http://a"]), &[], LIMITS).unwrap();
        let same = Settings::next(Some(&first), def(2, &["http://a"]), &[], LIMITS).unwrap();
        assert!(Arc::ptr_eq(&first.backends, &same.backends));
        let other = Settings::next(Some(&same), def(3, &["http://b"]), &[], LIMITS).unwrap();
        assert_eq!(other.backends.all()[0].url(), "http://b");
    }

    #[test]
    fn a_workers_own_servers_go_before_the_pools() {
        let own = ["http://own".to_owned()];
        let settings = Settings::next(None, def(1, &["http://a"]), &own, LIMITS).unwrap();
        assert_eq!(settings.backends.all().len(), 1);
        assert_eq!(settings.backends.all()[0].url(), "http://own");
    }
}
