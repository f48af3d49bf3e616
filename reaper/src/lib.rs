//! The reaper gives back what dead workers held, ends what is overdue, and drops what was kept long enough. Any number
//! may run: each pass is one guarded script per pool, safe together with all others.

mod epoch;
mod pass;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::config::Config;
use tidegate_shared::health::{self, Health};
use tidegate_shared::shutdown::{Shutdown, Tasks};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long a health listener may take to close its last answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// One reaper.
pub struct Reaper {
    store: Store,
    metrics: Arc<Metrics>,
    pass_every: Duration,
    listener: Option<TcpListener>,
}

impl Reaper {
    /// A reaper over `store`. With `listen` it serves health and metrics at `reaper.listen`.
    ///
    /// # Errors
    /// Where the address cannot be listened on.
    pub async fn bind(
        config: &Config,
        store: Store,
        metrics: Arc<Metrics>,
        listen: bool,
    ) -> std::io::Result<Self> {
        let listener = match listen {
            true => Some(TcpListener::bind(config.reaper.listen).await?),
            false => None,
        };
        Ok(Self {
            store,
            metrics,
            pass_every: Duration::from_millis(config.reaper.pass_ms),
            listener,
        })
    }

    /// Where health and metrics are served, if they are.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|l| l.local_addr().ok())
    }

    /// Runs until shutdown. A pass that has begun is finished.
    pub async fn run(self, shutdown: Shutdown) {
        let tasks = Tasks::new();
        let stop = CancellationToken::new();
        if let Some(listener) = self.listener {
            let health = Health::new(
                self.store.clone(),
                Arc::clone(&self.metrics),
                shutdown.clone(),
            );
            tasks.spawn(health::serve(listener, health, stop.clone()));
        }
        pass::run(&self.store, &self.metrics, self.pass_every, &shutdown).await;
        stop.cancel();
        if let Err(left) = tasks.close_and_wait(CLOSE_TIMEOUT).await {
            tracing::warn!(%left, "stopped all the same");
        }
    }
}
