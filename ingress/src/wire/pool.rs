//! A pool as operators see it, and what scaling reads.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_shared::config::PoolConfig;

/// Counts of a pool at one moment, all read from the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) slots_used: u64,
    pub(crate) queued: u64,
    pub(crate) scheduled: u64,
    pub(crate) scheduled_due: u64,
    pub(crate) dead: u64,
    pub(crate) workers: u64,
    pub(crate) oldest_age_ms: u64,
    pub(crate) demand: u64,
}

/// Whether claims go on, and why not.
#[derive(Serialize)]
struct GateBody {
    name: &'static str,
    open: bool,
    reason: Option<&'static str>,
    value: Option<f64>,
    threshold: Option<f64>,
}

/// Settings and counts.
#[derive(Serialize)]
pub(crate) struct PoolBody {
    id: String,
    object: &'static str,
    version: u64,
    #[serde(flatten)]
    config: PoolConfig,
    paused: bool,
    draining: bool,
    slots_used: u64,
    /// Of a pool with one class; slots are not told apart by class in this release.
    slots_by_class: BTreeMap<String, u64>,
    held_tokens: u64,
    queued: u64,
    scheduled: u64,
    running: u64,
    dead: u64,
    workers: u64,
    oldest_age_ms: u64,
    gates: Vec<GateBody>,
}

/// Members of an answer that are no settings: dropped where they come back with them.
pub(crate) const READ_ONLY: [&str; 15] = [
    "id",
    "object",
    "version",
    "paused",
    "draining",
    "slots_used",
    "slots_by_class",
    "held_tokens",
    "queued",
    "scheduled",
    "running",
    "dead",
    "workers",
    "oldest_age_ms",
    "gates",
];

impl PoolBody {
    /// The answer.
    pub(crate) fn new(
        id: String,
        version: u64,
        switches: (bool, bool),
        config: PoolConfig,
        counts: Counts,
    ) -> Self {
        let (paused, draining) = switches;
        let slots_by_class = match config.class_names().as_slice() {
            [only] => BTreeMap::from([((*only).to_owned(), counts.slots_used)]),
            _ => BTreeMap::new(),
        };
        let gates = vec![GateBody {
            name: "operator",
            open: !paused,
            reason: paused.then_some("paused"),
            value: None,
            threshold: None,
        }];
        Self {
            id,
            object: "pool",
            version,
            config,
            paused,
            draining,
            slots_used: counts.slots_used,
            slots_by_class,
            held_tokens: 0,
            queued: counts.queued,
            scheduled: counts.scheduled,
            running: counts.slots_used,
            dead: counts.dead,
            workers: counts.workers,
            oldest_age_ms: counts.oldest_age_ms,
            gates,
        }
    }

    /// Its name.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

/// What scaling follows.
#[derive(Serialize)]
pub(crate) struct DemandBody {
    demand: u64,
    queued: u64,
    scheduled_due: u64,
    running: u64,
    oldest_age_seconds: f64,
    /// Not known: tokens are not estimated in this release, and a made-up 0 would be a lie.
    tokens_queued: Option<u64>,
}

impl DemandBody {
    /// The answer.
    pub(crate) fn new(counts: Counts) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "ages are far below 2^53 ms")]
        let oldest_age_seconds = counts.oldest_age_ms as f64 / 1000.0;
        Self {
            demand: counts.demand,
            queued: counts.queued,
            scheduled_due: counts.scheduled_due,
            running: counts.slots_used,
            oldest_age_seconds,
            tokens_queued: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_pool_shows_comes_back_as_its_settings() {
        let config = PoolConfig {
            slots: 7,
            ..PoolConfig::default()
        };
        let body = PoolBody::new(
            "a".into(),
            3,
            (true, false),
            config.clone(),
            Counts::default(),
        );
        let serde_json::Value::Object(mut shown) = serde_json::to_value(body).unwrap() else {
            panic!("an object")
        };
        assert_eq!(shown["gates"][0]["reason"], "paused");
        for name in READ_ONLY {
            assert!(shown.remove(name).is_some(), "{name}");
        }
        assert_eq!(PoolConfig::from_json("a", &shown).unwrap(), config);
    }
}
