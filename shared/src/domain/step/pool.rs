//! lua/apply.lua, lua/pause.lua and lua/beat.lua: the pool itself and those who serve it.

use super::{Settings, State, Turn};
use crate::protocol::{Apply, ApplyReply, Beat, Pause};

impl State {
    /// Settings, by a version that only rises.
    pub(super) fn apply(&mut self, step: &Apply) -> ApplyReply {
        let def = serde_json::to_string(&step.config).expect("settings always serialise");
        let earlier = self.settings.clone().unwrap_or_default();
        if earlier.def == def {
            return ApplyReply::Unchanged(earlier.version);
        }
        let c = &step.config;
        let version = earlier.version + 1;
        self.settings = Some(Settings {
            def,
            version,
            paused: earlier.paused,
            draining: earlier.draining,
            slots: u64::from(c.slots),
            max_queued: c.max_queued,
            max_queued_bytes: c.max_queued_bytes,
            lease_ms: c.lease_ms,
            renew_ms: c.renew_ms,
            max_lost_leases: u64::from(c.max_lost_leases),
            result_retention_ms: c.result_retention_ms,
            record_retention_ms: c.record_retention_ms,
            idempotency_ms: c.idempotency_ms,
            max_dead_letters: c.max_dead_letters,
            dead_letter_retention_ms: c.dead_letter_retention_ms,
            demand_horizon_ms: c.demand_horizon_ms,
        });
        self.marker = true;
        ApplyReply::Applied(version)
    }
}

impl Turn {
    pub(super) fn pause(&mut self, step: &Pause) {
        if let Some(settings) = &mut self.state.settings {
            settings.paused = step.paused.unwrap_or(settings.paused);
            settings.draining = step.draining.unwrap_or(settings.draining);
        }
        self.state.marker = true;
    }

    /// A worker is forgotten one lease after its last word.
    pub(super) fn beat(&mut self, step: &Beat) {
        self.keep_time();
        let worker = step.worker.as_str();
        if step.gone {
            self.state.workers.drop(worker);
        } else {
            let until = self.at.now + self.settings.lease_ms;
            self.state.workers.put(worker, until);
        }
    }
}
