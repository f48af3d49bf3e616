//! The pools as they are defined now, remembered for less than the second in which a change must be followed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_shared::domain::PoolName;
use tidegate_shared::store::{PoolDef, Store, StoreError};
use tidegate_shared::telemetry::Metrics;
use tokio::sync::Mutex;

use crate::error::{Code, Problem, echo};

/// How long a definition is taken for what it is.
const TTL: Duration = Duration::from_millis(500);

/// A pool and its definition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: PoolName,
    pub(crate) def: PoolDef,
}

/// Every pool, sorted by name.
pub(crate) type Entries = Arc<Vec<Entry>>;

pub(crate) struct Catalog {
    store: Store,
    metrics: Arc<Metrics>,
    /// One refresh at a time, and the others take its outcome.
    known: Mutex<Option<(Instant, Entries)>>,
}

impl Catalog {
    pub(crate) fn new(store: Store, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            metrics,
            known: Mutex::default(),
        }
    }

    /// Every pool.
    pub(crate) async fn all(&self) -> Result<Entries, StoreError> {
        let mut known = self.known.lock().await;
        if let Some((since, entries)) = &*known
            && since.elapsed() < TTL
        {
            return Ok(Arc::clone(entries));
        }
        let mut entries = Vec::new();
        for name in self.store.pools().await? {
            if let Some(def) = self.store.pool(&name).await? {
                self.metrics.allow(name.as_str(), def.config.class_names());
                entries.push(Entry { name, def });
            }
        }
        let entries = Arc::new(entries);
        *known = Some((Instant::now(), Arc::clone(&entries)));
        Ok(entries)
    }

    /// Asks the store the next time: something was changed here.
    pub(crate) async fn forget(&self) {
        *self.known.lock().await = None;
    }
}

/// Where a job goes: the pool it asks for, which must serve its model; else the first by name that serves the model by
/// its name; else the first that serves any.
pub(crate) fn route<'a>(
    entries: &'a [Entry],
    pool: Option<&PoolName>,
    model: &str,
) -> Result<&'a Entry, Problem> {
    if let Some(pool) = pool {
        let entry = entries.iter().find(|entry| entry.name == *pool);
        let entry = entry.ok_or_else(|| {
            Problem::field(Code::NotFound, "pool", format!("names no pool: {pool}"))
        })?;
        if entry.def.config.serves(model) {
            return Ok(entry);
        }
        let detail = format!("{:?} is not served by pool {pool}", echo(model));
        return Err(Problem::field(Code::ModelNotFound, "model", detail));
    }
    let serves = |served: &str| {
        entries
            .iter()
            .find(|entry| entry.def.config.models.iter().any(|m| m == served))
    };
    let found = serves(model).or_else(|| serves("*"));
    found.ok_or_else(|| {
        Problem::field(
            Code::ModelNotFound,
            "model",
            format!("{:?} is served by no pool", echo(model)),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tidegate_shared::config::PoolConfig;

    use super::*;

    fn entries() -> Vec<Entry> {
        let entry = |(name, models): (&str, &[&str])| Entry {
            name: name.parse().unwrap(),
            def: PoolDef {
                version: 1,
                paused: false,
                draining: false,
                config: PoolConfig {
                    models: models.iter().map(|&m| m.to_owned()).collect(),
                    ..PoolConfig::default()
                },
            },
        };
        let all: [(&str, &[&str]); 4] = [
            ("a", &["*"]),
            ("b", &["llama"]),
            ("c", &["llama", "qwen"]),
            ("d", &["*"]),
        ];
        all.into_iter().map(entry).collect()
    }

    #[test]
    fn a_job_goes_where_its_model_is_served() {
        let all = entries();
        let goes = |pool: Option<&str>, model: &str| {
            let pool = pool.map(|name| name.parse().unwrap());
            route(&all, pool.as_ref(), model)
                .map(|entry| entry.name.to_string())
                .map_err(|p| p.code().to_owned())
        };
        assert_eq!(goes(None, "llama"), Ok("b".into()));
        assert_eq!(goes(None, "qwen"), Ok("c".into()));
        assert_eq!(goes(None, "other"), Ok("a".into()));
        assert_eq!(goes(Some("d"), "llama"), Ok("d".into()));
        assert_eq!(goes(Some("b"), "qwen"), Err("model_not_found".into()));
        assert_eq!(goes(Some("x"), "qwen"), Err("not_found".into()));
        let problem = route(&all[1..3], None, "other").unwrap_err();
        assert_eq!(
            (problem.code(), problem.status().as_u16()),
            ("model_not_found", 404)
        );
    }
}
