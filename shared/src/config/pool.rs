//! `[pools.*]` and their classes. The same shape is stored as JSON and returned by the API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How the output tokens of a job are estimated before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimate {
    /// The declared ceiling.
    #[default]
    WorstCase,
    /// A moving average of what this model and tenant really produce.
    Adaptive,
    /// A quantile of a rolling histogram.
    Quantile,
}

/// What a class does at its tenant's rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenLimited {
    /// Refuse at submit.
    Reject,
    /// Let the job wait.
    #[default]
    Wait,
}

/// `[pools.NAME]`: interchangeable GPU capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolConfig {
    /// Models the pool serves, up to 256; `"*"` serves any.
    pub models: Vec<String>,
    /// Model servers, up to 64 `http(s)://` addresses; a worker's own list goes first.
    pub backends: Vec<String>,
    /// Deliveries that may run at once over the whole fleet, 0–100000; 0 runs nothing.
    pub slots: u32,
    /// Estimated tokens that may be in flight at once, up to 10^12; 0: unlimited.
    pub inflight_tokens: u64,
    /// The pool's own rate, up to 10^12 a minute; 0: unlimited.
    pub tokens_per_minute: u64,
    /// Whether the pool's rate is none at all: nothing is admitted.
    pub blocked: bool,
    /// Depth: every job owed (queued, scheduled, running, backing off), 1–10000000.
    pub max_queued: u64,
    /// Scheduled jobs due within it count as demand, in milliseconds, 0–86400000.
    pub demand_horizon_ms: u64,
    /// Bytes of every job owed, 1 KiB – 1 TiB.
    pub max_queued_bytes: u64,
    /// Time bound of a delivery without renewal, in milliseconds, 500–3600000.
    pub lease_ms: u64,
    /// Time between two renewals, in milliseconds, 50–1200000; three must fit into the lease.
    pub renew_ms: u64,
    /// Deliveries charged to a job before it is dead, 1–100.
    pub max_attempts: u32,
    /// Lost leases before a job is dead as poison, 1–100.
    pub max_lost_leases: u32,
    /// Base of the retry back-off (exponential, full jitter), in milliseconds, 1–3600000.
    pub backoff_ms: u64,
    /// Cap of the retry back-off, in milliseconds, 1–86400000.
    pub backoff_max_ms: u64,
    /// To connect to a model server, in milliseconds, 10–300000.
    pub connect_ms: u64,
    /// From the request to the first byte of its answer, in milliseconds, 10–86400000.
    pub first_byte_ms: u64,
    /// Between two chunks of an answer, in milliseconds, 10–86400000.
    pub between_chunks_ms: u64,
    /// For one whole model call, in milliseconds, 10–604800000 (7 days).
    pub total_ms: u64,
    /// How long bodies and results are kept after the terminal, in milliseconds, 1000–31536000000 (a year).
    pub result_retention_ms: u64,
    /// How long the small record stays after that, in milliseconds, 0–31536000000.
    pub record_retention_ms: u64,
    /// How long an idempotency key is remembered at most, in milliseconds, 0–31536000000.
    pub idempotency_ms: u64,
    /// Dead letters kept, 1–10000000; the oldest make room, counted and logged.
    pub max_dead_letters: u64,
    /// How long a dead letter is kept, in milliseconds, 1000–31536000000.
    pub dead_letter_retention_ms: u64,
    /// How output tokens are estimated.
    pub estimate: Estimate,
    /// Quantile for `quantile`, in the open interval (0, 1).
    pub quantile: f64,
    /// Factor for `adaptive`, 1–100.
    pub safety_factor: f64,
    /// Output tokens assumed where a request declares none, 1–10000000.
    pub default_output_tokens: u64,
    /// How long smaller jobs may pass one that does not fit, in milliseconds, 0–86400000.
    pub max_bypass_ms: u64,
    /// Condition on the backend's load under which claims go on, e.g. `kv_cache < 0.9`; empty: none.
    pub gate: String,
    /// Kinds of traffic, up to 32, by name. None: one class `default`.
    pub classes: BTreeMap<String, ClassConfig>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            models: vec!["*".into()],
            backends: vec!["http://127.0.0.1:8000".into()],
            slots: 32,
            inflight_tokens: 0,
            tokens_per_minute: 0,
            blocked: false,
            max_queued: 10_000,
            demand_horizon_ms: 60_000,
            max_queued_bytes: 1 << 30,
            lease_ms: 30_000,
            renew_ms: 5_000,
            max_attempts: 3,
            max_lost_leases: 3,
            backoff_ms: 500,
            backoff_max_ms: 60_000,
            connect_ms: 5_000,
            first_byte_ms: 120_000,
            between_chunks_ms: 60_000,
            total_ms: 1_800_000,
            result_retention_ms: 86_400_000,
            record_retention_ms: 259_200_000,
            idempotency_ms: 86_400_000,
            max_dead_letters: 10_000,
            dead_letter_retention_ms: 1_209_600_000,
            estimate: Estimate::WorstCase,
            quantile: 0.9,
            safety_factor: 1.5,
            default_output_tokens: 1024,
            max_bypass_ms: 10_000,
            gate: String::new(),
            classes: BTreeMap::new(),
        }
    }
}

/// Name of the class of a pool that defines none.
pub const DEFAULT_CLASS: &str = "default";

impl PoolConfig {
    /// Names of the pool's classes, by rank and then by name; `default` alone where none is defined.
    pub fn class_names(&self) -> Vec<&str> {
        if self.classes.is_empty() {
            return vec![DEFAULT_CLASS];
        }
        let mut names: Vec<(u32, &str)> = self
            .classes
            .iter()
            .map(|(name, class)| (class.rank, name.as_str()))
            .collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Whether a job may ask for this class.
    pub fn has_class(&self, name: &str) -> bool {
        if self.classes.is_empty() {
            name == DEFAULT_CLASS
        } else {
            self.classes.contains_key(name)
        }
    }

    /// Whether the pool serves this model.
    pub fn serves(&self, model: &str) -> bool {
        self.models
            .iter()
            .any(|served| served == "*" || served == model)
    }
}

/// `[pools.NAME.classes.NAME]`: a kind of traffic inside a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassConfig {
    /// Lower goes first, 0–1000.
    pub rank: u32,
    /// Slots kept for the class, 0–100000.
    pub floor: u32,
    /// Most slots of the class, 0–100000; none: the pool's slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<u32>,
    /// In-flight tokens kept for the class, up to 10^12.
    pub floor_tokens: u64,
    /// Most in-flight tokens of the class, up to 10^12; none: the pool's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_tokens: Option<u64>,
    /// Ageing bound: a job that has waited longer gets the next shared slot, in milliseconds, 0–604800000; none: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_ms: Option<u64>,
    /// What the class does at its tenant's rate limit.
    pub when_limited: WhenLimited,
    /// Whether an idle floor may be lent.
    pub lend: bool,
}
