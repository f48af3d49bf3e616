//! The only code that names the Redis client. A store is a list of steps; each is bounded in time, and what went wrong
//! is classed once.

mod audit;
mod clock;
mod confirm;
mod connection;
mod directory;
mod error;
mod facts;
mod gate;
mod hints;
mod keys;
mod lookout;
mod nodes;
mod ready;
mod shown;
mod slots;
mod steps;
#[cfg(test)]
mod tests;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use directory::{ApiKeyRecord, PoolDef, Scope};
pub use error::{StoreError, Trouble};
pub use facts::{Given, ServerFacts};
pub use hints::{Hint, Hints, Watch};
pub use keys::Walk;
pub use work::WorkWaiter;

use crate::config::{Durability, StoreConfig};
use crate::domain::PoolName;
pub use crate::protocol::Event;
use crate::protocol::{self, Misread, Op, Outcome, Snapshot, Step, Value, script::Script};
use crate::retry::Retry;
use crate::telemetry::Metrics;
use clock::Clocks;
use confirm::Confirmer;
use connection::Connections;
use gate::Need;
use nodes::Nodes;
use slots::Slot;

/// Tries of a step whose deadline had passed when it arrived: the first only taught us the pool's clock.
const LATE_TRIES: u32 = 3;

/// Where a step's commands go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// With all others.
    Shared,
    /// Renewals: apart from everything that may be large or slow.
    Renewals,
    /// Results and pieces of streams, which readers ask for by the megabyte: apart from what must be quick.
    Bulk,
}

/// A script's text and the name that the server caches it under.
struct Loaded {
    source: String,
    hash: String,
}

struct Inner {
    nodes: Nodes,
    shared: Connections,
    bulk: Connections,
    renewals: Connections,
    confirm: Confirmer,
    hints: Hints,
    clocks: Clocks,
    /// Command time-outs of pools whose lease is short.
    timeouts: Mutex<HashMap<PoolName, Duration>>,
    scripts: HashMap<&'static str, Loaded>,
    timeout: Duration,
    durability: Durability,
    replicas: u32,
    metrics: Arc<Metrics>,
}

/// The store of all roles. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

impl Store {
    /// Opens the store and asks it for a sign of life.
    ///
    /// # Errors
    /// Where the address cannot be used or the server does not answer.
    pub async fn connect(config: &StoreConfig, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        let store = Self::open(config, metrics).await?;
        store.command::<()>(&redis::cmd("PING")).await?;
        Ok(store)
    }

    /// Opens the store without asking it anything; it may be down for now.
    ///
    /// # Errors
    /// Where the address cannot be used.
    pub async fn open(config: &StoreConfig, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        if config.audit {
            tracing::warn!(
                "store.audit is on: every step is recorded in the store, bodies and all, and its memory grows with each"
            );
        }
        let timeout = Duration::from_millis(config.command_timeout_ms);
        let nodes = Nodes::open(config, timeout)?;
        // Commands share connections; a few are enough to keep one slow reply from delaying all others.
        // Renewals have a second one ready: when the first is given up after a time-out, a slow store leaves no time within
        // the lease to make another.
        let renewals = if config.max_connections > 2 { 2 } else { 1 };
        let size = config.max_connections.saturating_sub(renewals).clamp(1, 4);
        let asked = config.durability == Durability::Replicated;
        let confirming = if asked { config.replicas } else { 0 };
        Ok(Self(Arc::new(Inner {
            shared: Connections::new(&nodes, Need::Other, size, 0, timeout),
            bulk: Connections::new(&nodes, Need::Other, 1, 0, timeout),
            renewals: Connections::new(&nodes, Need::Renewals, renewals, renewals, timeout),
            confirm: Confirmer::new(nodes.clone(), confirming, timeout),
            hints: Hints::start(nodes.clone()),
            nodes,
            clocks: Clocks::default(),
            timeouts: Mutex::new(HashMap::new()),
            scripts: protocol::script::ALL
                .iter()
                .map(|script| {
                    let source = if config.audit {
                        script.audited_source()
                    } else {
                        script.source()
                    };
                    let hash = redis::Script::new(&source).get_hash().to_owned();
                    (script.name, Loaded { source, hash })
                })
                .collect(),
            timeout,
            durability: config.durability,
            replicas: config.replicas,
            metrics,
        })))
    }

