//! Faults of the store's server.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::fault::Fault;
use super::nemesis::{Heal, Nemesis};
use crate::Signal;
use crate::process::send;

/// As the rig starts its server.
const MEMORY: &str = "4gb";
/// A server whose memory is full: less than it has in use when empty.
const NO_MEMORY: &str = "1mb";
/// Longest wait for workers that block, and how often they are looked for.
const LULL: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(30);
/// Keeps the server busy for ARGV[1] milliseconds, and writes nothing.
const SPIN: &str = r"
local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
local done = now() + ARGV[1]
repeat until now() >= done";

impl Nemesis<'_> {
    /// Begins one. Gives how many it met: connections closed, waiting clients, blocked workers.
    pub(super) async fn hurt_store(&mut self, fault: &Fault) -> u64 {
        match fault {
            Fault::StoreKill(ms) => {
                self.count_errors().await;
                self.rig.store.kill();
                self.after(*ms, fault, Heal::StoreUp);
                0
            }
            Fault::StoreFreeze(ms) => {
                send(self.rig.store.pid(), Signal::Stop);
                self.after(*ms, fault, Heal::StoreThaw);
                0
            }
            Fault::ScriptFlush => {
                self.rig.redis(&["SCRIPT", "FLUSH"]).await;
                self.release_store();
                0
            }
            Fault::KillClients => self.close("normal").await,
            Fault::KillSubscribers => {
                let waiting = self.clients.waiting.load(Ordering::Relaxed);
                let closed = self.close("pubsub").await;
                if closed == 0 { 0 } else { waiting as u64 }
            }
            Fault::PauseClients(ms) => {
                let ms = ms.to_string();
                self.rig.redis(&["CLIENT", "PAUSE", &ms, "ALL"]).await;
                self.after(ms.parse().unwrap_or(0), fault, Heal::Passed);
                0
            }
            Fault::MemoryFull(ms) => {
                self.set("maxmemory", NO_MEMORY).await;
                self.after(*ms, fault, Heal::Setting("maxmemory", MEMORY));
                0
            }
            Fault::NoReplicas(ms) => {
                self.set("min-replicas-to-write", "1").await;
                self.after(*ms, fault, Heal::Setting("min-replicas-to-write", "0"));
                0
            }
            Fault::Busy(ms) => {
                self.spin(*ms);
                self.after(*ms, fault, Heal::Passed);
                0
            }
            Fault::ReadOnly(ms) => {
                // Port 9 answers nobody: the data stays as it is, and stale data is served.
                self.rig.redis(&["REPLICAOF", "127.0.0.1", "9"]).await;
                self.after(*ms, fault, Heal::Promote);
                0
            }
            Fault::ClockStep(ms) => {
                let blocked = self.workers_block().await;
                self.shift_ms += ms;
                self.clock.shift(self.shift_ms);
                self.release_store();
                blocked
            }
            _ => 0,
        }
    }

    pub(super) async fn heal_store(&mut self, heal: &Heal) {
        match heal {
            Heal::StoreUp => {
                // It blocks until the server listens, a few milliseconds; the clients go on meanwhile.
                tokio::task::block_in_place(|| self.rig.store.restart())
                    .expect("the store's server starts again on its own data");
            }
            Heal::StoreThaw => send(self.rig.store.pid(), Signal::Cont),
            Heal::Setting(name, value) => self.set(name, value).await,
            Heal::Promote => {
                self.rig.redis(&["REPLICAOF", "NO", "ONE"]).await;
            }
            _ => {}
        }
    }

    /// Waits for a moment in which workers have nothing to do and block, for a second at most. Gives how many there are.
    async fn workers_block(&self) -> u64 {
        let start = Instant::now();
        self.clients.lull.send_replace(true);
        let mut blocked = 0;
        while blocked == 0 && start.elapsed() < LULL {
            tokio::time::sleep(LOOK).await;
            blocked = self.info("clients", "blocked_clients:").await;
        }
        self.clients.lull.send_replace(false);
        blocked
    }

    /// Takes a lease away, as no step does. Gives whether there was one.
    pub(crate) async fn sabotage(&mut self) -> bool {
        let pool = "default".parse().expect("a pool's name");
        let leases = format!("{}:leases", tidegate_shared::protocol::base(&pool));
        let taken = self.rig.try_redis(&["--raw", "ZPOPMAX", &leases]).await;
        taken.is_some_and(|taken| taken.contains('\n'))
    }

    async fn set(&self, name: &str, value: &str) {
        self.rig.redis(&["CONFIG", "SET", name, value]).await;
    }

    /// Closes all connections of a kind; gives how many.
    async fn close(&mut self, kind: &str) -> u64 {
        let closed = self.rig.redis(&["CLIENT", "KILL", "TYPE", kind]).await;
        self.release_store();
        closed.parse().unwrap_or(0)
    }

    /// Runs the script and leaves it alone: it ends by itself, and is killed with this process.
    fn spin(&self, ms: u64) {
        let url = self.rig.store.url();
        let spawned = tokio::process::Command::new("redis-cli")
            .args(["-s", url.trim_start_matches("unix://"), "EVAL", SPIN, "0"])
            .arg(ms.to_string())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        assert!(spawned.is_ok(), "redis-cli does not run: {spawned:?}");
    }

    async fn info(&self, section: &str, field: &str) -> u64 {
        let info = self.rig.redis(&["INFO", section]).await;
        let line = info.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    }

    /// Number of the last entry of the record; none where the store cannot say.
    pub(super) async fn last_entry(&self) -> Option<u64> {
        let key = tidegate_shared::audit::key(&"default".parse().expect("a pool's name"));
        let info = self
            .rig
            .try_redis(&["--raw", "XINFO", "STREAM", &key])
            .await?;
        let mut lines = info.lines();
        lines.find(|line| *line == "last-generated-id")?;
        lines.next()?.strip_prefix("0-")?.parse().ok()
    }

    /// Adds up the errors that the server answered since its start: it forgets them when it ends.
    pub(super) async fn count_errors(&mut self) {
        let Some(info) = self.rig.try_redis(&["INFO", "errorstats"]).await else {
            return;
        };
        for line in info.lines() {
            let counted = line.strip_prefix("errorstat_").and_then(|rest| {
                let (kind, count) = rest.trim().split_once(":count=")?;
                Some((kind.to_owned(), count.parse::<u64>().ok()?))
            });
            if let Some((kind, count)) = counted {
                *self.errors.entry(kind).or_default() += count;
            }
        }
    }
}
