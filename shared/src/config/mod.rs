//! Settings: one TOML file for every role. Defaults < file < `TIDEGATE_SECTION__KEY` < flags.
//!
//! Every problem is reported at once, each with its place; an unknown key, section or variable is a problem. A value
//! can also be read from a file: `TIDEGATE_SECTION__KEY_FILE`.

mod check;
pub mod env;
mod error;
mod file;
mod layers;
mod load;
pub mod names;
mod pool;
mod schema;
mod secret;
mod sections;
mod show;
mod tenant;
#[cfg(test)]
mod tests;
mod unsupported;
mod value;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use error::{ConfigError, ConfigErrors, Origin};
pub use load::{Loaded, PoolsFile, Role};
pub use pool::{ClassConfig, DEFAULT_CLASS, Estimate, PoolConfig, WhenLimited};
pub(crate) use secret::url_parts;
pub use secret::{REDACTED, Secret, StoreUrl, scrub_urls};
pub use sections::{
    AuthMode, Durability, IngressConfig, ReaperConfig, StoreConfig, StoreMode, WorkerConfig,
};
pub use tenant::TenantConfig;

/// The whole configuration; each role reads its part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The store all roles share.
    pub store: StoreConfig,
    /// The HTTP front.
    pub ingress: IngressConfig,
    /// The role that calls the model servers.
    pub worker: WorkerConfig,
    /// The role that gives back what dead workers held.
    pub reaper: ReaperConfig,
    /// Pools by name; they live in the store, the file's are applied to it. Up to 256.
    pub pools: BTreeMap<String, PoolConfig>,
    /// Tenants by name. Up to 10000.
    pub tenants: BTreeMap<String, TenantConfig>,
}
