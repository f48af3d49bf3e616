//! lua/expire.lua: the reaper's pass.

use super::Turn;
use crate::protocol::{Expire, ExpireReply};

impl Turn {
    pub(super) fn expire(&mut self, step: &Expire) -> ExpireReply {
        let limit = u64::from(step.limit);
        let now = self.at.now;
        let began = self.meet_lineage(&step.lineage);
        self.keep_time();
        let promoted = self.promote(limit);
        let overdue = self.lapse_deadlines(limit);
        let lapsed = self.lapse_leases(limit);
        let (bodies, records) = self.drop_ended(limit);
        let letters = self.drop_letters(limit);
        self.state.suspects.drop_up_to(now);
        self.state.spent.drop_up_to(now.saturating_sub(1));
        self.state.workers.drop_up_to(now);
        let sets = &self.state.sets;
        if !self.settings.paused && sets.leases.len() < self.settings.slots && sets.any_ready() {
            self.state.marker = true;
        }
        let most = [promoted, overdue, lapsed, bodies + records, letters];
        ExpireReply {
            promoted,
            lapsed,
            overdue,
            bodies,
            records,
            letters,
            epoch: self.state.epoch.number,
            began,
            lost_from_ms: self.state.epoch.lost_from,
            more: most.into_iter().any(|moved| moved >= limit),
        }
    }

    /// Of ended jobs first the bodies go, then the record.
    fn drop_ended(&mut self, limit: u64) -> (u64, u64) {
        let (mut bodies, mut records) = (0, 0);
        let record_ms = self.settings.record_retention_ms;
        for (id, _) in self.state.sets.ended.up_to(self.at.now, limit) {
            let record = self.state.record(&id);
            if record.result_expired || record_ms == 0 {
                self.state.forget(&id);
                records += 1;
                continue;
            }
            record.result_expired = true;
            record.envelope = None;
            record.result = None;
            record.events.clear();
            record.envelope_until_raw_ms = None;
            record.result_until_raw_ms = None;
            record.events_until_raw_ms = None;
            self.state.sets.ended.put(&id, self.at.now + record_ms);
            bodies += 1;
        }
        (bodies, records)
    }

    fn drop_letters(&mut self, limit: u64) -> u64 {
        let oldest = self
            .at
            .now
            .saturating_sub(self.settings.dead_letter_retention_ms);
        let rows = self.state.sets.dead.up_to(oldest, limit);
        for (id, _) in &rows {
            self.state.forget(id);
        }
        rows.len() as u64
    }
}
