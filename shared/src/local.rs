//! A private `redis-server` (or `valkey-server`) as a child process: the store of `tidegate dev` and of the tests.

mod ask;
mod cluster;
mod sentinel;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use cluster::LocalCluster;
pub use sentinel::{LocalSentinel, MASTER_NAME};

/// Names looked for on PATH, the first found is used.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
/// A server that does not listen by then has failed.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How to start the server.
#[derive(Clone, Debug, Default)]
pub struct LocalOptions {
    /// Where it keeps its data; none: a directory of its own that goes with it.
    pub data_dir: Option<PathBuf>,
    /// Append-only file with `appendfsync always`; otherwise nothing is written to disk.
    pub durable: bool,
    /// Loopback port; none: a socket in its directory alone.
    pub port: Option<u16>,
    /// Further settings, each a name and its value.
    pub settings: Vec<(String, String)>,
    /// Further environment of the server's process.
    pub env: Vec<(String, String)>,
    /// A program, with its arguments, that starts the server in its own place: `env --ignore-signal=XFSZ`.
    pub wrap: Vec<String>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// Neither program is on PATH.
    #[error(
        "no redis-server or valkey-server on PATH: install one (Debian, Ubuntu: apt-get install -y redis-server; macOS: brew install redis)"
    )]
    NotInstalled,
    /// It could not be started.
    #[error("the server did not start: {0}")]
    Failed(String),
    /// Another server has the directory open; two would destroy each other's file.
    #[error(
        "a server already runs on the data in {0}: stop it first (its process id is in {0}/pid)"
    )]
    InUse(String),
}

/// A running server. It ends with this value.
pub struct LocalServer {
    child: Child,
    socket: PathBuf,
    dir: PathBuf,
    own_dir: bool,
    options: LocalOptions,
}

impl fmt::Debug for LocalServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalServer({})", self.socket.display())
    }
}

