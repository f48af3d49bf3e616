//! A simulated GPU server with the OpenAI shapes.
//!
//! It answers chat completions, completions and embeddings with seeded text, at speeds that fall with concurrency, with
//! bounded slots, KV room and queue; it records every call; and it misbehaves exactly as a [`Script`] in the prompt says.
//! It runs in-process ([`Server::start`]) or as `tidegate-loadtest gpu`.
//!
//! Routes: `POST /v1/chat/completions`, `/v1/completions`, `/v1/embeddings`; `GET /v1/models`, `/health`, `/metrics`; and for
//! tests of other processes `GET /_sim/calls[?tag=]`, `GET /_sim/stats`, `POST /_sim/release?tag=`, `POST /_sim/reset`.

mod api;
mod engine;
mod gates;
mod http;
mod log;
mod outlet;
mod routes;
mod script;
mod serve;
mod shape;
mod text;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use log::Call;
pub use script::{CutHow, Finish, Script, ScriptError};

/// Connections served at once; beyond, a new one is closed at once, so that a run-away caller cannot take all files.
const CONNECTIONS_MAX: usize = 8_192;
/// Pause after an accept that failed, which is a lack of files or memory and does not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the server is like. [`Config::default`] suits tests: any free port, any model, quick answers.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Seed of every answer.
    pub seed: u64,
    /// Models served; another gets 404. Empty serves every name.
    pub models: Vec<String>,
    /// Calls worked on at once; at least 1.
    pub slots: usize,
    /// Calls that may wait for a slot or KV room; one more is refused with `busy_status`.
    pub queue: usize,
    /// Input tokens read per second by a call that is alone.
    pub prefill_tokens_per_s: f64,
    /// Output tokens written per second by a call that is alone.
    pub decode_tokens_per_s: f64,
    /// KV room in tokens, shared by the running calls: input plus the most output each may write.
    pub kv_tokens: u64,
    /// How speed falls with concurrency: a call runs at `speed / (1 + slowdown * others)`.
    pub slowdown: f64,
    /// Mean length of an unscripted answer, in output tokens.
    pub output_tokens_mean: u32,
    /// Status of the refusal when the queue is full, with `Retry-After: 1`: 503 or 429.
    pub busy_status: u16,
    /// File that gets one JSON line per call, when the call ends.
    pub log: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            seed: 1,
            models: Vec::new(),
            slots: 64,
            queue: 256,
            prefill_tokens_per_s: 10_000_000.0,
            decode_tokens_per_s: 2_000.0,
            kv_tokens: 1 << 32,
            slowdown: 0.02,
            output_tokens_mean: 16,
            busy_status: 503,
            log: None,
        }
    }
}

impl Config {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.slots >= 1, "slots is 0, at least 1 is needed");
        ensure!(self.kv_tokens >= 1, "kv_tokens is 0, at least 1 is needed");
        ensure!(
            self.output_tokens_mean >= 1,
            "output_tokens_mean is 0, at least 1 is needed"
        );
        let positive = [
            ("prefill_tokens_per_s", self.prefill_tokens_per_s),
            ("decode_tokens_per_s", self.decode_tokens_per_s),
        ];
        for (name, value) in positive {
            ensure!(
                value.is_finite() && value > 0.0,
                "{name} is {value}, a number above 0 is needed"
            );
        }
        let slowdown = self.slowdown;
        ensure!(
            slowdown.is_finite() && slowdown >= 0.0,
            "slowdown is {slowdown}, a number of at least 0 is needed"
        );
        ensure!(
            matches!(self.busy_status, 429 | 503),
            "busy_status is {}, 429 or 503 is needed",
            self.busy_status
        );
        Ok(())
    }
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    config: Config,
    engine: Arc<engine::Engine>,
    log: log::CallLog,
    gates: gates::Gates,
    started: Instant,
    started_unix_s: u64,
    input_tokens: AtomicU64,
    output_tokens: AtomicU64,
}

impl Shared {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Wall time for `created`, from the start's wall time and the monotonic clock.
    fn unix_s(&self) -> u64 {
        self.started_unix_s + self.started.elapsed().as_secs()
    }

