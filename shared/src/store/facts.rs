//! What the server says of itself, for `doctor` and for the line at start.

use std::collections::BTreeMap;

use super::{Store, StoreError};
use crate::config::Durability;

/// The server's version and the settings that our promises rest on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// `redis_version`; Valkey gives the version that it is compatible with.
    pub version: String,
    /// `redis` or `valkey`.
    pub server: String,
    /// `master` or `slave`.
    pub role: String,
    /// Writes go to an append-only file.
    pub appendonly: bool,
    /// `always`, `everysec` or `no`; none where we may not read the server's settings.
    pub appendfsync: Option<String>,
    /// In bytes; 0: none.
    pub maxmemory: u64,
    /// `noeviction` is the only right one.
    pub maxmemory_policy: String,
    /// In bytes.
    pub used_memory: u64,
}

/// What an accepted job survives on this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A crash and a power loss of a truthful disk.
    Strict,
    /// A crash; a power loss but for the last one or two seconds.
    Relaxed,
    /// Nothing.
    Nothing,
    /// We may not read the settings.
    Unknown,
}

impl ServerFacts {
    /// What the server's settings give.
    pub fn given(&self) -> Given {
        match (self.appendonly, self.appendfsync.as_deref()) {
            (false, _) => Given::Nothing,
            (true, None) => Given::Unknown,
            (true, Some("always")) => Given::Strict,
            (true, Some("everysec")) => Given::Relaxed,
            (true, Some(_)) => Given::Nothing,
        }
    }

    /// Whether the server may drop our keys when memory is short.
    pub fn evicts(&self) -> bool {
        self.maxmemory > 0 && self.maxmemory_policy != "noeviction"
    }

    /// One plain line for the start: what was asked and what the server gives.
    pub fn durability_line(&self, asked: Durability) -> (bool, String) {
        let enough = match asked {
            Durability::Relaxed => matches!(self.given(), Given::Strict | Given::Relaxed),
            Durability::Strict | Durability::Replicated => self.given() == Given::Strict,
        };
        let gives = match self.given() {
            Given::Strict => "an accepted job survives a crash and a power loss",
            Given::Relaxed => {
                "an accepted job survives a crash; a power loss may take the last 2 seconds (set appendfsync always)"
            }
            Given::Nothing => {
                "accepted jobs do NOT survive a crash of the server (set appendonly yes, appendfsync always)"
            }
            Given::Unknown => {
                "the server does not let us read appendfsync; what it gives is not known"
            }
        };
        let asked = format!("{asked:?}").to_lowercase();
        (
            enough,
            format!("durability asked: {asked}; the server gives: {gives}"),
        )
    }
}

impl Store {
    /// Asks the server about itself.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn server(&self) -> Result<ServerFacts, StoreError> {
        let info: String = self.command(redis::cmd("INFO").arg("everything")).await?;
        let fields: BTreeMap<&str, &str> = info
            .lines()
            .filter_map(|l| l.trim().split_once(':'))
            .collect();
        let get = |name: &str| fields.get(name).copied().unwrap_or("").to_owned();
        // CONFIG may be forbidden to us.
        let fsync: Option<Vec<String>> = self
            .command(redis::cmd("CONFIG").arg("GET").arg("appendfsync"))
            .await
            .ok();
        Ok(ServerFacts {
            version: get("redis_version"),
            server: if fields.contains_key("valkey_version") {
                "valkey"
            } else {
                "redis"
            }
            .into(),
            role: get("role"),
            appendonly: get("aof_enabled") == "1",
            appendfsync: fsync.and_then(|pair| pair.into_iter().nth(1)),
            maxmemory: get("maxmemory").parse().unwrap_or(0),
            maxmemory_policy: get("maxmemory_policy"),
            used_memory: get("used_memory").parse().unwrap_or(0),
        })
    }
}
