//! Whether replicas hold a write, for `durability = "replicated"`.
//!
//! A confirmation reads, on one connection, the field that proves the write, makes a write of its own that changes
//! nothing, and waits with `WAIT` until enough replicas have everything up to it. `WAIT` covers what others wrote before,
//! so a write may be confirmed long after it was made, by anybody. The proof is read on that same connection because
//! another server may have become primary since: its replicas say nothing about a write that it never had.
//!
//! `WAIT` blocks its connection, so each pool has one for this alone. Those who come while it waits share the next round.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::oneshot;

use super::error::classify;
use super::gate::Need;
use super::nodes::Nodes;
use super::slots::{Address, Slot};
use crate::domain::{JobId, PoolName};
use crate::protocol::base;

/// Questions of one round: their fields are read at once, which must not hold the server for long.
const ROUND_MAX: usize = 1_000;
/// Ends of jobs that are remembered as confirmed, twice as many at most: some 100 bytes each. One that was forgotten is
/// confirmed again.
const KNOWN_MAX: usize = 10_000;
/// The write that changes nothing. A plain `SET` would be refused while memory is full, when what was finished must
/// still be shown. The key goes by itself.
const NO_OP: &str = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], '1', 'PX', '60000')";

/// A field of a job's record that proves a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    id: JobId,
    field: &'static str,
    /// A word of it; none: anything.
    value: Option<String>,
}

impl Proof {
    /// The job is stored.
    pub(super) fn stored(id: &JobId) -> Self {
        Self::field(id, "tenant", None)
    }

    /// The job ended then, in its pool's time; none: at any time.
    pub(super) fn ended(id: &JobId, at_ms: Option<u64>) -> Self {
        Self::field(id, "ended_at", at_ms.map(|ms| ms.to_string()))
    }

    /// The job was cancelled while it ran: it is marked, or ended since.
    pub(super) fn marked(id: &JobId) -> Self {
        Self::field(id, "cancel", None)
    }

    /// The job was requeued by this operation.
    pub(super) fn requeued(id: &JobId, operation: &str) -> Self {
        Self::field(id, "requeued_by", Some(operation.to_owned()))
    }

    fn field(id: &JobId, field: &'static str, value: Option<String>) -> Self {
        Self {
            id: id.clone(),
            field,
            value,
        }
    }

    fn holds(&self, found: &Value) -> bool {
        match (found, &self.value) {
            (Value::BulkString(found), Some(value)) => found
                .split(|byte| *byte == b' ')
                .any(|word| word == value.as_bytes()),
            (Value::BulkString(_), None) => true,
            _ => false,
        }
    }
}

/// What came of a round, for one who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// Enough replicas have it.
    Yes,
    /// The primary does not have it (any more): it was changed, or lost.
    Differs,
    /// Too few replicas, or no answer; why.
    Short(String),
}

/// One who waits for a round.
struct Waiter {
    proofs: Vec<Proof>,
    told: oneshot::Sender<Confirmed>,
}

/// A connection and where it leads.
type Held = (Address, MultiplexedConnection);

/// The confirmations of one pool.
#[derive(Default)]
struct Lane {
    waiting: Mutex<VecDeque<Waiter>>,
    /// Whoever holds it makes the next round for all that wait.
    turn: tokio::sync::Mutex<Option<Held>>,
}

impl Lane {
    fn enter(&self, proofs: &[Proof]) -> oneshot::Receiver<Confirmed> {
        let (told, answer) = oneshot::channel();
        lock(&self.waiting).push_back(Waiter {
            proofs: proofs.to_vec(),
            told,
        });
        answer
    }
}

/// Asks the store for confirmations.
pub(super) struct Confirmer {
    nodes: Nodes,
    replicas: u32,
    timeout: Duration,
    lanes: Mutex<HashMap<PoolName, Arc<Lane>>>,
    known: Known,
}

impl Confirmer {
    /// Asks for `replicas`, 0 for none: then nothing is ever asked. A confirmation takes at most `timeout`.
    pub(super) fn new(nodes: Nodes, replicas: u32, timeout: Duration) -> Self {
        Self {
            nodes,
            replicas,
            timeout,
            lanes: Mutex::default(),
            known: Known::default(),
        }
    }

    /// Whether enough replicas hold what `proofs` prove, all of them of jobs of `pool`. An end that was confirmed before
    /// costs nothing.
    pub(super) async fn confirm(&self, pool: &PoolName, mut proofs: Vec<Proof>) -> Confirmed {
        if self.replicas == 0 {
            return Confirmed::Yes;
        }
        proofs.retain(|proof| !self.known.has(proof));
        if proofs.is_empty() {
            return Confirmed::Yes;
        }
        let lane = Arc::clone(lock(&self.lanes).entry(pool.clone()).or_default());
        let asking = self.ask(pool, &lane, &proofs);
        let confirmed = tokio::time::timeout(self.timeout, asking).await;
        let confirmed = confirmed.unwrap_or_else(|_| self.short("no answer", self.timeout));
        if confirmed == Confirmed::Yes {
            self.known.add(proofs);
        }
        confirmed
    }

