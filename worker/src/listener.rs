//! The worker's own listener: `/livez`, `/readyz`, `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tidegate_shared::protocol::SnapshotReply;
use tidegate_shared::telemetry::metrics::{CONTENT_TYPE, ClassGauges, Metrics, PoolGauges};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::pool::{Pool, Settings};

/// A probe is answered within it, whatever the store does.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// How long open requests may hold up the end.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Probed {
    pools: Arc<[Arc<Pool>]>,
    metrics: Arc<Metrics>,
}

/// Serves until `end`, and a second longer what is open then.
pub(crate) async fn serve(
    listener: TcpListener,
    pools: Vec<Arc<Pool>>,
    metrics: Arc<Metrics>,
    end: CancellationToken,
) {
    let probed = Probed {
        pools: pools.into(),
        metrics,
    };
    let router = Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(probed);
    let graceful = end.clone();
    let serving = axum::serve(listener, router)
        .with_graceful_shutdown(async move { graceful.cancelled().await });
    let closing = async {
        end.cancelled().await;
        tokio::time::sleep(CLOSE_LIMIT).await;
    };
    tokio::select! {
        served = serving.into_future() => {
            if let Err(error) = served {
                tracing::error!(%error, "the listener for health and metrics failed");
            }
        }
        () = closing => {}
    }
}

/// Ready for work: not draining, and the store runs a real script.
async fn ready(State(probed): State<Probed>) -> (StatusCode, String) {
    let no = |why: String| (StatusCode::SERVICE_UNAVAILABLE, why);
    let Some(pool) = probed.pools.first() else {
        return no("no pools\n".to_owned());
    };
    if pool.stages.drain.is_cancelled() {
        return no("draining\n".to_owned());
    }
    match tokio::time::timeout(PROBE_LIMIT, pool.store.ready()).await {
        Ok(Ok(())) => (StatusCode::OK, "ready\n".to_owned()),
        Ok(Err(error)) => no(format!("{error}\n")),
        Err(_) => no("the store does not answer\n".to_owned()),
    }
}

/// The gauges of this worker's pools out of the store, and what this process counted. A figure that the store cannot say
/// is absent.
async fn scrape(State(probed): State<Probed>) -> impl IntoResponse {
    let gauges = tokio::time::timeout(PROBE_LIMIT, gauges(&probed.pools)).await;
    let text = probed.metrics.scrape(gauges.ok().flatten().as_ref());
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text)
}

async fn gauges(pools: &[Arc<Pool>]) -> Option<BTreeMap<String, PoolGauges>> {
    let mut all = BTreeMap::new();
    for pool in pools {
        // A pool that is not in the store has no figures.
        let Some(settings) = pool.settings() else {
            continue;
        };
        let snapshot = pool.store.snapshot(&pool.name).await.ok()?;
        all.insert(pool.name.to_string(), of_snapshot(&snapshot, &settings));
    }
    Some(all)
}

/// The store counts by pool; all of it stands under the pool's first class.
fn of_snapshot(snapshot: &SnapshotReply, settings: &Settings) -> PoolGauges {
    // Ages in seconds need no more digits than a float has.
    #[allow(clippy::cast_precision_loss)]
    let oldest_age_seconds = snapshot.oldest_age_ms as f64 / 1000.0;
    let mut classes: BTreeMap<String, ClassGauges> = settings
        .config
        .class_names()
        .into_iter()
        .map(|name| (name.to_owned(), ClassGauges::default()))
        .collect();
    if let Some(first) = settings.config.class_names().first()
        && let Some(figures) = classes.get_mut(*first)
    {
        *figures = ClassGauges {
            queued: snapshot.queued,
            scheduled: snapshot.scheduled,
            running: snapshot.slots_used,
            dead: snapshot.dead,
            oldest_age_seconds,
            slots_used: snapshot.slots_used,
            slots_limit: snapshot.slots,
        };
    }
    PoolGauges {
        classes,
        demand_jobs: snapshot.demand(),
        held_tokens: 0,
        gates: vec![("paused", !snapshot.paused)],
    }
}