    /// Hints over pub/sub.
    pub fn hints(&self) -> &Hints {
        &self.0.hints
    }

    /// What was asked of the server.
    pub fn durability(&self) -> Durability {
        self.0.durability
    }

    /// Replicas that `replicated` asks for.
    pub(crate) fn replicas(&self) -> u32 {
        self.0.replicas
    }

    /// Waits for work in a pool, on a connection of its own.
    pub fn work_waiter(&self, pool: &PoolName) -> WorkWaiter {
        WorkWaiter::new(self.0.nodes.clone(), pool)
    }

    /// Bounds commands of a pool by a quarter of its lease, so that a renewal that hangs leaves time for others.
    pub fn bound_by_lease(&self, pool: &PoolName, lease_ms: u64) {
        let bound = self
            .0
            .timeout
            .min(Duration::from_millis((lease_ms / 4).max(1)));
        let mut timeouts = self
            .0
            .timeouts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        timeouts.insert(pool.clone(), bound);
    }

    fn timeout_of(&self, pool: &PoolName) -> Duration {
        let timeouts = self
            .0
            .timeouts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        timeouts.get(pool).copied().unwrap_or(self.0.timeout)
    }

    /// The pool's time as we believe it; none before its first reply.
    pub fn pool_now_ms(&self, pool: &PoolName) -> Option<u64> {
        self.0.clocks.now_ms(pool)
    }

    /// Runs a step, retrying within its time what passes by itself. All steps are the same under exact retry.
    async fn run<S: Step>(&self, step: &S) -> Result<S::Reply, StoreError> {
        self.run_on(step, Lane::Shared).await
    }

    async fn run_on<S: Step>(&self, step: &S, lane: Lane) -> Result<S::Reply, StoreError> {
        let started = Instant::now();
        let timeout = self.timeout_of(step.pool());
        let retry = Retry::store();
        let (mut attempt, mut late) = (0, 0);
        let mut from = started;
        let result = loop {
            let left = timeout
                .saturating_sub(from.elapsed())
                .max(Duration::from_millis(1));
            match self.try_step(step, lane, left).await {
                Ok(Outcome::Done(reply)) => break Ok(reply),
                Ok(Outcome::NoPool) => break Err(StoreError::NoPool(step.pool().clone())),
                // It was answered: the next try has its own time. With what is left of this one it might be given up
                // at once, and its connection with it.
                Ok(Outcome::Late) if late + 1 < LATE_TRIES => {
                    late += 1;
                    from = Instant::now();
                }
                Ok(Outcome::Late) => {
                    break Err(StoreError::Unavailable {
                        trouble: Trouble::Late,
                        detail: "the step arrived after its deadline".into(),
                    });
                }
                Err(StoreError::Unavailable { trouble, detail }) => {
                    self.0.metrics.store_error(trouble.as_str());
                    attempt += 1;
                    let delay = retry.delay(attempt);
                    if !trouble.is_brief() || from.elapsed() + delay >= timeout {
                        break Err(StoreError::Unavailable { trouble, detail });
                    }
                    tokio::time::sleep(delay).await;
                }
                Err(error) => break Err(error),
            }
        };
        self.0
            .metrics
            .observe_step(S::SCRIPT.name, started.elapsed());
        result
    }

    async fn try_step<S: Step>(
        &self,
        step: &S,
        lane: Lane,
        left: Duration,
    ) -> Result<Outcome<S::Reply>, StoreError> {
        if !S::READS && self.0.clocks.now_ms(step.pool()).is_none() {
            let look = Snapshot {
                pool: step.pool().clone(),
            };
            self.send(&look, Lane::Shared, left).await?;
        }
        self.send(step, lane, left).await
    }

