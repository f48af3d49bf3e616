//! Gauges: what a snapshot of the store says, mirrored.

use std::collections::BTreeMap;

use super::super::labels::{
    Name, PoolClass, PoolClassKind, PoolClassState, PoolReason, SlotKind, State,
};
use super::Metrics;

/// What a snapshot of the store says of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolGauges {
    /// Figures by class; names out of the pool's settings, `default` where it defines none.
    pub classes: BTreeMap<String, ClassGauges>,
    /// Every class of the pool: labels of counters, also where the figures are of the pool as a whole.
    pub class_names: Vec<String>,
    /// Everything owed that counts for scaling.
    pub demand_jobs: u64,
    /// Tokens set aside.
    pub held_tokens: u64,
    /// Whether claims go on, by reason; a reason is a word of this program, such as `paused`.
    pub gates: Vec<(&'static str, bool)>,
}

/// What a snapshot of the store says of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassGauges {
    /// Jobs that wait for a slot.
    pub queued: u64,
    /// Jobs that wait for their time.
    pub scheduled: u64,
    /// Jobs with a worker.
    pub running: u64,
    /// Dead letters.
    pub dead: u64,
    /// Age of the oldest waiting job, in seconds; 0: none waits.
    pub oldest_age_seconds: f64,
    /// Slots taken.
    pub slots_used: u64,
    /// Most slots the class may take.
    pub slots_limit: u64,
}

impl Metrics {
    /// Sets a pool's gauges to a snapshot's figures and allows its names as labels. Figures of classes that are gone
    /// stay: [`Metrics::set_gauges`] sets all pools and drops what is gone.
    pub fn set_pool_gauges(&self, pool: &str, gauges: &PoolGauges) {
        let names = gauges.classes.keys().chain(&gauges.class_names);
        self.allow(pool, names.map(String::as_str));
        // Beyond the bounds of labels several classes share `other`: their figures add up.
        let mut sums: BTreeMap<PoolClass, ClassGauges> = BTreeMap::new();
        for (class, figures) in &gauges.classes {
            sums.entry(self.allowed.class(pool, class))
                .or_default()
                .add(figures);
        }
        let label = self.pool(pool);
        self.demand_jobs
            .get_or_create(&label)
            .set(int(gauges.demand_jobs));
        self.held_tokens
            .get_or_create(&label)
            .set(int(gauges.held_tokens));
        for (reason, open) in &gauges.gates {
            let label = PoolReason {
                pool: label.pool.clone(),
                reason,
            };
            self.gate_open.get_or_create(&label).set(i64::from(*open));
        }
        for (PoolClass { pool, class }, figures) in sums {
            self.set_class_gauges(&pool, &class, &figures);
        }
    }

    fn set_class_gauges(&self, pool: &Name, class: &Name, figures: &ClassGauges) {
        let states = [
            (State::Queued, figures.queued),
            (State::Scheduled, figures.scheduled),
            (State::Running, figures.running),
            (State::Dead, figures.dead),
        ];
        for (state, count) in states {
            let label = PoolClassState {
                pool: pool.clone(),
                class: class.clone(),
                state,
            };
            self.queue_jobs.get_or_create(&label).set(int(count));
        }
        for (kind, count) in [
            (SlotKind::Used, figures.slots_used),
            (SlotKind::Limit, figures.slots_limit),
        ] {
            let label = PoolClassKind {
                pool: pool.clone(),
                class: class.clone(),
                kind,
            };
            self.slots.get_or_create(&label).set(int(count));
        }
        let label = PoolClass {
            pool: pool.clone(),
            class: class.clone(),
        };
        self.oldest_age
            .get_or_create(&label)
            .set(figures.oldest_age_seconds);
    }

    /// Takes every gauge away: before those of a new snapshot are set, and when the store cannot say. A figure that is
    /// not known is absent, never the last one that was.
    pub fn clear_gauges(&self) {
        self.queue_jobs.clear();
        self.demand_jobs.clear();
        self.oldest_age.clear();
        self.slots.clear();
        self.held_tokens.clear();
        self.gate_open.clear();
    }

    /// Sets the gauges of every pool to a snapshot's figures: pools that are gone go with them.
    pub fn set_gauges(&self, pools: &BTreeMap<String, PoolGauges>) {
        self.clear_gauges();
        for known in self.allowed.pools() {
            if !pools.contains_key(known.as_str()) {
                self.allowed.forget(known.as_str());
            }
        }
        for (pool, gauges) in pools {
            self.set_pool_gauges(pool, gauges);
        }
    }
}

impl ClassGauges {
    fn add(&mut self, other: &Self) {
        self.queued = self.queued.saturating_add(other.queued);
        self.scheduled = self.scheduled.saturating_add(other.scheduled);
        self.running = self.running.saturating_add(other.running);
        self.dead = self.dead.saturating_add(other.dead);
        self.oldest_age_seconds = self.oldest_age_seconds.max(other.oldest_age_seconds);
        self.slots_used = self.slots_used.saturating_add(other.slots_used);
        self.slots_limit = self.slots_limit.saturating_add(other.slots_limit);
    }
}

/// A gauge is signed; no figure here comes near the end of it.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
