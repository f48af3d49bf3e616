//! `[tenants.*]`: who pays and who may see.

use serde::{Deserialize, Serialize};

/// `[tenants.NAME]`. An absent limit is unlimited; an explicit 0 admits nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantConfig {
    /// Share among tenants of one class, 1–10000.
    pub weight: u32,
    /// Requests a minute, up to 10^9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Tokens a minute, up to 10^12.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// Capacity of the rate buckets, as time of refill, in milliseconds, 1–86400000.
    pub burst_ms: u64,
    /// Deliveries of the tenant that may run at once, up to 100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// Jobs of the tenant that may be owed, up to 10000000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_queued: Option<u64>,
    /// Money of one window, in US dollars, up to 10^9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// Length of the budget's window, in milliseconds, 1000–31536000000.
    pub budget_window_ms: u64,
    /// Pools the tenant may use, 1–64 names; `"*"`: all.
    pub pools: Vec<String>,
}

impl Default for TenantConfig {
    fn default() -> Self {
        Self {
            weight: 1,
            requests_per_minute: None,
            tokens_per_minute: None,
            burst_ms: 60_000,
            max_running: None,
            max_queued: None,
            budget_usd: None,
            budget_window_ms: 86_400_000,
            pools: vec!["*".into()],
        }
    }
}
