//! Where the store is: one node, the primary that Sentinel names, or the primaries of a cluster.
//!
//! The client library has both a cluster and a Sentinel client; we use neither. Its cluster connection puts every command
//! of a process into one queue over connections of its own: it retries and follows redirections inside, sixteen times
//! unless told otherwise, a connection with an abandoned command cannot be given up, renewals and large replies cannot have
//! their own, and blocking pops and RESP2 subscriptions have no place in it. Its Sentinel client finds an address, which is
//! the small part. All keys of a command share one slot by design, so finding its node is one look into a table; what is
//! left is to keep the table, which [`super::lookout`] does for both.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, ServerErrorKind,
};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::error::{StoreError, Trouble};
use super::gate::{Gate, Need};
use super::lookout;
use super::slots::{Address, Slot, SlotMap};
use crate::config::{StoreConfig, StoreMode, url_parts};

/// Whom to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Nobody has said yet.
    Unknown,
    /// One server for everything.
    One(Address),
    /// Each slot has its own.
    Slots(SlotMap),
}

impl View {
    /// The node that serves a slot.
    fn primary(&self, slot: Slot) -> Option<&Address> {
        match self {
            Self::Unknown => None,
            Self::One(address) => Some(address),
            Self::Slots(map) => map.primary(slot),
        }
    }

    fn primaries(&self) -> Vec<Address> {
        match self {
            Self::Unknown => Vec::new(),
            Self::One(address) => vec![Arc::clone(address)],
            Self::Slots(map) => map.primaries(),
        }
    }
}

/// What finds the nodes and what makes connections to them have in common.
pub(super) struct Known {
    pub(super) mode: StoreMode,
    /// The listed addresses: the node, its Sentinels, or nodes of the cluster.
    pub(super) listed: Vec<ConnectionInfo>,
    pub(super) master_name: String,
    /// How a node of the store is met.
    login: RedisConnectionInfo,
    timeout: Duration,
    gate: Gate,
    pub(super) view: watch::Sender<View>,
    /// Counts the times that somebody met a node that does not serve: look again.
    pub(super) doubts: watch::Sender<u64>,
    /// Why nobody has said where the store is.
    why: Mutex<String>,
}

/// The nodes of the store. Cheap to clone.
#[derive(Clone)]
pub(super) struct Nodes {
    known: Arc<Known>,
    _lookouts: Arc<Vec<AbortOnDropHandle<()>>>,
}

impl Nodes {
    /// Begins to look for the nodes. `timeout` bounds the making of each connection.
    pub(super) fn open(config: &StoreConfig, timeout: Duration) -> Result<Self, StoreError> {
        let bad = |error: RedisError| StoreError::Unavailable {
            trouble: Trouble::Other,
            detail: format!("store.url: {error}"),
        };
        let listed = url_parts(config.url.expose())
            .iter()
            .map(|url| url.as_str().into_connection_info())
            .collect::<Result<Vec<_>, _>>()
            .map_err(bad)?;
        let first = listed.first().ok_or_else(|| StoreError::Unavailable {
            trouble: Trouble::Other,
            detail: "store.url is empty".into(),
        })?;
        let known = Arc::new(Known {
            mode: config.mode,
            login: login(config, first),
            view: watch::Sender::new(match config.mode {
                StoreMode::Single => View::One(first.addr().to_string().into()),
                StoreMode::Cluster | StoreMode::Sentinel => View::Unknown,
            }),
            gate: Gate::new(listed.len()),
            listed,
            master_name: config.master_name.clone(),
            timeout,
            doubts: watch::Sender::new(0),
            why: Mutex::default(),
        });
        Ok(Self {
            _lookouts: Arc::new(lookout::start(&known)),
            known,
        })
    }

    /// The node that serves a slot. Waits until somebody knows: give it a time-out, and see [`Nodes::why`].
    pub(super) async fn primary(&self, slot: Slot) -> Address {
        self.located(|view| view.primary(slot).cloned()).await
    }

