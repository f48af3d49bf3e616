//! Health and metrics of a role: `/livez`, `/readyz` and `/metrics`, on a listener of its own.
//!
//! Alive means that the process answers. Ready means that a real script runs in the store and the role is not draining.
//! The listener speaks just enough HTTP/1.1 through axum; it holds nothing and may be closed at any time.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::config::PoolConfig;
use crate::protocol::SnapshotReply;
use crate::shutdown::Shutdown;
use crate::store::{Store, StoreError};
use crate::telemetry::metrics::CONTENT_TYPE;
use crate::telemetry::{ClassGauges, Metrics, PoolGauges};

/// Label of figures of a pool with several classes: its queue is counted as a whole.
const ALL_CLASSES: &str = "all";

/// What a role answers from.
#[derive(Clone)]
pub struct Health {
    store: Store,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
}

/// Why a role is not ready.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// It drains.
    #[error("draining")]
    Draining,
    /// The store cannot run a script.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl Health {
    /// Health of a role over `store` that stops with `shutdown`.
    pub fn new(store: Store, metrics: Arc<Metrics>, shutdown: Shutdown) -> Self {
        Self {
            store,
            metrics,
            shutdown,
        }
    }

    /// Whether the role can do its work now.
    ///
    /// # Errors
    /// Why it cannot.
    pub async fn ready(&self) -> Result<(), NotReady> {
        if self.shutdown.is_draining() {
            return Err(NotReady::Draining);
        }
        Ok(self.store.ready().await?)
    }

    /// The text for Prometheus. Where the store cannot say, its gauges are absent rather than old.
    pub async fn scrape(&self) -> String {
        let gauges = gauges(&self.store).await;
        self.metrics.scrape(gauges.as_ref())
    }

    /// The three routes.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self)
    }
}

async fn readyz(State(health): State<Health>) -> Response {
    match health.ready().await {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {why}\n"),
        )
            .into_response(),
    }
}

async fn metrics(State(health): State<Health>) -> Response {
    (
        [(header::CONTENT_TYPE, CONTENT_TYPE)],
        health.scrape().await,
    )
        .into_response()
}

/// Serves `health` on `listener` until the drain is over: `stop` ends it.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    stop: tokio_util::sync::CancellationToken,
) {
    let served = axum::serve(listener, health.routes())
        .with_graceful_shutdown(stop.cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::warn!(%error, "health listener ended");
    }
}

/// What the store says of every pool; none where it cannot.
pub async fn gauges(store: &Store) -> Option<BTreeMap<String, PoolGauges>> {
    let mut all = BTreeMap::new();
    for pool in store.pools().await.ok()? {
        match store.snapshot(&pool).await {
            Ok(counts) => {
                all.insert(pool.to_string(), pool_gauges(&counts));
            }
            Err(StoreError::NoPool(_)) => {}
            Err(_) => return None,
        }
    }
    Some(all)
}

fn pool_gauges(counts: &SnapshotReply) -> PoolGauges {
    let config: PoolConfig = serde_json::from_str(&counts.def).unwrap_or_default();
    let names = config.class_names();
    let class = match names.as_slice() {
        [only] => (*only).to_owned(),
        _ => ALL_CLASSES.to_owned(),
    };
    #[allow(clippy::cast_precision_loss, reason = "ages are far below 2^53 ms")]
    let oldest_age_seconds = counts.oldest_age_ms as f64 / 1000.0;
    let figures = ClassGauges {
        queued: counts.queued,
        scheduled: counts.scheduled,
        running: counts.slots_used,
        dead: counts.dead,
        oldest_age_seconds,
        slots_used: counts.slots_used,
        slots_limit: counts.slots,
    };
    PoolGauges {
        classes: BTreeMap::from([(class, figures)]),
        class_names: names.iter().map(|name| (*name).to_owned()).collect(),
        demand_jobs: counts.demand(),
        held_tokens: 0,
        gates: vec![("paused", !counts.paused)],
    }
}
