//! Connections: shared ones for steps, each retired as soon as a command on it was abandoned or timed out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bb8_redis::bb8;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

use super::error::{StoreError, Trouble, classify, unavailable};

/// A connection that many commands share. Replies are matched by order, so a reply that nobody waits for any more is
/// still read and dropped; yet a connection with an abandoned command is given up, as it may be stuck.
#[derive(Clone)]
pub(super) struct Shared {
    connection: MultiplexedConnection,
    retired: Arc<AtomicBool>,
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
        match tokio::time::timeout(timeout, command.query_async(&mut connection)).await {
            Ok(Ok(value)) => {
                abandoned.0 = None;
                Ok(value)
            }
            Ok(Err(error)) => {
                if !classify(&error).retires() {
                    abandoned.0 = None;
                }
                Err(unavailable(&error))
            }
            Err(_) => Err(StoreError::timed_out(format!(
                "no answer within {} ms",
                timeout.as_millis()
            ))),
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

/// Makes connections for the pool of them.
pub(super) struct Manager {
    client: Client,
    timeout: Duration,
}

impl bb8::ManageConnection for Manager {
    type Connection = Shared;
    type Error = redis::RedisError;

    async fn connect(&self) -> Result<Shared, redis::RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            // Each command has its own time-out, see `Connections::run`.
            .set_response_timeout(None);
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(Shared {
            connection,
            retired: Arc::new(AtomicBool::new(false)),
        })
    }

    async fn is_valid(&self, connection: &mut Shared) -> Result<(), redis::RedisError> {
        if connection.retired.load(Ordering::Relaxed) {
            Err((redis::ErrorKind::Io, "retired").into())
        } else {
            Ok(())
        }
    }

    fn has_broken(&self, connection: &mut Shared) -> bool {
        connection.retired.load(Ordering::Relaxed)
    }
}

/// A few shared connections.
#[derive(Clone)]
pub(super) struct Connections {
    pool: bb8::Pool<Manager>,
}

impl Connections {
    /// Up to `size` connections, made when they are needed; `ready` of them beforehand.
    pub(super) async fn new(client: Client, size: u32, ready: u32, timeout: Duration) -> Self {
        let pool = bb8::Pool::builder()
            .max_size(size)
            .min_idle(Some(ready.min(size)))
            .test_on_check_out(true)
            .connection_timeout(timeout)
            .build_unchecked(Manager { client, timeout });
        Self { pool }
    }

    async fn get(&self) -> Result<Shared, StoreError> {
        match self.pool.get().await {
            Ok(connection) => Ok(connection.clone()),
            Err(bb8::RunError::TimedOut) => Err(StoreError::Unavailable {
                trouble: Trouble::Connection,
                detail: "no connection in time".into(),
            }),
            Err(bb8::RunError::User(error)) => Err(unavailable(&error)),
        }
    }

    /// A connection, made within `timeout` where there is none.
    pub(super) async fn get_within(&self, timeout: Duration) -> Result<Shared, StoreError> {
        tokio::time::timeout(timeout, self.get())
            .await
            .map_err(|_| StoreError::timed_out("no connection in time"))?
    }

    /// Runs one command within `timeout`, which a connection that has to be made takes nothing of.
    pub(super) async fn run<T: redis::FromRedisValue>(
        &self,
        timeout: Duration,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        self.get_within(timeout).await?.run(timeout, command).await
    }
}
