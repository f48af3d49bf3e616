//! What Prometheus scrapes. Counters and histograms are this process's own; gauges mirror the store and are set from a
//! snapshot at each scrape.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use super::labels::{
    Allowed, ErrorClass, Pool, PoolClass, PoolClassKind, PoolClassOutcome, PoolClassState,
    PoolDirection, PoolReason, PoolStep, Step, Version,
};
use super::names::metric;

mod gauges;

pub use gauges::{ClassGauges, PoolGauges};

pub use super::labels::{Direction, OTHER, Outcome, SlotKind, State};

/// Content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets of a job's waiting and running, in seconds: from an idle pick-up to hours behind a full
/// pool.
pub const JOB_BUCKETS_SECONDS: [f64; 19] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1800.0, 3600.0, 7200.0,
];

/// Upper bounds of the buckets of a step at the store, in seconds: from one round trip on a socket to a command's
/// deadline.
pub const STEP_BUCKETS_SECONDS: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;
type FloatGauge = Gauge<f64, AtomicU64>;

fn job_histogram() -> Histogram {
    Histogram::new(JOB_BUCKETS_SECONDS)
}

fn step_histogram() -> Histogram {
    Histogram::new(STEP_BUCKETS_SECONDS)
}

/// Every metric of a process, under the names of [`metric`].
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    allowed: Allowed,
    /// Held over a whole scrape: two of them at once must not see each other's half-set gauges.
    scrape: Mutex<()>,
    submitted: Family<PoolClass, Counter>,
    finished: Family<PoolClassOutcome, Counter>,
    refusals: Family<PoolReason, Counter>,
    queue_jobs: Family<PoolClassState, Gauge>,
    demand_jobs: Family<Pool, Gauge>,
    oldest_age: Family<PoolClass, FloatGauge>,
    slots: Family<PoolClassKind, Gauge>,
    held_tokens: Family<Pool, Gauge>,
    job_wait: Histograms<PoolClass>,
    job_run: Histograms<PoolClass>,
    lease_expirations: Family<Pool, Counter>,
    stale_writes: Family<PoolStep, Counter>,
    store_step: Histograms<Step>,
    gate_open: Family<PoolReason, Gauge>,
    used_tokens: Family<PoolDirection, Counter>,
    dead_letters_evicted: Family<Pool, Counter>,
    poisoned_jobs: Family<Pool, Counter>,
    store_epochs: Family<Pool, Counter>,
    store_errors: Family<ErrorClass, Counter>,
}

/// Registers a metric; the library itself writes `_total` behind the name of a counter.
fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(
        name.strip_suffix("_total").unwrap_or(name),
        help,
        metric.clone(),
    );
    metric
}

impl Metrics {
    /// All metrics, empty; `version` is the program's own.
    pub fn new(version: &'static str) -> Self {
        let mut r = Registry::default();
        let job: fn() -> Histogram = job_histogram;
        let step: fn() -> Histogram = step_histogram;
        let info = add(
            &mut r,
            metric::BUILD_INFO,
            "Version of the program, always 1",
            Family::<Version, Gauge>::default(),
        );
        info.get_or_create(&Version { version }).set(1);
        Self {
            submitted: add(
                &mut r,
                metric::JOBS_SUBMITTED,
                "Jobs accepted",
                Family::default(),
            ),
            finished: add(
                &mut r,
                metric::JOBS_FINISHED,
                "Jobs that reached a terminal",
                Family::default(),
            ),
            refusals: add(
                &mut r,
                metric::ADMISSION_REFUSALS,
                "Submits refused",
                Family::default(),
            ),
            queue_jobs: add(
                &mut r,
                metric::QUEUE_JOBS,
                "Jobs by state",
                Family::default(),
            ),
            demand_jobs: add(
                &mut r,
                metric::POOL_DEMAND_JOBS,
                "Jobs owed that count for scaling",
                Family::default(),
            ),
            oldest_age: add(
                &mut r,
                metric::QUEUE_OLDEST_AGE_SECONDS,
                "Age of the oldest waiting job",
                Family::default(),
            ),
            slots: add(
                &mut r,
                metric::SLOTS,
                "Slots used and their limit",
                Family::default(),
            ),
            held_tokens: add(
                &mut r,
                metric::HELD_TOKENS,
                "Tokens set aside for running jobs",
                Family::default(),
            ),
            job_wait: add(
                &mut r,
                metric::JOB_WAIT_SECONDS,
                "From due to claimed",
                Family::new_with_constructor(job),
            ),
            job_run: add(
                &mut r,
                metric::JOB_RUN_SECONDS,
                "From claimed to settled",
                Family::new_with_constructor(job),
            ),
            lease_expirations: add(
                &mut r,
                metric::LEASE_EXPIRATIONS,
                "Leases that lapsed",
                Family::default(),
            ),
            stale_writes: add(
                &mut r,
                metric::STALE_WRITES,
                "Writes refused to a delivery no longer current",
                Family::default(),
            ),
            store_step: add(
                &mut r,
                metric::STORE_STEP_SECONDS,
                "Time of one step at the store",
                Family::new_with_constructor(step),
            ),
            gate_open: add(
                &mut r,
                metric::GATE_OPEN,
                "Whether claims go on",
                Family::default(),
            ),
            used_tokens: add(&mut r, metric::TOKENS, "Tokens used", Family::default()),
            dead_letters_evicted: add(
                &mut r,
                metric::DEAD_LETTERS_EVICTED,
                "Dead letters given up at the bound",
                Family::default(),
            ),
            poisoned_jobs: add(
                &mut r,
                metric::POISONED_JOBS,
                "Jobs dead of lost leases",
                Family::default(),
            ),
            store_epochs: add(
                &mut r,
                metric::STORE_EPOCHS,
                "Servers of the store found restarted or replaced",
                Family::default(),
            ),
            store_errors: add(
                &mut r,
                metric::STORE_ERRORS,
                "Failed commands of the store",
                Family::default(),
            ),
            registry: r,
            allowed: Allowed::default(),
            scrape: Mutex::new(()),
        }
    }

