//! A configuration: what exists, what may go wrong and how often.
//!
//! Everything is bounded, or the space would not be finite: attempts and lost leases by the pool's own bounds, faults by a
//! budget for each kind, time by a number of ticks. A fault of the protocol known to the field needs two workers, one job and
//! one or two faults in a certain order; the budgets are that and one more where the space allows it.

use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::Verdict;

use super::broken::Variant;

/// One tick of time, in ms. As long as the shortest grace, so that all times are whole ticks.
pub(super) const TICK_MS: u64 = 1_000;
/// A lease, in ticks: a silence as long as the lease is a gap, one tick of silence is none.
pub(super) const LEASE_TICKS: u8 = 2;
/// How long a command may be on its way, in ms: a fraction of a tick, so it is late from the next tick on.
pub(super) const PATIENCE_MS: u64 = TICK_MS / 2;

/// What is counted down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Ticks of time.
    pub(super) ticks: u8,
    /// Owners minted.
    pub(super) owners: u8,
    /// Replies lost after the step ran.
    pub(super) losses: u8,
    /// Commands delayed or duplicated, each with a copy in flight that arrives at any later time or never.
    pub(super) copies: u8,
    /// Workers that crash.
    pub(super) crashes: u8,
    /// Workers that are frozen.
    pub(super) freezes: u8,
    /// Steps back of the server's clock, of two ticks each.
    pub(super) backs: u8,
    /// Jumps ahead of it, of three ticks each.
    pub(super) aheads: u8,
    /// Failovers to the replica.
    pub(super) failovers: u8,
    /// Cancels sent.
    pub(super) cancels: u8,
    /// Requeues sent.
    pub(super) requeues: u8,
    /// Submits sent.
    pub(super) submits: u8,
    /// Stream pieces sent.
    pub(super) appends: u8,
}

/// A configuration of the model.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Its name in what is printed.
    pub(super) name: &'static str,
    /// Jobs, one or two.
    pub(super) jobs: usize,
    /// They are in the pool from the start; else they come by submits.
    pub(super) preloaded: bool,
    /// Both submits carry one idempotency key.
    pub(super) one_key: bool,
    /// First delay of the second job, in ticks.
    pub(super) delay_ticks: u64,
    /// Deadline of the jobs, in ticks from acceptance; 0 for none.
    pub(super) deadline_ticks: u64,
    /// Calls that count before a job is a dead letter.
    pub(super) max_attempts: u32,
    /// Deliveries that a worker has room for.
    pub(super) room: usize,
    /// Workers.
    pub(super) workers: usize,
    /// What calls may end in.
    pub(super) verdicts: &'static [Verdict],
    /// Workers take the next job in the same trip as they settle.
    pub(super) next: bool,
    /// Workers renew.
    pub(super) renews: bool,
    /// Terminals and acceptances are shown only once the replica has them.
    pub(super) wait: bool,
    /// Whether calls that overlap are looked at: only where no fault makes that inherent.
    pub(super) calls: bool,
    /// Whether each state is checked to drain once faults stop, and within how many ticks.
    pub(super) drains_in: Option<u8>,
    /// How much may happen.
    pub(super) budget: Budget,
    /// What the pool is.
    pub(super) pool: PoolConfig,
    /// The protocol, or one way to break it.
    pub(super) variant: Variant,
}

impl Setup {
    /// One job, two workers, one slot, nothing that goes wrong.
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            jobs: 1,
            preloaded: true,
            one_key: false,
            delay_ticks: 0,
            deadline_ticks: 0,
            max_attempts: 2,
            room: 1,
            workers: 2,
            verdicts: &[Verdict::Succeed],
            next: false,
            renews: false,
            wait: false,
            calls: false,
            drains_in: None,
            budget: Budget::default(),
            pool: PoolConfig {
                slots: 1,
                lease_ms: u64::from(LEASE_TICKS) * TICK_MS,
                renew_ms: TICK_MS,
                max_lost_leases: 9,
                ..PoolConfig::default()
            },
            variant: Variant::None,
        }
    }

    /// The same with one thing broken.
    pub(super) fn with(mut self, variant: Variant) -> Self {
        self.variant = variant;
        self
    }
}
