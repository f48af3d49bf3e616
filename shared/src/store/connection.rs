//! Connections: shared ones for steps, each retired as soon as a command on it was abandoned or timed out, or its node
//! serves no more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bb8_redis::bb8;
use redis::aio::MultiplexedConnection;

use super::error::{StoreError, Trouble, classify, unavailable};
use super::gate::Need;
use super::nodes::Nodes;
use super::slots::{Address, Slot};

/// A connection that many commands share. Replies are matched by order, so a reply that nobody waits for any more is
/// still read and dropped; yet a connection with an abandoned command is given up, as it may be stuck.
#[derive(Clone)]
pub(super) struct Shared {
    connection: MultiplexedConnection,
    retired: Arc<AtomicBool>,
    nodes: Nodes,
    address: Address,
    trouble: LastTrouble,
}

impl Shared {
    /// Takes it out of use: no command is sent on it any more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Runs one command within `timeout`.
    pub(super) async fn run<T: redis::FromRedisValue>(
        &self,
        timeout: Duration,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let mut connection = self.connection.clone();
        let mut abandoned = Abandoned(Some(self));
        let answer = tokio::select! {
            answer = tokio::time::timeout(timeout, command.query_async(&mut connection)) => answer,
            // What became of the command is unknown, and nobody there will say.
            () = self.nodes.replaced(&self.address) => return Err(StoreError::Unavailable {
                trouble: Trouble::Connection,
                detail: "another node took its place".into(),
            }),
        };
        match answer {
            Ok(Ok(value)) => {
                abandoned.0 = None;
                Ok(value)
            }
            Ok(Err(error)) => {
                let (trouble, error) = (classify(&error), unavailable(&error));
                if !trouble.retires() {
                    abandoned.0 = None;
                }
                self.nodes.met(&self.address, trouble);
                *lock(&self.trouble) = Some(error.clone());
                Err(error)
            }
            Err(_) => {
                self.nodes.met(&self.address, Trouble::TimedOut);
                let ms = timeout.as_millis();
                Err(StoreError::timed_out(format!("no answer within {ms} ms")))
            }
        }
    }
}

/// Retires its connection unless the command came to an end.
struct Abandoned<'a>(Option<&'a Shared>);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0 {
            connection.retire();
        }
    }
}

/// What was last met at a node, for those who get no connection; none since one was made.
type LastTrouble = Arc<Mutex<Option<StoreError>>>;

/// Makes connections for the pool of them.
struct Manager {
    nodes: Nodes,
    address: Address,
    need: Need,
    timeout: Duration,
    trouble: LastTrouble,
}

impl Manager {
    fn remember(&self, trouble: Option<StoreError>) {
        *lock(&self.trouble) = trouble;
    }
}

impl bb8::ManageConnection for Manager {
    type Connection = Shared;
    type Error = redis::RedisError;

    async fn connect(&self) -> Result<Shared, redis::RedisError> {
        // Its turn may be long in coming, and by then nobody may wait for it.
        let made = tokio::time::timeout(self.timeout, self.nodes.connect(&self.address, self.need))
            .await
            .unwrap_or_else(|_| Err((redis::ErrorKind::Io, "no connection in time").into()));
        match made {
            Ok(connection) => {
                self.remember(None);
                Ok(Shared {
                    connection,
                    retired: Arc::new(AtomicBool::new(false)),
                    nodes: self.nodes.clone(),
                    address: Arc::clone(&self.address),
                    trouble: Arc::clone(&self.trouble),
                })
            }
            Err(error) => {
                self.remember(Some(unavailable(&error)));
                Err(error)
            }
        }
    }

    async fn is_valid(&self, connection: &mut Shared) -> Result<(), redis::RedisError> {
        if self.has_broken(connection) {
            Err((redis::ErrorKind::Io, "retired").into())
        } else {
            Ok(())
        }
    }

    fn has_broken(&self, connection: &mut Shared) -> bool {
        connection.retired.load(Ordering::Relaxed)
    }
}

/// The connections to one node.
#[derive(Clone)]
struct Lane {
    pool: bb8::Pool<Manager>,
    trouble: LastTrouble,
}

/// A few shared connections to each node that is needed.
pub(super) struct Connections {
    nodes: Nodes,
    need: Need,
    size: u32,
    ready: u32,
    timeout: Duration,
    lanes: Mutex<HashMap<Address, Lane>>,
}

impl Connections {
    /// Up to `size` connections to each node, made when they are needed; `ready` of them beforehand, as soon as the node
    /// is known.
    pub(super) fn new(nodes: &Nodes, need: Need, size: u32, ready: u32, timeout: Duration) -> Self {
        let connections = Self {
            nodes: nodes.clone(),
            need,
            size,
            ready: ready.min(size),
            timeout,
            lanes: Mutex::default(),
        };
        if ready > 0 {
            for address in nodes.primaries() {
                connections.lane(&address);
            }
        }
        connections
    }

    /// The connections to a node; those to nodes that serve no more are given up.
    fn lane(&self, address: &Address) -> Lane {
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(address) {
            return lane.clone();
        }
        lanes.retain(|address, _| self.nodes.serves(address));
        let trouble = LastTrouble::default();
        let pool = bb8::Pool::builder()
            .max_size(self.size)
            .min_idle(Some(self.ready))
            .test_on_check_out(true)
            .connection_timeout(self.timeout)
            .build_unchecked(Manager {
                nodes: self.nodes.clone(),
                address: Arc::clone(address),
                need: self.need,
                timeout: self.timeout,
                trouble: Arc::clone(&trouble),
            });
        let lane = Lane { pool, trouble };
        lanes.insert(Arc::clone(address), lane.clone());
        lane
    }

    async fn get(&self, address: &Address) -> Result<Shared, StoreError> {
        let lane = self.lane(address);
        let got = tokio::select! {
            got = lane.pool.get() => got,
            () = self.nodes.replaced(address) => Err(bb8::RunError::TimedOut),
        };
        match got {
            Ok(connection) => Ok(connection.clone()),
            Err(bb8::RunError::TimedOut) => Err(lane.no_connection()),
            Err(bb8::RunError::User(error)) => Err(unavailable(&error)),
        }
    }

    /// A connection to the node that serves `slot`, made within `timeout` where there is none.
    pub(super) async fn get_within(
        &self,
        slot: Slot,
        timeout: Duration,
    ) -> Result<Shared, StoreError> {
        let started = tokio::time::Instant::now();
        let address = tokio::time::timeout(timeout, self.nodes.primary(slot))
            .await
            .map_err(|_| self.nodes.lost())?;
        self.get_at(&address, timeout.saturating_sub(started.elapsed()))
            .await
    }

    /// A connection to this node, made within `timeout` where there is none.
    pub(super) async fn get_at(
        &self,
        address: &Address,
        timeout: Duration,
    ) -> Result<Shared, StoreError> {
        tokio::time::timeout(timeout, self.get(address))
            .await
            .unwrap_or_else(|_| Err(self.lane(address).no_connection()))
    }

    /// Runs one command within `timeout`, which a connection that has to be made takes nothing of.
    pub(super) async fn run<T: redis::FromRedisValue>(
        &self,
        slot: Slot,
        timeout: Duration,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        let connection = self.get_within(slot, timeout).await?;
        connection.run(timeout, command).await
    }
}

impl Lane {
    /// Why there is no connection: what the last try met, where that says more.
    fn no_connection(&self) -> StoreError {
        lock(&self.trouble)
            .clone()
            .unwrap_or_else(|| StoreError::Unavailable {
                trouble: Trouble::Connection,
                detail: "no connection in time".into(),
            })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