    /// Makes a pool and its classes values of labels; what is not allowed is counted under `other`. Called with the
    /// names out of the settings, again whenever they change.
    pub fn allow<'a>(&self, pool: &str, classes: impl IntoIterator<Item = &'a str>) {
        self.allowed.allow(pool, classes);
    }

    /// A job was accepted.
    pub fn submitted(&self, pool: &str, class: &str) {
        self.submitted
            .get_or_create(&self.allowed.class(pool, class))
            .inc();
    }

    /// A job reached its terminal.
    pub fn finished(&self, pool: &str, class: &str, outcome: Outcome) {
        let PoolClass { pool, class } = self.allowed.class(pool, class);
        self.finished
            .get_or_create(&PoolClassOutcome {
                pool,
                class,
                outcome,
            })
            .inc();
    }

    /// A submit was refused; `reason` is the refusal's code.
    pub fn refused(&self, pool: &str, reason: &'static str) {
        self.refusals
            .get_or_create(&PoolReason {
                pool: self.allowed.pool(pool),
                reason,
            })
            .inc();
    }

    /// How long a job waited from being due to its claim.
    pub fn observe_wait(&self, pool: &str, class: &str, wait: Duration) {
        self.job_wait
            .get_or_create(&self.allowed.class(pool, class))
            .observe(wait.as_secs_f64());
    }

    /// How long a delivery took from its claim to its settlement.
    pub fn observe_run(&self, pool: &str, class: &str, run: Duration) {
        self.job_run
            .get_or_create(&self.allowed.class(pool, class))
            .observe(run.as_secs_f64());
    }

    /// So many leases lapsed.
    pub fn leases_expired(&self, pool: &str, count: u64) {
        self.lease_expirations
            .get_or_create(&self.pool(pool))
            .inc_by(count);
    }

    /// The store refused a write of a delivery that was no longer current.
    pub fn stale_write(&self, pool: &str, step: &'static str) {
        self.stale_writes
            .get_or_create(&PoolStep {
                pool: self.allowed.pool(pool),
                step,
            })
            .inc();
    }

    /// How long a step took at the store, answer included.
    pub fn observe_step(&self, step: &'static str, took: Duration) {
        self.store_step
            .get_or_create(&Step { step })
            .observe(took.as_secs_f64());
    }

    /// Tokens a settled delivery used.
    pub fn tokens_used(&self, pool: &str, input_tokens: u64, output_tokens: u64) {
        for (direction, count) in [
            (Direction::Input, input_tokens),
            (Direction::Output, output_tokens),
        ] {
            self.used_tokens
                .get_or_create(&PoolDirection {
                    pool: self.allowed.pool(pool),
                    direction,
                })
                .inc_by(count);
        }
    }

    /// So many dead letters were given up because there were too many.
    pub fn dead_letters_evicted(&self, pool: &str, count: u64) {
        self.dead_letters_evicted
            .get_or_create(&self.pool(pool))
            .inc_by(count);
    }

    /// So many jobs died because their leases kept being lost.
    pub fn poisoned(&self, pool: &str, count: u64) {
        self.poisoned_jobs
            .get_or_create(&self.pool(pool))
            .inc_by(count);
    }

    /// The pool's server was found restarted or replaced so many times.
    pub fn store_epochs(&self, pool: &str, count: u64) {
        self.store_epochs
            .get_or_create(&self.pool(pool))
            .inc_by(count);
    }

    /// A command of the store failed; `class` says what kind of failure.
    pub fn store_error(&self, class: &'static str) {
        self.store_errors.get_or_create(&ErrorClass { class }).inc();
    }

    /// One scrape: the gauges of a snapshot, or none of them when the store could not say, and everything else, in the
    /// text form of [`CONTENT_TYPE`].
    pub fn scrape(&self, pools: Option<&BTreeMap<String, PoolGauges>>) -> String {
        let _one_at_a_time = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        match pools {
            Some(pools) => self.set_gauges(pools),
            None => self.clear_gauges(),
        }
        self.encode()
    }

    /// Everything as it stands, in the text form of [`CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a string cannot fail");
        text
    }

    fn pool(&self, pool: &str) -> Pool {
        Pool {
            pool: self.allowed.pool(pool),
        }
    }
}

#[cfg(test)]
mod tests;
