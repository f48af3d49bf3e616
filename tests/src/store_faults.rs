//! What goes wrong with the store's server itself. All of it works without root and without a network of its own.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use tidegate_shared::local::{LocalOptions, LocalServer};

use crate::commands::{CliReply, run};
use crate::process::{Signal, send};
use crate::proxy::Upstream;
use crate::rig::Rig;
use crate::wait::{SOON, until};

/// What starts a store whose disk can be filled: a write beyond its limit is then an error and not a signal.
pub const FILLABLE: [&str; 2] = ["env", "--ignore-signal=XFSZ"];
/// Nobody listens on this port (tcpmux, RFC 1078).
const NOBODY: &str = "1";
/// Memory of a store that is not to be full, as the rig's has.
const MEMORY: &str = "4gb";
/// How long a script must run before the server calls itself busy.
const BUSY_AFTER_MS: &str = "50";
/// Runs for so many milliseconds and touches nothing.
const SPIN: &str = r"
local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
local stop = now() + ARGV[1]
while now() < stop do end
return 'done'";

/// A loopback port that nobody has now.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
    listener.local_addr().expect("it is bound").port()
}

/// A server's socket, which it has whatever else it listens on.
pub fn socket(server: &LocalServer) -> PathBuf {
    let url = server.url();
    let path = url
        .strip_prefix("unix://")
        .expect("it has no port of its own");
    path.into()
}

/// Runs a command of the store's own client at a server, whatever comes of it.
///
/// # Panics
/// When it cannot be run or does not end.
pub async fn redis_cli(server: &LocalServer, arguments: &[&str]) -> CliReply {
    run(client(&socket(server), arguments)).await
}

fn client(socket: &Path, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("redis-cli");
    command.arg("-s").arg(socket).args(arguments);
    command
}

/// A second server that follows another, and may take its place.
#[derive(Debug)]
pub struct Replica {
    /// The server.
    pub server: LocalServer,
    port: u16,
}

impl Replica {
    /// Starts one that follows the primary at `port`, and waits until it has all of it.
    ///
    /// # Panics
    /// When it does not.
    pub async fn follow(port: u16, settings: &[(&str, &str)]) -> Self {
        let own = free_port();
        let mut all = vec![
            ("port".to_owned(), own.to_string()),
            ("maxmemory".to_owned(), MEMORY.to_owned()),
        ];
        all.extend(
            settings
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into())),
        );
        let options = LocalOptions {
            durable: true,
            settings: all,
            ..LocalOptions::default()
        };
        let server = LocalServer::start(options).expect("a second store");
        let replica = Self { server, port: own };
        replica
            .redis(&["REPLICAOF", "127.0.0.1", &port.to_string()])
            .await;
        until(SOON, "the replica follows", async || {
            let info = replica.redis(&["INFO", "replication"]).await;
            info.contains("master_link_status:up").then_some(())
        })
        .await;
        replica
    }

    /// A command that must succeed.
    ///
    /// # Panics
    /// When it does not.
    pub async fn redis(&self, arguments: &[&str]) -> String {
        let reply = redis_cli(&self.server, arguments).await;
        assert_eq!(reply.code, Some(0), "{arguments:?}: {reply:?}");
        reply.stdout.trim().to_owned()
    }

    /// It follows nobody any more.
    pub async fn promote(&self) {
        self.redis(&["REPLICAOF", "NO", "ONE"]).await;
    }

    /// The port it listens on.
    pub fn port(&self) -> String {
        self.port.to_string()
    }

    /// Where a proxy reaches it.
    pub fn upstream(&self) -> Upstream {
        Upstream::Unix(socket(&self.server))
    }
}

/// A script that holds the server, until it ends by itself.
#[derive(Debug)]
pub struct Spinning(Child);

impl Drop for Spinning {
    fn drop(&mut self) {
        // The client is ours; the script it sent ends by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rig {
    /// Kills the store's server, as a crash of its process would.
    pub fn kill_store(&mut self) {
        self.store.kill();
    }

    /// Starts it again on what it has on disk.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_store(&mut self) {
        let started = tokio::task::block_in_place(|| self.store.restart());
        started.expect("the store starts again");
    }

    /// Freezes the store's server: connections stay, nothing is answered.
    pub fn freeze_store(&self) {
        send(self.store.pid(), Signal::Stop);
    }

    /// Thaws it: what was sent meanwhile is run now.
    pub fn thaw_store(&self) {
        send(self.store.pid(), Signal::Cont);
    }

