//! Waiting for work on a blocking pop of the pool's marker: one waiting worker is woken for each submit, and the pop
//! never carries a job, so a lost reply loses nothing.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::error::classify;
use super::gate::Need;
use super::nodes::Nodes;
use super::slots::{Address, Slot};
use crate::domain::PoolName;
use crate::protocol::base;

/// Beyond the wait that was asked for; the server's own time-out follows its wall clock, which may step.
const SLACK: Duration = Duration::from_millis(500);
/// Pause after trouble, so that a store that is down is not asked in a loop.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits for work in one pool, on a connection of its own to the pool's node.
pub struct WorkWaiter {
    nodes: Nodes,
    slot: Slot,
    marker: String,
    connection: Option<(Address, MultiplexedConnection)>,
}

impl WorkWaiter {
    pub(super) fn new(nodes: Nodes, pool: &PoolName) -> Self {
        let marker = format!("{}:marker", base(pool));
        Self {
            nodes,
            slot: Slot::of_key(marker.as_bytes()),
            marker,
            connection: None,
        }
    }

    /// Returns when there may be work, after `max`, or after trouble and a pause. Safe to cancel: a marker taken by a
    /// wait that was cancelled costs others no more than their own `max`.
    pub async fn wait(&mut self, max: Duration) {
        // An abandoned blocking pop must not be answered to the next one: the connection goes with it.
        let kept = self.connection.take();
        let kept =
            kept.filter(|(address, _)| self.nodes.primary_now(self.slot).as_ref() == Some(address));
        let connection = match kept {
            Some(connection) => Some(connection),
            None => self.connect(max).await,
        };
        let Some((address, mut connection)) = connection else {
            tokio::time::sleep(PAUSE.min(max)).await;
            return;
        };
        let mut pop = redis::cmd("BZPOPMIN");
        pop.arg(&self.marker).arg(max.as_secs_f64().max(0.001));
        let popped = tokio::select! {
            popped = tokio::time::timeout(
                max + SLACK,
                pop.query_async::<redis::Value>(&mut connection),
            ) => popped,
            // Nothing comes from there any more: what waits now is somewhere else.
            () = self.nodes.moved(self.slot, &address) => return,
        };
        match popped {
            Ok(Ok(_)) => self.connection = Some((address, connection)),
            Ok(Err(error)) => {
                self.nodes.met(&address, classify(&error));
                tokio::time::sleep(PAUSE.min(max)).await;
            }
            Err(_) => {}
        }
    }

    /// A connection, where there is one within `max` and a pause: a claim may find work without being woken.
    async fn connect(&self, max: Duration) -> Option<(Address, MultiplexedConnection)> {
        let connecting = async {
            let address = self.nodes.primary(self.slot).await;
            let connection = self.nodes.connect(&address, Need::Other).await.ok()?;
            Some((address, connection))
        };
        tokio::time::timeout(max.max(PAUSE), connecting)
            .await
            .ok()?
    }
}
