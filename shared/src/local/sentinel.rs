//! A primary with replicas, watched by three Sentinels, as private servers on loopback.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{LocalError, LocalOptions, LocalServer, PROGRAMS, ask};

/// What the Sentinels call the primary.
pub const MASTER_NAME: &str = "tidegate";
/// A Sentinel that does not answer by then has failed.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// As many as make a majority without one.
const SENTINELS: usize = 3;
/// Sentinels that do not agree by then have failed.
const AGREE_TIMEOUT: Duration = Duration::from_secs(20);

/// Running servers and their Sentinels. They end with this value.
#[derive(Debug)]
pub struct LocalSentinel {
    // End first, so that they see no failure.
    sentinels: Vec<Sentinel>,
    servers: Vec<LocalServer>,
}

impl LocalSentinel {
    /// Starts a primary with so many replicas, and waits until the Sentinels know each other and all of them. Ports are
    /// chosen here, whatever `options` say. Blocks.
    ///
    /// # Errors
    /// Where no server is installed, one does not start, or they do not agree.
    pub fn start(replicas: usize, options: &LocalOptions) -> Result<Self, LocalError> {
        let primary = server(options, None)?;
        let port = primary.options.port.unwrap_or_default();
        let mut servers = vec![primary];
        for _ in 0..replicas {
            servers.push(server(options, Some(port))?);
        }
        super::wait("replicas follow", AGREE_TIMEOUT, || {
            servers[1..].iter().all(|replica| {
                let text = replica.ask("INFO replication").unwrap_or_default();
                text.contains("master_link_status:up")
            })
        })?;
        let sentinels = (0..SENTINELS)
            .map(|_| super::with_ports(|[own]: [u16; 1]| Sentinel::start(own, port)))
            .collect::<Result<Vec<_>, _>>()?;
        let all = Self { sentinels, servers };
        super::wait("the Sentinels agree", AGREE_TIMEOUT, || all.agree(replicas))?;
        Ok(all)
    }

    fn agree(&self, replicas: usize) -> bool {
        let field = |text: &str, name: &str| {
            let mut lines = text.lines().skip_while(|line| *line != name).skip(1);
            lines.next().and_then(|value| value.parse::<usize>().ok())
        };
        self.sentinels.iter().all(|sentinel| {
            let text = sentinel.ask(&format!("SENTINEL MASTER {MASTER_NAME}"));
            let text = text.unwrap_or_default();
            field(&text, "num-slaves") == Some(replicas)
                && field(&text, "num-other-sentinels") == Some(SENTINELS - 1)
        })
    }

    /// Addresses of the Sentinels for `store.url`.
    pub fn url(&self) -> String {
        let url = |sentinel: &Sentinel| format!("redis://127.0.0.1:{}", sentinel.port);
        let urls: Vec<String> = self.sentinels.iter().map(url).collect();
        urls.join(",")
    }

    /// The servers: first the first primary.
    pub fn servers(&mut self) -> &mut [LocalServer] {
        &mut self.servers
    }

    /// The place among the servers of the one that most Sentinels name; none while they name none.
    pub fn primary(&self) -> Option<usize> {
        let named = |port: u16| {
            let name = format!("SENTINEL get-master-addr-by-name {MASTER_NAME}");
            let answers = self.sentinels.iter().filter_map(|s| s.ask(&name).ok());
            answers
                .filter(|text| text.lines().nth(1) == Some(port.to_string().as_str()))
                .count()
        };
        self.servers
            .iter()
            .position(|server| named(server.options.port.unwrap_or_default()) > SENTINELS / 2)
    }

    /// Asks for a failover while all is well. It happens within a second or two.
    ///
    /// # Errors
    /// Where the Sentinel refuses.
    pub fn failover(&self) -> Result<(), LocalError> {
        let asked = self.sentinels[0].ask(&format!("SENTINEL FAILOVER {MASTER_NAME}"));
        asked.map(|_| ())
    }
}

fn server(options: &LocalOptions, primary: Option<u16>) -> Result<LocalServer, LocalError> {
    super::with_ports(|[port]: [u16; 1]| {
        let mut options = options.clone();
        options.port = Some(port);
        // A replica that comes later is served at once.
        let delay = ("repl-diskless-sync-delay".to_owned(), "0".to_owned());
        options.settings.push(delay);
        if let Some(primary) = primary {
            let of = format!("127.0.0.1 {primary}");
            options.settings.push(("replicaof".into(), of));
        }
        LocalServer::start(options)
    })
}

/// The server's own program, as a Sentinel.
#[derive(Debug)]
struct Sentinel {
    child: Child,
    port: u16,
    dir: PathBuf,
}

impl Sentinel {
    fn start(port: u16, primary: u16) -> Result<Self, LocalError> {
        let dir = std::env::temp_dir().join(format!("tg-{:016x}", rand::random::<u64>()));
        let failed = |e: std::io::Error| LocalError::Failed(format!("{}: {e}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(failed)?;
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {dir}\nlogfile {dir}/log\n\
             sentinel monitor {MASTER_NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {MASTER_NAME} 1000\n\
             sentinel failover-timeout {MASTER_NAME} 5000\n",
            dir = dir.display()
        );
        std::fs::write(dir.join("conf"), settings).map_err(failed)?;
        let mut spawned = Err(LocalError::NotInstalled);
        for program in PROGRAMS {
            let child = Command::new(program)
                .arg(dir.join("conf"))
                .arg("--sentinel")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            if let Ok(child) = child {
                spawned = Ok(child);
                break;
            }
        }
        let sentinel = Self {
            child: spawned?,
            port,
            dir,
        };
        super::wait("a Sentinel answers", START_TIMEOUT, || {
            sentinel.ask("PING").is_ok()
        })?;
        Ok(sentinel)
    }

    fn ask(&self, command: &str) -> Result<String, LocalError> {
        ask::at_port(self.port, command).map_err(|e| LocalError::Failed(format!("{command}: {e}")))
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
