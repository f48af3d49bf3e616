//! Everything a pool keeps, each piece under the name of its key.

use std::collections::{BTreeMap, BTreeSet};

use super::Scored;
use crate::domain::{DeadReason, State as JobState};

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// `pool`; none before the first apply.
    pub settings: Option<Settings>,
    /// Of `state`: the clock's part.
    pub clock: Clock,
    /// Of `state`: the rest.
    pub counters: Counters,
    /// Of `state`: which server's history this is.
    pub epoch: Epoch,
    /// `job:<id>`, with what lives with it.
    pub jobs: BTreeMap<String, Record>,
    /// The sets that jobs are in.
    pub sets: Sets,
    /// `owners`: the job of each live owner.
    pub owners: BTreeMap<String, String>,
    /// `spent`: owners that had a delivery, by until when a copy of their claim may still run.
    pub spent: Scored,
    /// `suspects`: until when a worker has its suspect.
    pub suspects: Scored,
    /// `workers`: until when a worker counts as here.
    pub workers: Scored,
    /// `idempotency:<digest>`.
    pub idempotency: BTreeMap<String, Remembered>,
    /// `marker`: one waiting worker is to be woken.
    pub marker: bool,
}

/// What the steps read of a pool's definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are those of PoolConfig")]
pub struct Settings {
    /// The definition as it was applied.
    pub def: String,
    pub version: u64,
    pub paused: bool,
    pub draining: bool,
    pub slots: u64,
    pub max_queued: u64,
    pub max_queued_bytes: u64,
    pub lease_ms: u64,
    pub renew_ms: u64,
    pub max_lost_leases: u64,
    pub result_retention_ms: u64,
    pub record_retention_ms: u64,
    pub idempotency_ms: u64,
    pub max_dead_letters: u64,
    pub dead_letter_retention_ms: u64,
    pub demand_horizon_ms: u64,
}

/// The pool's clock, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clock {
    /// The last time that a step acted at; 0 before the first.
    pub last: u64,
    /// Added to the server's time; takes up its steps back.
    pub skew: i64,
    /// Where the last gap without a step began.
    pub grace_from: u64,
    /// Until when leases that were live then may be renewed.
    pub grace_until: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Jobs ever put in line.
    pub seq: u64,
    /// Of jobs owed.
    pub bytes: u64,
    /// The last completion.
    pub done_at: u64,
    /// Moving average of the time between completions.
    pub gap_ms: u64,
    /// Samples in it, at most 8.
    pub gaps: u64,
    /// Dead letters dropped to make room.
    pub evicted: u64,
    /// Jobs found to be poison.
    pub poisoned: u64,
    /// Leases lapsed.
    pub lapsed: u64,
}

/// Which server's history this is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// How often the server was found restarted or replaced.
    pub number: u64,
    /// Name of its history; empty before the first pass.
    pub lineage: String,
    /// Name of the one before.
    pub lineage_before: String,
    /// The last pass that knew the lineage.
    pub passed_at: u64,
    /// The last pass under the lineage before.
    pub lost_from: u64,
}

/// The sets that jobs are in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sets {
    /// Every record, by acceptance.
    pub jobs: Scored,
    /// Each tenant's records, by acceptance.
    pub tenants: BTreeMap<String, Scored>,
    /// Waiting jobs by priority, by order.
    pub ready: BTreeMap<u8, Scored>,
    /// Priorities that may have waiting jobs; an empty one goes when a claim meets it.
    pub levels: BTreeSet<u8>,
    /// Scheduled jobs by due time.
    pub due: Scored,
    /// Running jobs by the end of the lease.
    pub leases: Scored,
    /// Jobs owed that have a deadline.
    pub deadlines: Scored,
    /// Dead letters by the time of death.
    pub dead: Scored,
    /// Other ended jobs by the end of their retention.
    pub ended: Scored,
}

impl Sets {
    /// Everything not terminal.
    pub fn owed(&self) -> u64 {
        self.jobs.len() - self.ended.len() - self.dead.len()
    }

