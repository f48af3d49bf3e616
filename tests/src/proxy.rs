//! A TCP proxy with faults, in front of the store or of a model server.
//!
//! It knows the store's protocol: a fault aims at whole commands and replies, and a reply is known by the command that it
//! answers. What is another protocol passes as it comes; there a fault finds its message by bytes that arrive in one read.

mod frame;
mod pump;
mod rules;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use pump::End;
use rules::{Command, Deed, Rules};
pub use rules::{Fault, Hits, Of, Rule, step};

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

#[derive(Debug, Default)]
struct Faults {
    reply_delay: Duration,
    refuse: bool,
    rules: Rules,
    lost: usize,
    done: usize,
    accepted: usize,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<Upstream>,
    faults: Mutex<Faults>,
    /// Whether requests, and whether replies, pass at all.
    gates: [watch::Sender<bool>; 2],
    /// Replaced at each reset: the connections of the old one are cut.
    cut: Mutex<CancellationToken>,
    tasks: TaskTracker,
}

impl Shared {
    fn upstream(&self) -> Upstream {
        lock(&self.upstream).clone()
    }

    fn reply_delay(&self) -> Duration {
        lock(&self.faults).reply_delay
    }

    /// Waits while nothing passes in this direction.
    async fn gate(&self, direction: Direction) {
        let mut open = self.gates[direction as usize].subscribe();
        // The sender lives in `self`.
        let _ = open.wait_for(|open| *open).await;
    }

    /// What is to be done to a message, counted as done.
    fn judge(
        &self,
        direction: Direction,
        command: Option<&Command>,
        message: &[u8],
    ) -> Option<Deed> {
        let mut faults = lock(&self.faults);
        let deed = faults.rules.judge(direction, command, message)?;
        faults.done += 1;
        faults.lost += usize::from(matches!(&deed, Deed::Fault(fault) if fault.loses()));
        Some(deed)
    }
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
            upstream: Mutex::new(upstream),
            faults: Mutex::default(),
            gates: [watch::Sender::new(true), watch::Sender::new(true)],
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

    /// Where new connections lead from now on. The old ones stay where they are: cut them with [`Proxy::reset_all`].
    pub fn lead_to(&self, upstream: Upstream) {
        *lock(&self.shared.upstream) = upstream;
    }

    /// Nothing passes in this direction on any connection, old or new, or everything does again, what waited first.
    pub fn blackhole(&self, direction: Direction, closed: bool) {
        self.shared.gates[direction as usize].send_replace(!closed);
    }

    /// Does `fault` to the messages that `rule` means.
    pub fn inject(&self, rule: Rule, fault: Fault) -> Hits {
        self.faults().rules.add(rule, Deed::Fault(fault))
    }

    /// Holds the next message that `rule` means.
    pub fn hold(&self, rule: Rule) -> Held {
        let (caught, caught_rx) = watch::channel(0);
        let (open_tx, open) = watch::channel(false);
        let deed = Deed::Hold { caught, open };
        self.faults().rules.add(rule, deed);
        Held {
            caught: caught_rx,
            open: open_tx,
        }
    }

    /// What the chances of rules are drawn from.
    pub fn seed(&self, seed: u64) {
        self.faults().rules.seed(seed);
    }

    /// Ends all rules, delays, refusals and blackholes. What is held stays so.
    pub fn heal(&self) {
        let mut faults = self.faults();
        faults.rules.clear();
        faults.reply_delay = Duration::ZERO;
        faults.refuse = false;
        drop(faults);
        self.blackhole(Direction::Request, false);
        self.blackhole(Direction::Reply, false);
    }

    /// Loses the next messages that contain `pattern`, resetting the connection of each: the server has acted, its caller
    /// never hears of it (or, for a request, the server never hears of it).
    pub fn lose_next(&self, count: usize, direction: Direction, pattern: &[u8]) {
        let rule = Rule::new(direction, Of::Anything).holding(pattern);
        self.inject(rule.times(count), Fault::Reset);
    }

    /// Holds the next message that contains `pattern`.
    pub fn hold_next(&self, direction: Direction, pattern: &[u8]) -> Held {
        self.hold(Rule::new(direction, Of::Anything).holding(pattern))
    }

    /// How many messages were lost so far, whole or in part.
    pub fn lost(&self) -> usize {
        self.faults().lost
    }

    /// How many messages met a rule so far.
    pub fn faults_done(&self) -> usize {
        self.faults().done
    }

    /// How many connections were made so far, refused ones too.
    pub fn accepted(&self) -> usize {
        self.faults().accepted
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
        lock(&shared.faults).accepted += 1;
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
            end = pump::pass(&shared, &mut caller) => end,
        };
    }
    if matches!(end, End::Reset) {
        // Where the socket is gone already there is nothing to reset.
        let _ = caller.set_zero_linger();
    }
}