    fn count_input(&self, input_tokens: u64) {
        self.input_tokens.fetch_add(input_tokens, Ordering::Relaxed);
    }

    fn count_output(&self, output_tokens: u64) {
        self.output_tokens
            .fetch_add(output_tokens, Ordering::Relaxed);
    }

    fn counted(&self) -> (u64, u64) {
        (
            self.input_tokens.load(Ordering::Relaxed),
            self.output_tokens.load(Ordering::Relaxed),
        )
    }

    fn reset(&self) {
        self.log.reset();
        self.gates.reset();
        self.engine.reset();
    }
}

/// A running server. Dropping it stops it too, without waiting for its connections to be gone.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    addr: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// Opens the port and serves.
    ///
    /// # Errors
    /// An impossible value in `config`, an address that cannot be bound, a log file that cannot be opened.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        config.check().context("simulated GPU server")?;
        let log = log::CallLog::open(config.log.as_deref())?;
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let addr = listener
            .local_addr()
            .context("cannot read the address listened on")?;
        #[expect(
            clippy::disallowed_methods,
            reason = "answers show when they were made, as a model server's do"
        )]
        let now = SystemTime::now();
        let shared = Arc::new(Shared {
            engine: engine::Engine::new(&config),
            log,
            gates: gates::Gates::default(),
            started: Instant::now(),
            started_unix_s: now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            input_tokens: AtomicU64::new(0),
            output_tokens: AtomicU64::new(0),
            config,
        });
        let server = Self {
            shared,
            addr,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let accept = accept(
            listener,
            Arc::clone(&server.shared),
            server.stop.clone(),
            server.tasks.clone(),
        );
        server.tasks.spawn(accept);
        Ok(server)
    }

    /// The address listened on, with its true port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://ADDRESS:PORT`, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// All calls since the start or the last reset, by arrival; the last 100,000, fewer where bodies are large.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.log.calls(None)
    }

    /// The calls with this tag, by arrival.
    #[must_use]
    pub fn calls_tagged(&self, tag: &str) -> Vec<Call> {
        self.shared.log.calls(Some(tag))
    }

    /// Waits until some call satisfies `wanted`, and gives it as it then is.
    ///
    /// # Errors
    /// None does within `timeout`; the error shows the calls there are.
    pub async fn wait_for(
        &self,
        timeout: Duration,
        wanted: impl FnMut(&Call) -> bool,
    ) -> anyhow::Result<Call> {
        match tokio::time::timeout(timeout, self.shared.log.wait_for(wanted)).await {
            Ok(call) => Ok(call),
            Err(_) => bail!(
                "no such call within {timeout:?}; calls: {:#?}",
                self.calls()
            ),
        }
    }

    /// The most calls worked on at one time since the start or the last reset; waiting ones are not counted.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.shared.engine.load().peak
    }

    /// Calls being worked on now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.engine.load().running
    }

    /// Forgets calls, peak and released tags. Calls still running go on unrecorded.
    pub fn reset_log(&self) {
        self.shared.reset();
    }

    /// Lets go of the calls held under `tag`, those still to come included, until the reset. Gives how many were held.
    pub fn release(&self, tag: &str) -> usize {
        self.shared.gates.release(tag)
    }

    /// Closes the port and every connection, and waits until they are gone. The record stays readable.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(_) if tasks.len() > CONNECTIONS_MAX => {
                tracing::warn!("connection closed: too many are open")
            }
            Ok((stream, _)) => {
                let (shared, stop) = (Arc::clone(&shared), stop.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = connection(&shared, stream) => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(shared: &Shared, stream: TcpStream) {
    let mut conn = http::Conn::new(stream);
    loop {
        match conn.read_request().await {
            Ok(request) => match routes::serve(shared, &mut conn, request).await {
                serve::After::Keep => {}
                serve::After::Close => return,
                serve::After::Reset => return conn.reset(),
            },
            Err(http::ReadError::Gone) => return,
            Err(http::ReadError::Refused(status, why)) => {
                routes::send_refusal(&mut conn, status, &why).await;
                return conn.close_after_refusal().await;
            }
        }
    }
}
