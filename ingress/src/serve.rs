//! Listening: connections with bounds of number and time, and a drain that resets nobody.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt as _;
use tidegate_shared::config::Config;
use tidegate_shared::shutdown::{Shutdown, Tasks};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Hangup};
use crate::routes::{Face, router};
use crate::service::App;

/// Connections of one listener at once; further ones wait in the kernel's queue. A waiting one costs some 20 KB.
const MAX_CONNECTIONS: usize = 10_000;
/// How long a draining process still takes connections: until whoever chose it has seen that it is not ready. Half of
/// `drain_ms` where that is less.
const LINGER: Duration = Duration::from_secs(1);
/// How long tasks may take to end after they were cut off.
const CUT: Duration = Duration::from_secs(2);
/// Pause after a failure to accept that is not one connection's own, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The HTTP front, listening and not yet serving.
#[derive(Debug)]
pub struct Ingress {
    listener: TcpListener,
    admin: Option<TcpListener>,
    addr: SocketAddr,
    config: Config,
    store: StoreHandle,
    metrics: Arc<Metrics>,
}

/// A store, for a type that is printed.
struct StoreHandle(Store);

impl std::fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Ingress {
    /// Listens on `ingress.listen`, and on `ingress.admin_listen` if there is one; connections wait until
    /// [`Ingress::run`]. Pools of the settings are the caller's to apply.
    ///
    /// # Errors
    /// Where an address cannot be listened on.
    pub async fn bind(config: &Config, store: Store, metrics: Arc<Metrics>) -> io::Result<Self> {
        let listener = TcpListener::bind(config.ingress.listen).await?;
        let admin = match config.ingress.admin_listen {
            Some(address) => Some(TcpListener::bind(address).await?),
            None => None,
        };
        let addr = listener.local_addr()?;
        Ok(Self {
            listener,
            admin,
            addr,
            config: config.clone(),
            store: StoreHandle(store),
            metrics,
        })
    }

    /// Where it listens, with the port that was given.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where operators' routes are, if they have a listener of their own.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin
            .as_ref()
            .and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until the drain is over: from its start readiness is red and every answer closes its connection, streams
    /// and waits end with a word, requests that were taken are answered within `ingress.drain_ms`. An abort cuts all off.
    pub async fn run(self, shutdown: Shutdown) {
        let tasks = Tasks::new();
        let app = App::new(
            &self.config,
            self.store.0,
            self.metrics,
            shutdown.clone(),
            tasks.clone(),
        );
        let app = Arc::new(app);
        let face = if self.admin.is_some() {
            Face::Clients
        } else {
            Face::All
        };
        let stop = CancellationToken::new();
        let cut = CancellationToken::new();
        let header_timeout = Duration::from_millis(self.config.ingress.header_timeout_ms);
        let door = |router| Door {
            router,
            header_timeout,
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            stop: stop.clone(),
            cut: cut.clone(),
            tasks: tasks.clone(),
        };
        tasks.spawn(door(router(&app, face)).open(self.listener));
        if let Some(admin) = self.admin {
            tasks.spawn(door(router(&app, Face::Operators)).open(admin));
        }
        tracing::info!(address = %self.addr, "ingress listens");

        shutdown.draining().await;
        let drain = Duration::from_millis(self.config.ingress.drain_ms);
        let linger = LINGER.min(drain / 2);
        tokio::select! {
            () = tokio::time::sleep(linger) => {}
            () = shutdown.aborted() => {}
        }
        stop.cancel();
        let answered = tokio::select! {
            answered = tasks.close_and_wait(drain.saturating_sub(linger)) => answered.is_ok(),
            () = shutdown.aborted() => false,
        };
        if !answered {
            cut.cancel();
            if let Err(left) = tasks.close_and_wait(CUT).await {
                tracing::warn!(%left, "ingress stops with work left");
            }
        }
        tracing::info!(answered, "ingress stopped");
    }
}

/// An ingress's routes without a listener, for a caller in the same process. Nothing drains them.
pub fn routes(config: &Config, store: Store, metrics: Arc<Metrics>) -> Router {
    let app = App::new(config, store, metrics, Shutdown::manual(), Tasks::new());
    router(&Arc::new(app), Face::All)
}

/// What a listener does with a connection.
struct Door {
    router: Router,
    header_timeout: Duration,
    room: Arc<Semaphore>,
    /// No further connections.
    stop: CancellationToken,
    /// No further bytes.
    cut: CancellationToken,
    tasks: Tasks,
}

impl Door {
    /// Takes connections until the stop, and then those that the kernel had taken before.
    async fn open(self, listener: TcpListener) {
        loop {
            let permit = tokio::select! {
                permit = Arc::clone(&self.room).acquire_owned() => permit,
                () = self.stop.cancelled() => break,
            };
            let Ok(permit) = permit else { break };
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.serve(stream, permit),
                    Err(error) if is_its_own(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "no connection could be taken");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = self.stop.cancelled() => break,
            }
        }
        while let Some(Ok((stream, _))) = listener.accept().now_or_never() {
            let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
                break;
            };
            self.serve(stream, permit);
        }
    }

    fn serve(&self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        let connection = Connection {
            router: self.router.clone(),
            header_timeout: self.header_timeout,
            stop: self.stop.clone(),
            hangup: Hangup::under(&self.cut),
        };
        self.tasks.spawn(async move {
            connection.serve(stream).await;
            drop(permit);
        });
    }
}

/// A failure of the one connection that was to be taken.
fn is_its_own(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