    /// One of the nodes, another for each `attempt`. Waits as [`Nodes::primary`].
    pub(super) async fn any(&self, attempt: u32) -> Address {
        let pick = |view: &View| {
            let all = view.primaries();
            let at = attempt as usize % all.len().max(1);
            all.into_iter().nth(at)
        };
        self.located(pick).await
    }

    async fn located(&self, mut pick: impl FnMut(&View) -> Option<Address>) -> Address {
        let mut view = self.known.view.subscribe();
        loop {
            if let Some(address) = pick(&view.borrow_and_update()) {
                return address;
            }
            view.changed()
                .await
                .expect("the sender lives as long as we do");
        }
    }

    /// The node that serves a slot as far as is known.
    pub(super) fn primary_now(&self, slot: Slot) -> Option<Address> {
        self.known.view.borrow().primary(slot).cloned()
    }

    /// Every node that serves.
    pub(super) fn primaries(&self) -> Vec<Address> {
        self.known.view.borrow().primaries()
    }

    /// Whether this node serves, as far as is known.
    pub(super) fn serves(&self, address: &Address) -> bool {
        match &*self.known.view.borrow() {
            View::Unknown => false,
            View::One(one) => one == address,
            View::Slots(map) => map.serves(address),
        }
    }

    /// Waits until a node serves no more: another took its place.
    pub(super) async fn replaced(&self, address: &Address) {
        if self.known.mode == StoreMode::Single {
            return std::future::pending().await;
        }
        self.until(|nodes| !nodes.serves(address)).await;
    }

    /// Waits until another node than this one serves a slot.
    pub(super) async fn moved(&self, slot: Slot, address: &Address) {
        let elsewhere = |nodes: &Self| {
            nodes
                .primary_now(slot)
                .is_some_and(|primary| primary != *address)
        };
        self.until(elsewhere).await;
    }

    async fn until(&self, there: impl Fn(&Self) -> bool) {
        let mut view = self.known.view.subscribe();
        while !there(self) {
            view.changed()
                .await
                .expect("the sender lives as long as we do");
        }
    }

    /// Why no node was found in time.
    pub(super) fn lost(&self) -> StoreError {
        let why = self
            .known
            .why
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let what = match self.known.mode {
            StoreMode::Single => "no connection in time",
            StoreMode::Cluster => "no node of the cluster said who serves this slot",
            StoreMode::Sentinel => "no Sentinel named the primary",
        };
        StoreError::Unavailable {
            trouble: Trouble::Connection,
            detail: format!("{what}{why}"),
        }
    }

    /// A node met trouble: what it says of the nodes may be old.
    pub(super) fn met(&self, address: &Address, trouble: Trouble) {
        match trouble {
            Trouble::ReadOnly | Trouble::MasterDown | Trouble::Loading => {
                self.known.gate.failed(address);
                self.known.doubt();
            }
            Trouble::Connection | Trouble::TimedOut | Trouble::ClusterDown => self.known.doubt(),
            _ => {}
        }
    }

    /// A connection to a node that says it can serve.
    pub(super) async fn connect(
        &self,
        address: &Address,
        need: Need,
    ) -> Result<MultiplexedConnection, RedisError> {
        let info = self.known.node(address)?;
        let made = self.known.connect(address, need, info, async |connection| {
            match self.known.mode {
                StoreMode::Single | StoreMode::Cluster => {
                    redis::cmd("PING").exec_async(connection).await
                }
                StoreMode::Sentinel => is_primary(connection).await,
            }
        });
        self.unless_replaced(address, made).await
    }