    /// Whether a job waits.
    pub fn any_ready(&self) -> bool {
        self.levels
            .iter()
            .any(|level| self.ready.get(level).is_some_and(|line| !line.is_empty()))
    }
}

/// A record of the idempotency of submits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remembered {
    /// The job that was accepted.
    pub id: String,
    /// Digest of its request.
    pub body_hash: String,
    /// A TTL: it follows the server's clock, not the pool's.
    pub until_raw_ms: u64,
}

/// A delivery in a job's history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handing {
    /// Who had it.
    pub worker: String,
    /// From when.
    pub claimed_at: u64,
    /// Until when, and how it ended.
    pub ended: Option<(u64, &'static str)>,
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Of the delivery.
    pub fence: u64,
    /// Number within the delivery.
    pub n: u64,
    /// As published.
    pub data: Vec<u8>,
}

/// A job's record, its request, its result and its stream. Zero and empty stand for a field that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "the fields are the record's; see lua/lib/job.lua"
)]
pub struct Record {
    pub state: JobState,
    pub tenant: String,
    pub class: String,
    pub model: String,
    pub priority: u8,
    pub seq: u64,
    /// Of a requeued job; else `seq` counts.
    pub order: u64,
    pub bytes: u64,
    pub created_at: u64,
    pub started_at: u64,
    pub ended_at: u64,
    pub due_at: u64,
    pub deadline_at: u64,
    pub timeout_ms: u64,
    pub fence: u64,
    pub owner: String,
    pub worker: String,
    pub claimed_at: u64,
    pub attempts: u64,
    pub max_attempts: u64,
    pub lost: u64,
    /// Lost leases that may be the job's own fault.
    pub blame: u64,
    pub stops: u64,
    pub cancel: bool,
    pub follow: bool,
    pub backoff: bool,
    pub progress: u64,
    pub code: String,
    pub error: String,
    pub dead: Option<DeadReason>,
    pub settled_by: String,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub estimated: bool,
    pub content_type: String,
    pub result_expired: bool,
    pub requeued_by: String,
    pub requeued_at: u64,
    pub lives: u64,
    pub events_bytes: u64,
    pub deliveries: BTreeMap<u64, Handing>,
    pub envelope: Option<Vec<u8>>,
    pub result: Option<Vec<u8>>,
    pub events: Vec<Piece>,
    /// TTLs, by the server's clock.
    pub record_until_raw_ms: Option<u64>,
    pub envelope_until_raw_ms: Option<u64>,
    pub result_until_raw_ms: Option<u64>,
    pub events_until_raw_ms: Option<u64>,
}

impl Record {
    /// A record with nothing in it.
    pub(super) fn blank() -> Self {
        Self {
            state: JobState::Queued,
            tenant: String::new(),
            class: String::new(),
            model: String::new(),
            priority: 0,
            seq: 0,
            order: 0,
            bytes: 0,
            created_at: 0,
            started_at: 0,
            ended_at: 0,
            due_at: 0,
            deadline_at: 0,
            timeout_ms: 0,
            fence: 0,
            owner: String::new(),
            worker: String::new(),
            claimed_at: 0,
            attempts: 0,
            max_attempts: 0,
            lost: 0,
            blame: 0,
            stops: 0,
            cancel: false,
            follow: false,
            backoff: false,
            progress: 0,
            code: String::new(),
            error: String::new(),
            dead: None,
            settled_by: String::new(),
            input_tokens: None,
            output_tokens: None,
            estimated: false,
            content_type: String::new(),
            result_expired: false,
            requeued_by: String::new(),
            requeued_at: 0,
            lives: 0,
            events_bytes: 0,
            deliveries: BTreeMap::new(),
            envelope: None,
            result: None,
            events: Vec::new(),
            record_until_raw_ms: None,
            envelope_until_raw_ms: None,
            result_until_raw_ms: None,
            events_until_raw_ms: None,
        }
    }

    /// The job's place in its line.
    pub fn place(&self) -> u64 {
        if self.order == 0 {
            self.seq
        } else {
            self.order
        }
    }
}