    /// When a command that is sent now and waited for `left` must not run any more, by the pool's clock.
    fn deadline_ms<S: Step>(&self, step: &S, left: Duration) -> u64 {
        if S::READS {
            return 0;
        }
        let now_ms = self.0.clocks.now_ms(step.pool()).unwrap_or(0);
        now_ms + u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 4)
    }

    /// Sends a step once; again with its text where the server does not know it. Its deadline counts from when it is
    /// sent: a connection that had to be made first takes none of it.
    async fn send<S: Step>(
        &self,
        step: &S,
        lane: Lane,
        left: Duration,
    ) -> Result<Outcome<S::Reply>, StoreError> {
        let connections = self.connections(lane);
        let slot = Slot::of_key(protocol::base(step.pool()).as_bytes());
        let connection = connections.get_within(slot, left).await?;
        let script = self.script(S::SCRIPT);
        let bind = |command: &str, script: &str| {
            let (call, op) = (step.bind(self.deadline_ms(step, left)), Op::mint());
            let mut bound = redis::cmd(command);
            bound.arg(script).arg(1).arg(&call.base);
            for arg in &call.args {
                bound.arg(arg.as_slice());
            }
            bound.arg(op.as_str());
            (bound, op)
        };
        let (first, mut op) = bind("EVALSHA", &script.hash);
        let value = match connection.run(left, &first).await {
            // The server's script cache was lost: the text goes along, and fills it again.
            Err(StoreError::Unavailable {
                trouble: Trouble::NoScript,
                ..
            }) => {
                let again;
                (again, op) = bind("EVAL", &script.source);
                connection.run(left, &again).await?
            }
            other => other?,
        };
        let (now_ms, outcome) =
            protocol::decode(step, &op, plain(value)).map_err(|misread| match misread {
                // The step may have run, and all replies behind this one are in doubt.
                Misread::Foreign { .. } => {
                    connection.retire();
                    StoreError::Unavailable {
                        trouble: Trouble::Mismatched,
                        detail: misread.to_string(),
                    }
                }
                Misread::Corrupt(corrupt) => StoreError::Corrupt(corrupt.to_string()),
            })?;
        if S::SCRIPT.name != protocol::script::APPLY.name {
            self.0.clocks.heard(step.pool(), now_ms);
        }
        Ok(outcome)
    }

    fn script(&self, script: &'static Script) -> &Loaded {
        self.0
            .scripts
            .get(script.name)
            .expect("every step's script is in the list")
    }

    fn connections(&self, lane: Lane) -> &Connections {
        match lane {
            Lane::Shared => &self.0.shared,
            Lane::Renewals => &self.0.renewals,
            Lane::Bulk => &self.0.bulk,
        }
    }

    /// Runs a plain command within the command time-out; what passes by itself is tried again.
    async fn command<T: redis::FromRedisValue>(
        &self,
        command: &redis::Cmd,
    ) -> Result<T, StoreError> {
        self.command_on(command, Lane::Shared).await
    }

    async fn command_on<T: redis::FromRedisValue>(
        &self,
        command: &redis::Cmd,
        lane: Lane,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        let retry = Retry::store();
        let mut attempt = 0;
        loop {
            let left = self
                .0
                .timeout
                .saturating_sub(started.elapsed())
                .max(Duration::from_millis(1));
            let slot = keys::slot_of(command);
            let result = self.connections(lane).run(slot, left, command).await;
            let Err(StoreError::Unavailable { trouble, .. }) = &result else {
                return result;
            };
            self.0.metrics.store_error(trouble.as_str());
            attempt += 1;
            let delay = retry.delay(attempt);
            if !trouble.is_brief() || started.elapsed() + delay >= self.0.timeout {
                return result;
            }
            tokio::time::sleep(delay).await;
        }
    }
}

/// The client library's value as ours.
fn plain(value: redis::Value) -> Value {
    match value {
        redis::Value::Int(n) => Value::Int(n),
        redis::Value::BulkString(bytes) => Value::Bytes(bytes),
        redis::Value::SimpleString(text) => Value::Bytes(text.into_bytes()),
        redis::Value::Okay => Value::Bytes(b"OK".to_vec()),
        redis::Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        _ => Value::Nil,
    }
}