    /// A connection for subscriptions. Where it leads is not asked: a replica publishes what its primary does.
    pub(super) async fn subscribe(&self, address: &Address) -> Result<PubSub, RedisError> {
        let client = Client::open(self.known.node(address)?)?;
        let making = self.known.bounded(async move {
            let mut pubsub = client.get_async_pubsub().await?;
            pubsub.ping::<redis::Value>().await?;
            Ok(pubsub)
        });
        let made = self.known.gate.pass(address, Need::Other, making);
        self.unless_replaced(address, made).await
    }

    /// A server that hangs is waited for no longer than until another takes its place.
    async fn unless_replaced<T>(
        &self,
        address: &Address,
        made: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        tokio::select! {
            made = made => made.inspect_err(|_| self.known.doubt()),
            () = self.replaced(address) => {
                Err((ErrorKind::Io, "another node took its place").into())
            }
        }
    }
}

impl Known {
    /// Somebody met a node that does not serve.
    fn doubt(&self) {
        self.doubts
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Remembers why nobody says where the store is.
    pub(super) fn unknown(&self, why: &str) {
        let mut said = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        *said = format!(": {why}");
    }

    /// A new view holds; addresses that are neither in it nor listed are forgotten.
    pub(super) fn see(&self, view: View) {
        let mut used = view.primaries();
        used.extend(
            self.listed
                .iter()
                .map(|info| info.addr().to_string().into()),
        );
        self.view.send_if_modified(|now| {
            let changed = *now != view;
            if changed {
                self.gate.keep(&used);
                *now = view;
            }
            changed
        });
    }

    /// An address, met as every node of the store is.
    pub(super) fn with_login(&self, info: &ConnectionInfo) -> ConnectionInfo {
        info.clone().set_redis_settings(self.login.clone())
    }

    /// How to reach a node of the store.
    fn node(&self, address: &Address) -> Result<ConnectionInfo, RedisError> {
        let info = self.with_login(&self.listed[0]);
        if self.mode == StoreMode::Single {
            return Ok(info);
        }
        let (host, port) = address
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)))
            .ok_or((ErrorKind::InvalidClientConfig, "a node without an address"))?;
        Ok(info.set_addr(ConnectionAddr::Tcp(host, port)))
    }

    /// Makes a connection through the gate and lets `test` judge it.
    pub(super) async fn connect(
        &self,
        address: &Address,
        need: Need,
        info: ConnectionInfo,
        test: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<(), RedisError>,
    ) -> Result<MultiplexedConnection, RedisError> {
        let client = Client::open(info)?;
        let making = self.bounded(async move {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                // Each command has its own time-out, see `Shared::run`.
                .set_response_timeout(None);
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            test(&mut connection).await?;
            Ok(connection)
        });
        self.gate.pass(address, need, making).await
    }

    async fn bounded<T>(
        &self,
        making: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        tokio::time::timeout(self.timeout, making)
            .await
            .unwrap_or_else(|_| Err((ErrorKind::Io, "no connection in time").into()))
    }
}

/// How a node of the store is met. In a list of Sentinels the login is theirs, `store.password_file` the store's.
fn login(config: &StoreConfig, first: &ConnectionInfo) -> RedisConnectionInfo {
    let given = first.redis_settings();
    let login = match config.mode {
        StoreMode::Sentinel => RedisConnectionInfo::default()
            .set_db(given.db())
            .set_protocol(given.protocol()),
        StoreMode::Single | StoreMode::Cluster => given.clone(),
    };
    if config.password.is_empty() {
        login
    } else {
        login.set_password(config.password.expose())
    }
}

/// A Sentinel may be behind: the server itself must say that it is the primary.
async fn is_primary(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let role: redis::Value = redis::cmd("ROLE").query_async(connection).await?;
    let is = match role {
        redis::Value::Array(parts) => parts.into_iter().next(),
        _ => None,
    };
    if is == Some(redis::Value::BulkString(b"master".to_vec())) {
        return Ok(());
    }
    let kind = ErrorKind::Server(ServerErrorKind::ReadOnly);
    Err((kind, "Sentinel named a server that is not the primary").into())
}
