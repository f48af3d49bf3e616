//! The sections of the file which belong to a role. Names and defaults are the documented contract; bounds live in
//! [`super::schema`] and are repeated in each field's comment.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::secret::{Secret, StoreUrl};

/// How the store is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreMode {
    /// One server.
    #[default]
    Single,
    /// Redis Cluster.
    Cluster,
    /// Sentinel, which names the current primary.
    Sentinel,
}

/// What an acknowledged write means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// `appendfsync always`: an acknowledged write survives a crash.
    #[default]
    Strict,
    /// `appendfsync everysec`: the last one or two seconds may go.
    Relaxed,
    /// Strict, and held by replicas before it is shown.
    Replicated,
}

/// Who may call the ingress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMode {
    /// Every call carries an API key.
    #[default]
    Keys,
    /// Anyone who can reach the listener; on a loopback address only.
    Open,
}

/// `[store]`: the one place all roles share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreConfig {
    /// `redis://`, `unix://` or `redis+unix://` address of the server (`rediss://` is planned); several, comma-separated,
    /// of a cluster's nodes or of Sentinels. Printed without its passwords.
    pub url: StoreUrl,
    /// Layout of the store.
    pub mode: StoreMode,
    /// What an acknowledged write means.
    pub durability: Durability,
    /// Replicas that must hold a write, for `replicated` alone; 1–10.
    pub replicas: u32,
    /// Connections of one process to the store, 2–1024 (one or two are kept for renewals, one for large replies).
    pub max_connections: u32,
    /// Deadline of one command, in milliseconds, 50–60000. A command of a pool gets the smaller of this and a quarter
    /// of the pool's lease, see [`StoreConfig::effective_command_timeout_ms`].
    pub command_timeout_ms: u64,
    /// What the Sentinels call the primary, for `sentinel` alone; up to 128 bytes.
    pub master_name: String,
    /// PEM file of the authority that signed the server's certificate, for `rediss://` alone.
    pub ca_file: String,
    /// File with the store's password, at most 64 KiB; its trailing line end is not part of the password. Empty: the
    /// password of the address, if any. In mode `sentinel` the login of the addresses is the Sentinels', this is the store's.
    pub password_file: String,
    /// Every step that may write is recorded in the store as well, for tests and investigations; it grows the store's
    /// memory. On in all processes of a store or in none.
    pub audit: bool,
    /// What `password_file` held when the configuration was loaded; empty without one. Never written out.
    #[serde(skip)]
    pub password: Secret,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: StoreUrl::default(),
            mode: StoreMode::Single,
            durability: Durability::Strict,
            replicas: 1,
            max_connections: 16,
            command_timeout_ms: 2000,
            master_name: "mymaster".into(),
            ca_file: String::new(),
            password_file: String::new(),
            audit: false,
            password: Secret::default(),
        }
    }
}

impl StoreConfig {
    /// Deadline of one command for a pool with this lease, in milliseconds: never more than a quarter of the lease, so
    /// that a renewal that times out leaves room for more of them before the lease ends.
    pub fn effective_command_timeout_ms(&self, lease_ms: u64) -> u64 {
        self.command_timeout_ms.min(lease_ms / 4).max(1)
    }
}

/// `[ingress]`: the HTTP front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IngressConfig {
    /// Address and port of the API.
    pub listen: SocketAddr,
    /// Address and port of the operators' routes; none (`""`): they share `listen`, told apart by scope.
    #[serde(with = "address_or_empty")]
    pub admin_listen: Option<SocketAddr>,
    /// Largest decoded request body, in bytes, 1 KiB – 1 GiB.
    pub max_body_bytes: u64,
    /// Deepest nesting of a JSON body, 4–128 (the parser's own recursion limit is the upper bound).
    pub max_depth: u32,
    /// From connection to complete headers, in milliseconds, 100–300000; holds for a silent connection too.
    pub header_timeout_ms: u64,
    /// For a whole request body, in milliseconds, 100–3600000.
    pub body_timeout_ms: u64,
    /// How long open requests may go on after the first signal, in milliseconds, 0–3600000.
    pub drain_ms: u64,
    /// Where files and batch results live: `file:PATH` or `s3://BUCKET/PREFIX`.
    pub storage: String,
    /// Who may call.
    pub auth: AuthMode,
}

impl Default for IngressConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin_listen: None,
            max_body_bytes: 16 * 1024 * 1024,
            max_depth: 64,
            header_timeout_ms: 10_000,
            body_timeout_ms: 60_000,
            drain_ms: 30_000,
            storage: "file:./data".into(),
            auth: AuthMode::Keys,
        }
    }
}

/// `[worker]`: the role that calls the model servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerConfig {
    /// Address and port of health and metrics.
    pub listen: SocketAddr,
    /// A label for people, never an identity; up to 128 bytes.
    pub name: String,
    /// Pools this worker serves, 1–64 names.
    pub pools: Vec<String>,
    /// Deliveries this worker runs at once, 0–10000; 0: whatever the pool's slots allow.
    pub concurrency: u32,
    /// Largest response of a model server, in bytes, 1 KiB – 1 GiB.
    pub max_response_bytes: u64,
    /// How long running deliveries may go on after the first signal, in milliseconds, 0–3600000.
    pub drain_ms: u64,
    /// This worker's own model servers, up to 64 `http(s)://` addresses; empty: the pool's.
    pub backends: Vec<String>,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9464)),
            name: String::new(),
            pools: vec!["default".into()],
            concurrency: 0,
            max_response_bytes: 32 * 1024 * 1024,
            drain_ms: 25_000,
            backends: Vec::new(),
        }
    }
}

/// `[reaper]`: the role that gives back what dead workers held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReaperConfig {
    /// Address and port of health and metrics.
    pub listen: SocketAddr,
    /// Time between two passes, in milliseconds, 50–60000; three passes must fit into the smallest lease.
    pub pass_ms: u64,
}

impl Default for ReaperConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9465)),
            pass_ms: 1000,
        }
    }
}

/// An address that the file writes as `""` when there is none.
mod address_or_empty {
    use super::{Deserialize, Deserializer, Serializer, SocketAddr};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<SocketAddr>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(address) => serializer.collect_str(address),
            None => serializer.serialize_str(""),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SocketAddr>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            Ok(None)
        } else {
            text.parse().map(Some).map_err(serde::de::Error::custom)
        }
    }
}
