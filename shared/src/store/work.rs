//! Waiting for work on a blocking pop of the pool's marker: one waiting worker is woken for each submit, and the pop
//! never carries a job, so a lost reply loses nothing.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

use crate::domain::PoolName;
use crate::protocol::base;

/// Beyond the wait that was asked for; the server's own time-out follows its wall clock, which may step.
const SLACK: Duration = Duration::from_millis(500);
/// Pause after trouble, so that a store that is down is not asked in a loop.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits for work in one pool, on a connection of its own.
pub struct WorkWaiter {
    client: Client,
    marker: String,
    connection: Option<MultiplexedConnection>,
}

impl WorkWaiter {
    pub(super) fn new(client: Client, pool: &PoolName) -> Self {
        Self {
            client,
            marker: format!("{}:marker", base(pool)),
            connection: None,
        }
    }

    /// Returns when there may be work, after `max`, or after trouble and a pause. Safe to cancel: a marker taken by a
    /// wait that was cancelled costs others no more than their own `max`.
    pub async fn wait(&mut self, max: Duration) {
        // An abandoned blocking pop must not be answered to the next one: the connection goes with it.
        let connection = match self.connection.take() {
            Some(connection) => Some(connection),
            None => self.connect().await,
        };
        let Some(mut connection) = connection else {
            tokio::time::sleep(PAUSE.min(max)).await;
            return;
        };
        let mut pop = redis::cmd("BZPOPMIN");
        pop.arg(&self.marker).arg(max.as_secs_f64().max(0.001));
        let answer = tokio::time::timeout(
            max + SLACK,
            pop.query_async::<redis::Value>(&mut connection),
        )
        .await;
        match answer {
            Ok(Ok(_)) => self.connection = Some(connection),
            Ok(Err(_)) => tokio::time::sleep(PAUSE.min(max)).await,
            Err(_) => {}
        }
    }

    async fn connect(&self) -> Option<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(2)))
            .set_response_timeout(None);
        self.client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .ok()
    }
}
