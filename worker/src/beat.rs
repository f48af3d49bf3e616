//! Signs of life: what operators see of this worker.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tidegate_shared::protocol::Beat;

use crate::pool::Pool;

/// Jobs named in one sign of life: enough for a person; the count is exact.
const MAX_JOB_IDS: usize = 1_000;

/// Until a pool's settings are known its lease may be short: a worker that spoke once must not be forgotten.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What stays the same over a worker's life.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The label out of the settings.
    pub(crate) name: String,
    /// The pools it serves.
    pub(crate) pools: Vec<String>,
    /// Deliveries it runs at once; 0: whatever the pools' slots allow.
    pub(crate) concurrency: u32,
    /// Wall clock, for people alone.
    pub(crate) started_at_ms: u64,
}

/// The worker as operators see it: the shape of the public interface.
#[derive(Debug, Serialize)]
struct Info<'a> {
    id: &'a str,
    object: &'static str,
    name: &'a str,
    pools: &'a [String],
    concurrency: u32,
    running: usize,
    job_ids: Vec<String>,
    started_at_ms: u64,
    seen_at_ms: u64,
    draining: bool,
    version: &'static str,
}

/// Milliseconds since 1970 by the wall clock, to be shown and never compared.
#[expect(
    clippy::disallowed_methods,
    reason = "shown to people; no decision rests on it"
)]
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Says of all `pools` that the worker is here: at once, each renewal interval, when the drain starts; and at the end
/// that it leaves.
pub(crate) async fn run(pools: Vec<Arc<Pool>>, identity: Identity) {
    let Some(stages) = pools.first().map(|pool| pool.stages.clone()) else {
        return;
    };
    let mut said_draining = false;
    loop {
        let mut every = Duration::from_secs(5);
        for pool in &pools {
            say(
                pool,
                false,
                info(&pools, &identity, stages.drain.is_cancelled()),
            )
            .await;
            let renewal = pool
                .settings()
                .map_or(AGAIN_AFTER, |settings| settings.renew_every());
            every = every.min(renewal);
        }
        tokio::select! {
            () = stages.end.cancelled() => break,
            () = stages.drain.cancelled(), if !said_draining => said_draining = true,
            () = tokio::time::sleep(every) => {}
        }
    }
    for pool in &pools {
        say(pool, true, String::new()).await;
    }
}

async fn say(pool: &Pool, gone: bool, info: String) {
    let step = Beat {
        pool: pool.name.clone(),
        worker: pool.worker.clone(),
        gone,
        info,
    };
    if let Err(error) = pool.store.beat(&step).await {
        tracing::debug!(pool = %pool.name, %error, "the sign of life was not taken");
    }
}

fn info(pools: &[Arc<Pool>], identity: &Identity, draining: bool) -> String {
    let running = pools.iter().map(|pool| pool.live.len()).sum();
    let jobs = pools.iter().flat_map(|pool| pool.live.all());
    let info = Info {
        id: pools.first().map_or("", |pool| pool.worker.as_str()),
        object: "worker",
        name: &identity.name,
        pools: &identity.pools,
        concurrency: identity.concurrency,
        running,
        job_ids: jobs
            .take(MAX_JOB_IDS)
            .map(|held| held.id.to_string())
            .collect(),
        started_at_ms: identity.started_at_ms,
        seen_at_ms: wall_ms(),
        draining,
        version: env!("CARGO_PKG_VERSION"),
    };
    serde_json::to_string(&info).expect("texts and numbers always serialise")
}
