//! What the routes ask for, over the store: the only place here that names the protocol's steps.

mod catalog;
mod dead;
mod jobs;
mod lists;
mod metadata;
mod pools;
mod submit;

use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::config::Config;
use tidegate_shared::domain::JobId;
use tidegate_shared::health::Health;
use tidegate_shared::shutdown::{Shutdown, Tasks};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;

use crate::auth::Auth;
use crate::error::{Code, Problem};
use crate::input::body::{Bounds, Reader};

pub(crate) use jobs::LOOK_EVERY;
pub(crate) use lists::Filter;
pub(crate) use pools::Switch;
pub(crate) use submit::Ask;

use catalog::Catalog;
use metadata::Metadata;

/// Longest silence of a stream of events: proxies cut what is silent for longer.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// Everything an answer is made from.
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) auth: Auth,
    pub(crate) reader: Reader,
    pub(crate) health: Health,
    pub(crate) shutdown: Shutdown,
    pub(crate) tasks: Tasks,
    /// Deepest nesting of a JSON body.
    pub(crate) max_depth: u32,
    /// Longest silence of a stream of events.
    pub(crate) heartbeat: Duration,
    metrics: Arc<Metrics>,
    catalog: Catalog,
    metadata: Metadata,
}

impl App {
    /// An ingress's inside; what it spawns is tracked in `tasks`.
    pub(crate) fn new(
        config: &Config,
        store: Store,
        metrics: Arc<Metrics>,
        shutdown: Shutdown,
        tasks: Tasks,
    ) -> Self {
        let bounds = Bounds {
            max_bytes: config.ingress.max_body_bytes,
            timeout: Duration::from_millis(config.ingress.body_timeout_ms),
        };
        Self {
            auth: Auth::new(config.ingress.auth, store.clone()),
            reader: Reader::new(bounds, tasks.clone()),
            health: Health::new(store.clone(), Arc::clone(&metrics), shutdown.clone()),
            catalog: Catalog::new(store.clone(), Arc::clone(&metrics)),
            metadata: Metadata::default(),
            max_depth: config.ingress.max_depth,
            heartbeat: HEARTBEAT,
            store,
            metrics,
            shutdown,
            tasks,
        }
    }
}

/// The one answer about a thing that is not there, or not the caller's: nothing tells the two apart.
pub(crate) fn not_found() -> Problem {
    Problem::new(Code::NotFound, "there is no such thing")
}

/// The job of a path.
pub(crate) fn job_id(text: &str) -> Result<JobId, Problem> {
    text.parse().map_err(|_| not_found())
}