    /// Waits for a round that begins after this call, or makes it.
    async fn ask(&self, pool: &PoolName, lane: &Lane, proofs: &[Proof]) -> Confirmed {
        let mut answer = lane.enter(proofs);
        loop {
            tokio::select! {
                biased;
                told = &mut answer => match told {
                    Ok(confirmed) => return confirmed,
                    // The round's maker was cancelled.
                    Err(_) => answer = lane.enter(proofs),
                },
                mut connection = lane.turn.lock() => self.round(pool, lane, &mut connection).await,
            }
        }
    }

    /// One round for all that wait, which takes at most half of the time-out: who comes while one is under way waits for
    /// it and for the next.
    async fn round(&self, pool: &PoolName, lane: &Lane, connection: &mut Option<Held>) {
        let waiters: Vec<Waiter> = {
            let mut waiting = lock(&lane.waiting);
            // Those who gave up take no part.
            waiting.retain(|waiter| !waiter.told.is_closed());
            let mut questions = 0;
            let fits = waiting.iter().take_while(|waiter| {
                questions += waiter.proofs.len();
                questions <= ROUND_MAX
            });
            let count = fits.count().max(1).min(waiting.len());
            waiting.drain(..count).collect()
        };
        if waiters.is_empty() {
            return;
        }
        // A connection whose answer was not awaited to its end is not used again: it leaves its place meanwhile.
        let held = connection.take();
        let limit = self.timeout / 2;
        let asked = tokio::time::timeout(limit, self.send(pool, held, &waiters, limit)).await;
        let (found, short) = match asked {
            Ok(Ok((found, enough, kept))) => {
                *connection = Some(kept);
                let short = self.short(&format!("{enough} answered"), limit);
                (found, (enough < i64::from(self.replicas)).then_some(short))
            }
            Ok(Err(error)) => (Vec::new(), Some(self.short(&error.to_string(), limit))),
            Err(_) => (Vec::new(), Some(self.short("no answer", limit))),
        };
        let mut found = found.iter();
        for waiter in waiters {
            // Each has as many answers as questions, whatever they are: the next one's follow.
            let answers = found.by_ref().take(waiter.proofs.len());
            let held = waiter.proofs.iter().zip(answers);
            let held = held.filter(|(proof, value)| proof.holds(value)).count();
            let there = held == waiter.proofs.len();
            let confirmed = match &short {
                Some(short) => short.clone(),
                None if there => Confirmed::Yes,
                None => Confirmed::Differs,
            };
            // Who gave up meanwhile is told nothing.
            let _ = waiter.told.send(confirmed);
        }
    }

    /// What the primary has, and how many replicas have all of it.
    async fn send(
        &self,
        pool: &PoolName,
        held: Option<Held>,
        waiters: &[Waiter],
        limit: Duration,
    ) -> redis::RedisResult<(Vec<Value>, i64, Held)> {
        let started = Instant::now();
        let base = base(pool);
        let slot = Slot::of_key(base.as_bytes());
        // Another server may have become the pool's since.
        let held =
            held.filter(|(address, _)| self.nodes.primary_now(slot).as_ref() == Some(address));
        let (address, mut connection) = match held {
            Some(held) => held,
            None => {
                let address = self.nodes.primary(slot).await;
                let made = self.nodes.connect(&address, Need::Other).await?;
                (address, made)
            }
        };
        let mut questions = redis::pipe();
        for proof in waiters.iter().flat_map(|waiter| &waiter.proofs) {
            let record = format!("{base}:job:{}", proof.id.bare());
            questions.cmd("HGET").arg(record).arg(proof.field);
        }
        questions.cmd("EVAL").arg(NO_OP).arg(1);
        questions.arg(format!("{base}:confirmed")).ignore();
        // The server's answer must still find us waiting.
        let left = limit.saturating_sub(started.elapsed()) * 4 / 5;
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        questions.cmd("WAIT").arg(self.replicas).arg(left_ms);
        let answers = questions.query_async(&mut connection).await;
        let mut answers: Vec<Value> =
            answers.inspect_err(|error| self.nodes.met(&address, classify(error)))?;
        let enough = match answers.pop() {
            Some(Value::Int(count)) => count,
            _ => 0,
        };
        Ok((answers, enough, (address, connection)))
    }

    fn short(&self, why: &str, limit: Duration) -> Confirmed {
        let (wanted, ms) = (self.replicas, limit.as_millis());
        let replicas = if wanted == 1 { "replica" } else { "replicas" };
        Confirmed::Short(format!("{wanted} {replicas} wanted within {ms} ms: {why}"))
    }
}

/// Ends of jobs that were confirmed. An end never changes, and replicas do not give it back.
#[derive(Default)]
struct Known(Mutex<Generations>);

/// Who was added last, and those before them; the older ones are forgotten together.
#[derive(Default)]
struct Generations {
    young: HashMap<JobId, String>,
    old: HashMap<JobId, String>,
}

impl Known {
    fn has(&self, proof: &Proof) -> bool {
        let (Proof { id, field, value }, known) = (proof, lock(&self.0));
        let at = known.young.get(id).or_else(|| known.old.get(id));
        // A job that was requeued ends again, at another time.
        *field == "ended_at" && value.is_some() && value.as_ref() == at
    }

    fn add(&self, proofs: Vec<Proof>) {
        let mut known = lock(&self.0);
        for proof in proofs {
            let ("ended_at", Some(at)) = (proof.field, proof.value) else {
                continue;
            };
            if known.young.len() >= KNOWN_MAX {
                known.old = std::mem::take(&mut known.young);
            }
            known.young.insert(proof.id, at);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
