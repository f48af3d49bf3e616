//! A TCP proxy with faults, in front of the store or of a model server.
//!
//! It does not parse what passes: faults that aim at one message find it by bytes it contains. A message of the sizes that
//! are aimed at here arrives in one read.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Read at once.
const CHUNK: usize = 256 * 1024;
/// Chunks on their way in one direction of one connection; more wait in the sockets.
const ON_THE_WAY: usize = 1_024;

/// Where the proxy leads.
#[derive(Clone, Debug)]
pub enum Upstream {
    /// A socket in the file system.
    Unix(PathBuf),
    /// An address.
    Tcp(SocketAddr),
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the caller to the server.
    Request,
    /// From the server to the caller.
    Reply,
}

#[derive(Clone, Debug)]
enum Deed {
    /// The message is lost and the connection reset.
    Lose,
    /// The message waits, and everything behind it on that connection.
    Hold {
        caught: watch::Sender<usize>,
        open: watch::Receiver<bool>,
    },
}

#[derive(Debug)]
struct Rule {
    direction: Direction,
    pattern: Vec<u8>,
    left: usize,
    deed: Deed,
}

#[derive(Debug, Default)]
struct Faults {
    reply_delay: Duration,
    refuse: bool,
    rules: Vec<Rule>,
    lost: usize,
}

#[derive(Debug)]
struct Shared {
    upstream: Upstream,
    faults: Mutex<Faults>,
    /// Replaced at each reset: the connections of the old one are cut.
    cut: Mutex<CancellationToken>,
    tasks: TaskTracker,
}

/// A message that is held, or will be.
#[derive(Debug)]
pub struct Held {
    caught: watch::Receiver<usize>,
    open: watch::Sender<bool>,
}

impl Held {
    /// Waits until the message is held.
    ///
    /// # Panics
    /// When none comes within `limit`.
    pub async fn caught(&mut self, limit: Duration) {
        let caught = tokio::time::timeout(limit, self.caught.wait_for(|n| *n > 0)).await;
        assert!(
            matches!(caught, Ok(Ok(_))),
            "no message to hold within {limit:?}"
        );
    }

    /// Lets it go.
    pub fn release(self) {
        // Nobody listens where the connection is gone: then there is nothing to let go.
        let _ = self.open.send(true);
    }
}

/// A running proxy. It ends with this value.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Proxy {
    /// Opens a port that leads to `upstream`.
    ///
    /// # Panics
    /// When no port can be opened.
    pub async fn start(upstream: Upstream) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a loopback port is free");
        let addr = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            upstream,
            faults: Mutex::default(),
            cut: Mutex::default(),
            tasks: TaskTracker::new(),
        });
        let stop = CancellationToken::new();
        shared
            .tasks
            .spawn(accept(listener, Arc::clone(&shared), stop.clone()));
        Self { addr, shared, stop }
    }

    /// The address to call.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.shared.faults)
    }

    /// Every reply comes so much later, in its order.
    pub fn delay_replies(&self, by: Duration) {
        self.faults().reply_delay = by;
    }

    /// New connections are reset at once, or served again. Cut the old ones with [`Proxy::reset_all`].
    pub fn refuse(&self, refuse: bool) {
        self.faults().refuse = refuse;
    }

    /// Resets every connection.
    pub fn reset_all(&self) {
        let old = std::mem::take(&mut *lock(&self.shared.cut));
        old.cancel();
    }

    /// Loses the next messages that contain `pattern`, resetting the connection of each: the server has acted, its caller
    /// never hears of it (or, for a request, the server never hears of it).
    pub fn lose_next(&self, count: usize, direction: Direction, pattern: &[u8]) {
        self.faults().rules.push(Rule {
            direction,
            pattern: pattern.to_vec(),
            left: count,
            deed: Deed::Lose,
        });
    }

    /// How many messages were lost so far.
    pub fn lost(&self) -> usize {
        self.faults().lost
    }

    /// Holds the next message that contains `pattern`.
    pub fn hold_next(&self, direction: Direction, pattern: &[u8]) -> Held {
        let (caught, caught_rx) = watch::channel(0);
        let (open_tx, open) = watch::channel(false);
        self.faults().rules.push(Rule {
            direction,
            pattern: pattern.to_vec(),
            left: 1,
            deed: Deed::Hold { caught, open },
        });
        Held {
            caught: caught_rx,
            open: open_tx,
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
        self.reset_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((caller, _)) = accepted else { continue };
        let connection = connection(Arc::clone(&shared), caller, stop.clone());
        shared.tasks.spawn(connection);
    }
}

