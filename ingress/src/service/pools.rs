//! Pools and workers, for operators.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::PoolName;
use tidegate_shared::protocol::{ApplyReply, Pause, SnapshotReply};
use tidegate_shared::store::StoreError;

use super::App;
use super::catalog::Entries;
use crate::error::{Code, Problem};
use crate::wire::pool::{Counts, DemandBody, PoolBody};

/// What an operator switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// No claims.
    Pause,
    /// Claims and submits go on.
    Resume,
    /// No submits; what is there runs out.
    Drain,
}

impl App {
    /// Every pool's definition, for routes that need no counts.
    pub(crate) async fn definitions(&self) -> Result<Entries, Problem> {
        Ok(self.catalog.all().await?)
    }

    /// A pool.
    pub(crate) async fn pool(&self, pool: &PoolName) -> Result<PoolBody, Problem> {
        let counts = self.store.snapshot(pool).await?;
        shown(pool, &counts)
    }

    /// Every pool.
    pub(crate) async fn pools(&self) -> Result<Vec<PoolBody>, Problem> {
        let mut all = Vec::new();
        for pool in self.store.pools().await? {
            match self.store.snapshot(&pool).await {
                Ok(counts) => all.push(shown(&pool, &counts)?),
                Err(StoreError::NoPool(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }

    /// Gives a pool its settings. True where it was not there before.
    pub(crate) async fn apply(
        &self,
        pool: &PoolName,
        settings: &Map<String, Value>,
    ) -> Result<bool, Problem> {
        let config = PoolConfig::from_json(pool.as_str(), settings).map_err(|errors| {
            let first = errors
                .0
                .first()
                .map(|error| error.key.clone())
                .unwrap_or_default();
            let prefix = format!("pools.{pool}.");
            let text = |key: &str| key.strip_prefix(&prefix).unwrap_or(key).to_owned();
            let all: Vec<String> = errors
                .0
                .iter()
                .map(|error| format!("`{}` {}", text(&error.key), error.message))
                .collect();
            Problem::setting(text(&first), all.join("; "))
        })?;
        let reply = self.store.apply(pool, &config).await?;
        self.catalog.forget().await;
        if let ApplyReply::Applied(version) = reply {
            tracing::info!(%pool, version, "pool applied");
        }
        Ok(reply == ApplyReply::Applied(1))
    }

    /// Switches a pool.
    pub(crate) async fn switch(&self, pool: &PoolName, switch: Switch) -> Result<(), Problem> {
        let (paused, draining) = match switch {
            Switch::Pause => (Some(true), None),
            Switch::Resume => (Some(false), Some(false)),
            Switch::Drain => (None, Some(true)),
        };
        self.store
            .pause(&Pause {
                pool: pool.clone(),
                paused,
                draining,
            })
            .await?;
        self.catalog.forget().await;
        tracing::info!(%pool, ?switch, "pool switched");
        Ok(())
    }

    /// What scaling follows; an error, never a number, where the store cannot say.
    pub(crate) async fn demand(&self, pool: &PoolName) -> Result<DemandBody, Problem> {
        let counts = self.store.snapshot(pool).await?;
        Ok(DemandBody::new(figures(&counts)))
    }

    /// Every worker by id, as it last described itself; of one pool, or of all.
    pub(crate) async fn workers(
        &self,
        pool: Option<&PoolName>,
    ) -> Result<BTreeMap<String, Value>, Problem> {
        let pools = match pool {
            Some(pool) => vec![pool.clone()],
            None => self.store.pools().await?,
        };
        let mut all = BTreeMap::new();
        for pool in &pools {
            let said = match self.store.workers(pool).await {
                Err(StoreError::NoPool(_)) if pools.len() > 1 => continue,
                said => said?,
            };
            // A worker of several pools says the same in each.
            let described = said
                .iter()
                .filter_map(|text| serde_json::from_str::<Value>(text).ok());
            all.extend(
                described
                    .filter_map(|worker| Some((worker.get("id")?.as_str()?.to_owned(), worker))),
            );
        }
        Ok(all)
    }
}

fn figures(counts: &SnapshotReply) -> Counts {
    Counts {
        slots_used: counts.slots_used,
        queued: counts.queued,
        scheduled: counts.scheduled,
        scheduled_due: counts.scheduled_due,
        dead: counts.dead,
        workers: counts.workers,
        oldest_age_ms: counts.oldest_age_ms,
        demand: counts.demand(),
    }
}

fn shown(pool: &PoolName, counts: &SnapshotReply) -> Result<PoolBody, Problem> {
    let config = serde_json::from_str(&counts.def).map_err(|error| {
        tracing::error!(%pool, %error, "the pool's definition cannot be read");
        Problem::new(
            Code::Internal,
            format!("the definition of pool {pool} cannot be read; see `tidegate doctor`"),
        )
    })?;
    let switches = (counts.paused, counts.draining);
    Ok(PoolBody::new(
        pool.to_string(),
        counts.version,
        switches,
        config,
        figures(counts),
    ))
}