    /// The server forgets all scripts.
    pub async fn flush_scripts(&self) {
        self.redis(&["SCRIPT", "FLUSH"]).await;
    }

    /// Sets the server's memory limit to what it uses now and `spare` bytes.
    ///
    /// # Panics
    /// When the server does not say what it uses.
    pub async fn fill_memory(&self, spare: u64) {
        let info = self.redis(&["INFO", "memory"]).await;
        let used = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        let used: u64 = used
            .and_then(|n| n.trim().parse().ok())
            .expect("it says so");
        let limit = (used + spare).to_string();
        self.redis(&["CONFIG", "SET", "maxmemory", &limit]).await;
    }

    /// Gives it memory again.
    pub async fn free_memory(&self) {
        self.redis(&["CONFIG", "SET", "maxmemory", MEMORY]).await;
    }

    /// No file of the server may grow beyond `bytes`: its disk is full. Needs a store started with [`FILLABLE`].
    ///
    /// # Panics
    /// When the limit cannot be set.
    pub async fn limit_disk(&self, bytes: Option<u64>) {
        let mut command = std::process::Command::new("prlimit");
        let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        // The soft limit alone: only that may be raised again by everybody.
        command.args(["--pid", &self.store.pid().to_string()]);
        command.arg(format!("--fsize={limit}:"));
        let set = run(command).await;
        assert_eq!(set.code, Some(0), "{set:?}");
    }

    /// The server becomes a replica of the one at `port`; its clients stay connected.
    pub async fn demote_store(&self, port: &str) {
        self.redis(&["REPLICAOF", "127.0.0.1", port]).await;
    }

    /// The server becomes a replica of nobody who answers. It refuses writes; with `stale` it serves reads.
    pub async fn orphan_store(&self, stale: bool) {
        let serve = if stale { "yes" } else { "no" };
        self.redis(&["CONFIG", "SET", "replica-serve-stale-data", serve])
            .await;
        self.demote_store(NOBODY).await;
    }

    /// The replica and the server change places without a loss; the clients of the old primary stay connected to it.
    ///
    /// # Panics
    /// When they do not.
    pub async fn fail_over(&self, replica: &Replica) {
        self.redis(&["FAILOVER", "TO", "127.0.0.1", &replica.port()])
            .await;
        until(SOON, "the replica is the primary", async || {
            let role = replica.redis(&["ROLE"]).await;
            role.starts_with("master").then_some(())
        })
        .await;
    }

    /// The server is a primary again.
    pub async fn promote_store(&self) {
        self.redis(&["REPLICAOF", "NO", "ONE"]).await;
    }

    /// Writes need so many replicas, of which there are none.
    pub async fn require_replicas(&self, count: u32) {
        self.redis(&["CONFIG", "SET", "min-replicas-to-write", &count.to_string()])
            .await;
    }

    /// The server closes all connections of a kind: `normal` or `pubsub`.
    pub async fn kill_clients(&self, kind: &str) {
        self.redis(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
            .await;
    }

    /// The server leaves commands that write waiting for so long.
    pub async fn pause_writes(&self, ms: u64) {
        self.redis(&["CLIENT", "PAUSE", &ms.to_string(), "WRITE"])
            .await;
    }

    /// A script holds the server for so long. It answers others that it is busy.
    ///
    /// # Panics
    /// When the script cannot be sent.
    pub async fn spin_store(&self, ms: u64) -> Spinning {
        self.redis(&["CONFIG", "SET", "busy-reply-threshold", BUSY_AFTER_MS])
            .await;
        let ms = ms.to_string();
        let spawned = client(&socket(&self.store), &["EVAL", SPIN, "0", &ms])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let spinning = Spinning(spawned.expect("redis-cli runs"));
        until(Duration::from_secs(5), "the server is busy", async || {
            let reply = redis_cli(&self.store, &["PING"]).await;
            reply.stdout.contains("BUSY").then_some(())
        })
        .await;
        spinning
    }

    /// Runs no scripts for anybody, or does again.
    pub async fn deny_scripts(&self, deny: bool) {
        let rights: &[&str] = match deny {
            true => &["-eval", "-evalsha", "-eval_ro", "-evalsha_ro"],
            false => &["+@all"],
        };
        let command = ["ACL", "SETUSER", "default"];
        self.redis(&[&command[..], rights].concat()).await;
    }
}