async fn connection(shared: Arc<Shared>, mut caller: TcpStream, stop: CancellationToken) {
    let cut = lock(&shared.cut).clone();
    let refuse = lock(&shared.faults).refuse;
    let mut end = End::Reset;
    if !refuse {
        end = tokio::select! {
            () = stop.cancelled() => End::Reset,
            () = cut.cancelled() => End::Reset,
            end = pass(&shared, &mut caller) => end,
        };
    }
    if matches!(end, End::Reset) {
        // Where the socket is gone already there is nothing to reset.
        let _ = caller.set_zero_linger();
    }
}

/// How a connection ends.
#[derive(Clone, Copy)]
enum End {
    /// One side closed.
    Closed,
    /// By a fault.
    Reset,
}

async fn pass(shared: &Shared, caller: &mut TcpStream) -> End {
    let _ = caller.set_nodelay(true);
    let (from_caller, to_caller) = caller.split();
    match &shared.upstream {
        Upstream::Unix(path) => match UnixStream::connect(path).await {
            Ok(mut server) => {
                let (from_server, to_server) = server.split();
                both(shared, from_caller, to_caller, from_server, to_server).await
            }
            Err(_) => End::Reset,
        },
        Upstream::Tcp(addr) => match TcpStream::connect(addr).await {
            Ok(mut server) => {
                let _ = server.set_nodelay(true);
                let (from_server, to_server) = server.split();
                both(shared, from_caller, to_caller, from_server, to_server).await
            }
            Err(_) => End::Reset,
        },
    }
}

async fn both(
    shared: &Shared,
    from_caller: impl AsyncRead + Unpin,
    to_caller: impl AsyncWrite + Unpin,
    from_server: impl AsyncRead + Unpin,
    to_server: impl AsyncWrite + Unpin,
) -> End {
    tokio::select! {
        end = pump(shared, Direction::Request, from_caller, to_server) => end,
        end = pump(shared, Direction::Reply, from_server, to_caller) => end,
    }
}

/// Passes one direction on until either side ends.
async fn pump(
    shared: &Shared,
    direction: Direction,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> End {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Bytes)>(ON_THE_WAY);
    let read = async move {
        let mut buffer = BytesMut::with_capacity(CHUNK);
        loop {
            buffer.reserve(CHUNK);
            if !matches!(from.read_buf(&mut buffer).await, Ok(n) if n > 0) {
                return End::Closed;
            }
            let chunk = buffer.split().freeze();
            let delay = match judge(shared, direction, &chunk) {
                Verdict::Pass(delay) => delay,
                Verdict::Lose => return End::Reset,
                Verdict::Hold(mut open) => {
                    // An end of the other side is a release, too.
                    let _ = open.wait_for(|open| *open).await;
                    Duration::ZERO
                }
            };
            if sender.send((Instant::now() + delay, chunk)).await.is_err() {
                return End::Closed;
            }
        }
    };
    let write = async move {
        while let Some((due, chunk)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&chunk).await.is_err() {
                break;
            }
        }
        End::Closed
    };
    // A reader that ended has dropped its sender: the writer sends what is on the way, then ends.
    let (read, write) = (std::pin::pin!(read), std::pin::pin!(write));
    match futures_util::future::select(read, write).await {
        futures_util::future::Either::Left((End::Reset, _)) => End::Reset,
        futures_util::future::Either::Left((End::Closed, write)) => write.await,
        futures_util::future::Either::Right((end, _)) => end,
    }
}

enum Verdict {
    Pass(Duration),
    Lose,
    Hold(watch::Receiver<bool>),
}

fn judge(shared: &Shared, direction: Direction, chunk: &[u8]) -> Verdict {
    let mut faults = lock(&shared.faults);
    let hit = faults.rules.iter().position(|rule| {
        rule.direction == direction
            && rule.left > 0
            && chunk
                .windows(rule.pattern.len())
                .any(|window| window == rule.pattern)
    });
    let Some(hit) = hit else {
        return Verdict::Pass(match direction {
            Direction::Reply => faults.reply_delay,
            Direction::Request => Duration::ZERO,
        });
    };
    faults.rules[hit].left -= 1;
    let deed = faults.rules[hit].deed.clone();
    if faults.rules[hit].left == 0 {
        faults.rules.remove(hit);
    }
    match deed {
        Deed::Lose => {
            faults.lost += 1;
            Verdict::Lose
        }
        Deed::Hold { caught, open } => {
            caught.send_modify(|n| *n += 1);
            Verdict::Hold(open)
        }
    }
}
