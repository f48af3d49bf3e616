//! Settings judged together. Pure. A setting with a problem of its own is not compared with others.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{ConfigError, Origin};
use super::names::store_url_count;
use super::sections::{AuthMode, StoreConfig, StoreMode};
use super::{Config, PoolConfig, Role, url_parts};

/// Most pools in one file: each role keeps state for each of them.
const MAX_POOLS: usize = 256;
/// Most classes of one pool: they are labels of metrics, and a claim looks at each.
const MAX_CLASSES: usize = 32;
/// Most tenants in one file.
const MAX_TENANTS: usize = 10_000;

/// Judges the parts of a configuration against each other.
pub(crate) struct Judge<'a> {
    pub(crate) origins: &'a BTreeMap<String, Origin>,
    pub(crate) bad: &'a BTreeSet<String>,
    pub(crate) problems: Vec<ConfigError>,
}

impl Judge<'_> {
    /// A problem among `keys` unless one of them is bad by itself. It is told of the first; its place is the first
    /// that was set by somebody.
    fn fail(&mut self, keys: &[&str], message: impl FnOnce() -> String) {
        if keys.iter().any(|key| self.bad.contains(*key)) {
            return;
        }
        let origin = keys
            .iter()
            .find_map(|key| self.origins.get(*key))
            .cloned()
            .unwrap_or_default();
        self.problems.push(ConfigError {
            origin,
            key: keys[0].into(),
            message: message(),
        });
    }

    fn is_set(&self, key: &str) -> bool {
        self.origins.contains_key(key)
    }

    /// The whole file; `role` decides whose drain must fit into `grace_ms`.
    pub(crate) fn config(&mut self, config: &Config, role: Option<Role>, grace_ms: Option<u64>) {
        self.store(config);
        self.ingress(config);
        self.drains(config, role, grace_ms);
        for (what, count, max) in [
            ("pools", config.pools.len(), MAX_POOLS),
            ("tenants", config.tenants.len(), MAX_TENANTS),
        ] {
            if count > max {
                self.fail(&[what], || {
                    format!("{count} {what}; at most {max} are allowed")
                });
            }
        }
        for (name, pool) in &config.pools {
            self.pool(&format!("pools.{name}"), pool);
        }
        self.leases(config);
    }

    fn store(&mut self, config: &Config) {
        let store = &config.store;
        let url = store.url.expose();
        let addresses = store_url_count(url);
        if addresses > 1 && store.mode == StoreMode::Single {
            self.fail(&["store.url", "store.mode"], || {
                format!(
                    "names {addresses} addresses, but store.mode is \"single\"; give one address, or set store.mode to what they are: \"cluster\" or \"sentinel\""
                )
            });
        }
        self.nodes(store);
        // Sentinels have a login of their own, the one of their addresses.
        if !store.password_file.is_empty() && has_password(url) && store.mode != StoreMode::Sentinel
        {
            self.fail(&["store.password_file", "store.url"], || {
                "the password is in store.url too; keep it in one place, store.password_file".into()
            });
        }
    }

    /// What the layout of the store asks of its addresses.
    fn nodes(&mut self, store: &StoreConfig) {
        let mode = match store.mode {
            StoreMode::Single => None,
            StoreMode::Cluster => Some(("cluster", "nodes of the cluster")),
            StoreMode::Sentinel => Some(("sentinel", "Sentinels")),
        };
        if store.mode != StoreMode::Sentinel
            && self.is_set("store.master_name")
            && store.master_name != StoreConfig::default().master_name
        {
            self.fail(&["store.master_name", "store.mode"], || {
                "is for store.mode = \"sentinel\" alone; remove it, or set store.mode".into()
            });
        }
        let Some((mode, nodes)) = mode else { return };
        let parts = url_parts(store.url.expose());
        if parts
            .iter()
            .any(|url| url.starts_with("unix://") || url.starts_with("redis+unix://"))
        {
            self.fail(&["store.url", "store.mode"], || {
                format!("names a socket, but store.mode is \"{mode}\"; name redis:// addresses of {nodes}")
            });
        }
        if store.mode == StoreMode::Cluster && parts.iter().any(|url| has_database(url)) {
            self.fail(&["store.url", "store.mode"], || {
                "names a database, and a cluster has none but 0; remove what follows the port"
                    .into()
            });
        }
        if store.mode == StoreMode::Sentinel && store.master_name.is_empty() {
            self.fail(&["store.master_name", "store.mode"], || {
                "is empty, but store.mode is \"sentinel\"; give the name that `sentinel monitor` has for the primary".into()
            });
        }
    }

    fn ingress(&mut self, config: &Config) {
        let ingress = &config.ingress;
        if ingress.auth == AuthMode::Open {
            let listens = [
                ("ingress.listen", Some(ingress.listen)),
                ("ingress.admin_listen", ingress.admin_listen),
            ];
            for (key, address) in listens {
                let Some(address) = address.filter(|address| !address.ip().is_loopback()) else {
                    continue;
                };
                self.fail(&["ingress.auth", key], || {
                    format!("\"open\" is for a loopback address only, but {key} is {address}; use auth = \"keys\" or listen on 127.0.0.1")
                });
            }
        }
        if ingress.admin_listen == Some(ingress.listen) && ingress.listen.port() != 0 {
            self.fail(&["ingress.admin_listen", "ingress.listen"], || {
                "is the same address as ingress.listen; leave it empty to share the listener".into()
            });
        }
    }

    /// A drain that outlasts the grace is a kill in the middle of it. Without a role, only what was set is judged: the
    /// same file serves roles with different graces.
    fn drains(&mut self, config: &Config, role: Option<Role>, grace_ms: Option<u64>) {
        let Some(grace_ms) = grace_ms else { return };
        let drains = [
            (Role::Ingress, "ingress.drain_ms", config.ingress.drain_ms),
            (Role::Worker, "worker.drain_ms", config.worker.drain_ms),
        ];
        for (of, key, drain_ms) in drains {
            let judged = role.map_or_else(|| self.is_set(key), |role| role == of);
            if judged && drain_ms >= grace_ms {
                self.fail(&[key], || {
                    format!("{drain_ms} must be below TIDEGATE_TERMINATION_GRACE_MS, which is {grace_ms}")
                });
            }
        }
    }

    /// One pool; `at` is its dotted section.
    pub(crate) fn pool(&mut self, at: &str, pool: &PoolConfig) {
        let key = |name: &str| format!("{at}.{name}");
        let (lease, renew) = (key("lease_ms"), key("renew_ms"));
        if pool.renew_ms.saturating_mul(3) > pool.lease_ms {
            self.fail(&[&renew, &lease], || {
                format!(
                    "three renewals of {} must fit into lease_ms, which is {}; set renew_ms to at most {}",
                    pool.renew_ms,
                    pool.lease_ms,
                    pool.lease_ms / 3
                )
            });
        }
        if u64::from(pool.slots) > pool.max_queued {
            self.fail(&[&key("max_queued"), &key("slots")], || {
                format!(
                    "{} is below slots, which is {}: running jobs count too",
                    pool.max_queued, pool.slots
                )
            });
        }
        if pool.backoff_ms > pool.backoff_max_ms {
            self.fail(&[&key("backoff_ms"), &key("backoff_max_ms")], || {
                format!(
                    "{} is above backoff_max_ms, which is {}",
                    pool.backoff_ms, pool.backoff_max_ms
                )
            });
        }
        if pool.classes.len() > MAX_CLASSES {
            self.fail(&[&key("classes")], || {
                format!(
                    "{} classes; at most {MAX_CLASSES} are allowed",
                    pool.classes.len()
                )
            });
        }
        self.classes(at, pool);
    }

    fn classes(&mut self, at: &str, pool: &PoolConfig) {
        let slots = format!("{at}.slots");
        let floors: u64 = pool
            .classes
            .values()
            .map(|class| u64::from(class.floor))
            .sum();
        if floors > u64::from(pool.slots) {
            let keys: Vec<String> = pool
                .classes
                .keys()
                .map(|name| format!("{at}.classes.{name}.floor"))
                .collect();
            let mut all = vec![slots.as_str()];
            all.extend(keys.iter().map(String::as_str));
            self.fail(&all, || {
                format!(
                    "{} is below the sum of the floors of its classes, which is {floors}",
                    pool.slots
                )
            });
        }
        for (name, class) in &pool.classes {
            let ceiling_key = format!("{at}.classes.{name}.ceiling");
            let floor_key = format!("{at}.classes.{name}.floor");
            let Some(ceiling) = class.ceiling else {
                continue;
            };
            if ceiling > pool.slots {
                self.fail(&[&ceiling_key, &slots], || {
                    format!("{ceiling} is above slots, which is {}", pool.slots)
                });
            }
            if ceiling < class.floor {
                self.fail(&[&ceiling_key, &floor_key], || {
                    format!("{ceiling} is below floor, which is {}", class.floor)
                });
            }
        }
    }

    /// What must fit into the smallest lease.
    fn leases(&mut self, config: &Config) {
        let Some((name, pool)) = config.pools.iter().min_by_key(|(_, pool)| pool.lease_ms) else {
            return;
        };
        let lease = format!("pools.{name}.lease_ms");
        let lease_ms = pool.lease_ms;
        let pass_ms = config.reaper.pass_ms;
        if pass_ms.saturating_mul(3) > lease_ms {
            self.fail(&["reaper.pass_ms", &lease], || {
                format!("three passes of {pass_ms} must fit into the smallest lease, {lease} = {lease_ms}; set it to at most {}", lease_ms / 3)
            });
        }
        // Left at its default it follows the lease by itself, as documented; asked for, it must be what is done.
        let timeout_ms = config.store.command_timeout_ms;
        if self.is_set("store.command_timeout_ms") && timeout_ms > lease_ms / 4 {
            self.fail(&["store.command_timeout_ms", &lease], || {
                format!("{timeout_ms} is above a quarter of the smallest lease, {lease} = {lease_ms}; set it to at most {}", lease_ms / 4)
            });
        }
    }
}

/// Whether an address asks for a database other than 0.
fn has_database(url: &str) -> bool {
    let rest = url.strip_prefix("redis://").unwrap_or_default();
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let path = host.split_once('/').map_or("", |(_, path)| path);
    !matches!(path.split('?').next(), None | Some("" | "0"))
}

/// Whether an address carries a password.
pub(crate) fn has_password(urls: &str) -> bool {
    super::scrub_urls(urls) != urls
}
