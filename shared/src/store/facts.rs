//! What the server says of itself, for `doctor` and for the line at start.

use std::collections::BTreeMap;

use super::{Store, StoreError};
use crate::config::Durability;

/// The oldest version that serves.
const OLDEST: (u64, u64) = (7, 0);

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
    /// Replicas that follow it now.
    pub replicas: u64,
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

    /// Whether the server is older than what the scripts need: flags, and the commands they use, came with 7.0.
    pub fn is_too_old(&self) -> bool {
        let mut parts = self
            .version
            .split('.')
            .map(|part| part.parse::<u64>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST
    }

    /// One plain line for the start: what was asked, with so many replicas where that is `replicated`, and what the server
    /// gives. False where it gives less.
    pub fn durability_line(&self, asked: Durability, replicas: u32) -> (bool, String) {
        let enough = match asked {
            Durability::Relaxed => matches!(self.given(), Given::Strict | Given::Relaxed),
            Durability::Strict => self.given() == Given::Strict,
            Durability::Replicated => {
                self.given() == Given::Strict && self.replicas >= u64::from(replicas)
            }
        };
        let gives = match self.given() {
            Given::Strict => "an accepted job survives a crash and a power loss",
            Given::Relaxed => {
                "a crash with a slow disk, or a power loss, may take the last 2 seconds (set appendfsync always)"
            }
            Given::Nothing => {
                "accepted jobs do NOT survive a crash of the server (set appendonly yes, appendfsync always)"
            }
            Given::Unknown => {
                "the server does not let us read appendfsync; what it gives is not known"
            }
        };
        let mut line = match asked {
            Durability::Strict => format!("durability asked: strict; the server gives: {gives}"),
            Durability::Relaxed => format!("durability asked: relaxed; the server gives: {gives}"),
            Durability::Replicated => {
                format!("durability asked: replicated({replicas}); the server gives: {gives}")
            }
        };
        if asked == Durability::Replicated {
            line += &match self.replicas {
                0 => "; no replica follows it: nothing can be confirmed".into(),
                n if n < u64::from(replicas) => {
                    format!("; {n} of {replicas} replicas follow it: nothing can be confirmed")
                }
                n => format!("; and a failover to one that confirmed it, {n} follow now"),
            };
        }
        (enough, line)
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
        // `slave0:ip=…,port=…,state=online,offset=…,lag=…`; one that is still being filled confirms nothing.
        let follows = |(name, value): &(&&str, &&str)| {
            let number = name.strip_prefix("slave").unwrap_or_default();
            number.parse::<u32>().is_ok() && value.contains("state=online")
        };
        let replicas = fields.iter().filter(follows).count() as u64;
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
            replicas,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(appendfsync: &str, replicas: u64) -> ServerFacts {
        ServerFacts {
            version: "7.0.15".into(),
            appendonly: !appendfsync.is_empty(),
            appendfsync: Some(appendfsync.into()),
            replicas,
            ..ServerFacts::default()
        }
    }

    #[test]
    fn what_is_asked_is_held_to_what_the_server_gives() {
        use Durability::{Relaxed, Replicated, Strict};
        for (asked, wanted, appendfsync, replicas, enough, says) in [
            (Strict, 1, "always", 0, true, "a crash and a power loss"),
            (Strict, 1, "everysec", 0, false, "the last 2 seconds"),
            (Relaxed, 1, "always", 0, true, "a crash and a power loss"),
            (Relaxed, 1, "everysec", 0, true, "the last 2 seconds"),
            (Relaxed, 1, "no", 0, false, "do NOT survive"),
            (Strict, 1, "", 0, false, "do NOT survive"),
            (Replicated, 1, "always", 0, false, "no replica follows it"),
            (Replicated, 2, "always", 1, false, "1 of 2 replicas"),
            (Replicated, 1, "always", 2, true, "and a failover"),
            (Replicated, 1, "everysec", 2, false, "the last 2 seconds"),
        ] {
            let (is, line) = facts(appendfsync, replicas).durability_line(asked, wanted);
            assert_eq!(is, enough, "{line}");
            assert!(line.contains(says), "{line}");
            assert_eq!(line.lines().count(), 1);
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        for (version, old) in [
            ("6.2.14", true),
            ("7.0.0", false),
            ("10.1", false),
            ("", true),
        ] {
            let facts = ServerFacts {
                version: version.into(),
                ..ServerFacts::default()
            };
            assert_eq!(facts.is_too_old(), old, "{version}");
        }
    }
}