impl LocalServer {
    /// Starts a server and waits until it listens. Blocks.
    ///
    /// # Errors
    /// Where no server is installed or it does not start; its log says why.
    pub fn start(options: LocalOptions) -> Result<Self, LocalError> {
        let own_dir = options.data_dir.is_none();
        // A socket's path may have 107 bytes: the system's own directory is short.
        let dir = options.data_dir.clone().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("tg-{:016x}", rand::random::<u64>()))
        });
        let failed = |e: std::io::Error| LocalError::Failed(format!("{}: {e}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(failed)?;
        let dir = dir.canonicalize().map_err(failed)?;
        let socket = if own_dir {
            dir.join("s")
        } else {
            std::env::temp_dir().join(format!("tg-{:016x}.sock", rand::random::<u64>()))
        };
        let child = spawn(&dir, &socket, &options)?;
        let mut server = Self {
            child,
            socket,
            dir,
            own_dir,
            options,
        };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self) -> Result<(), LocalError> {
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&self.socket).is_err() {
            let ended = matches!(self.child.try_wait(), Ok(Some(_)));
            if ended || start.elapsed() > START_TIMEOUT {
                let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(3).collect();
                return Err(LocalError::Failed(tail.join(" | ")));
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "starting a process blocks anyway; callers on a runtime use spawn_blocking"
            )]
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Address for `store.url`.
    pub fn url(&self) -> String {
        match self.options.port {
            Some(port) => format!("redis://127.0.0.1:{port}"),
            None => format!("unix://{}", self.socket.display()),
        }
    }

    /// Runs one command, its words parted by blanks, and gives the answer as text. Blocks.
    ///
    /// # Errors
    /// Where the server does not answer, or refuses.
    pub fn ask(&self, command: &str) -> Result<String, LocalError> {
        ask::at_socket(&self.socket, command)
            .map_err(|e| LocalError::Failed(format!("{command}: {e}")))
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it keeps its data and its log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Kills the server at once, as a crash would.
    pub fn kill(&mut self) {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the server again on the same data, after [`LocalServer::kill`]. Blocks.
    ///
    /// # Errors
    /// As [`LocalServer::start`].
    pub fn restart(&mut self) -> Result<(), LocalError> {
        self.kill();
        let _ = std::fs::remove_file(&self.socket);
        self.child = spawn(&self.dir, &self.socket, &self.options)?;
        self.wait_until_it_listens()
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.socket);
        if self.own_dir {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// Tries of a server whose port was taken before it could listen.
const PORT_TRIES: u32 = 5;

/// Starts a server on free ports.
fn with_ports<T, const N: usize>(
    start: impl Fn([u16; N]) -> Result<T, LocalError>,
) -> Result<T, LocalError> {
    let mut tries = 0;
    loop {
        let ports = ask::free_ports().map_err(|e| LocalError::Failed(e.to_string()))?;
        tries += 1;
        match start(ports) {
            Err(LocalError::Failed(_)) if tries < PORT_TRIES => {}
            done => return done,
        }
    }
}

/// Looks until something is there. Blocks.
fn wait(what: &str, limit: Duration, there: impl Fn() -> bool) -> Result<(), LocalError> {
    let start = Instant::now();
    while !there() {
        if start.elapsed() > limit {
            return Err(LocalError::Failed(format!("not within {limit:?}: {what}")));
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "starting processes blocks anyway; callers on a runtime use spawn_blocking"
        )]
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Locks the directory (flock(2), which children share with whoever opened the file).
fn lock(dir: &Path) -> Result<std::fs::File, LocalError> {
    let failed = |e: std::io::Error| LocalError::Failed(format!("{}: {e}", dir.display()));
    let file = std::fs::File::create(dir.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(LocalError::InUse(dir.display().to_string())),
        Err(std::fs::TryLockError::Error(e)) => Err(failed(e)),
    }
}

fn spawn(dir: &Path, socket: &Path, options: &LocalOptions) -> Result<Child, LocalError> {
    let lock = lock(dir)?;
    for program in PROGRAMS {
        let mut command = match options.wrap.split_first() {
            None => Command::new(program),
            Some((wrap, arguments)) => {
                let mut command = Command::new(wrap);
                command.args(arguments).arg(program);
                command
            }
        };
        command
            .args(["--dir", &dir.to_string_lossy()])
            .args(["--logfile", &dir.join("log").to_string_lossy()])
            .args(["--pidfile", &dir.join("pid").to_string_lossy()])
            .args(["--unixsocket", &socket.to_string_lossy()])
            .args([
                "--unixsocketperm",
                "700",
                "--save",
                "",
                "--maxmemory-policy",
                "noeviction",
            ])
            .args(["--bind", "127.0.0.1", "--port"])
            .arg(options.port.unwrap_or(0).to_string());
        if options.durable {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        } else {
            command.args(["--appendonly", "no"]);
        }
        for (name, value) in &options.settings {
            command.arg(format!("--{name}")).arg(value);
        }
        command.envs(options.env.iter().map(|(name, value)| (name, value)));
        // The server holds the lock as its standard input, for exactly as long as it lives: also where we are killed.
        let held = lock
            .try_clone()
            .map_err(|e| LocalError::Failed(e.to_string()))?;
        command
            .stdin(Stdio::from(held))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Ctrl-C at a terminal goes to the whole group: the server must outlive those who still settle.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        match command.spawn() {
            Ok(child) => return Ok(child),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(LocalError::Failed(format!("{program}: {e}"))),
        }
    }
    Err(LocalError::NotInstalled)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_serves_one_server_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let options = LocalOptions {
            data_dir: Some(dir.path().to_owned()),
            durable: true,
            ..LocalOptions::default()
        };
        let mut first = LocalServer::start(options.clone()).unwrap();
        let second = LocalServer::start(options.clone());
        assert!(matches!(second, Err(LocalError::InUse(_))), "{second:?}");
        // It listens before it writes the file.
        let pid = (0..1_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            let text = std::fs::read_to_string(dir.path().join("pid")).ok()?;
            text.trim().parse().ok()
        });
        assert_eq!(pid, Some(first.pid()));
        first.restart().unwrap();
        drop(first);
        LocalServer::start(options).unwrap();
    }
}
