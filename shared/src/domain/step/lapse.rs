//! lua/lib/lapse.lua: what happens to jobs whose time is over.

use super::{Record, Turn};
use crate::domain::{DeadReason, State as JobState};

impl Turn {
    /// Scheduled jobs that are due go to their lines.
    pub(super) fn promote(&mut self, limit: u64) -> u64 {
        let rows = self.state.sets.due.up_to(self.at.now, limit);
        for (id, _) in &rows {
            self.state.leave(id);
            self.state.record(id).state = JobState::Queued;
            self.state.ready(id);
        }
        rows.len() as u64
    }

    /// Whether the job is one lost lease short of poison.
    pub(super) fn is_suspect(&self, record: &Record) -> bool {
        let most = self.settings.max_lost_leases;
        most > 1 && record.blame >= most - 1
    }

    /// The worker of this job has its suspect no longer.
    pub(super) fn clear_suspect(&mut self, id: &str) {
        let record = &self.state.jobs[id];
        if self.is_suspect(record) {
            let worker = record.worker.clone();
            self.state.suspects.drop(&worker);
        }
    }

    /// Leases that are not live end.
    pub(super) fn lapse_leases(&mut self, limit: u64) -> u64 {
        let rows = self.state.sets.leases.up_to(self.at.lapsed, limit);
        for (id, expiry) in &rows {
            self.lapse_lease(id, *expiry);
        }
        self.state.counters.lapsed += rows.len() as u64;
        rows.len() as u64
    }

    fn lapse_lease(&mut self, id: &str, expiry: u64) {
        let now = self.at.now;
        let suspect = self.is_suspect(&self.state.jobs[id]);
        let worker = self.state.jobs[id].worker.clone();
        let shielded = self.state.suspects.score(&worker).unwrap_or(0) > now;
        let store_was_away = expiry > self.at.grace_from && expiry <= self.at.grace_until;
        self.state.close_delivery(id, now, "lost");
        let record = self.state.record(id);
        record.lost += 1;
        if !store_was_away && (suspect || !shielded) {
            record.blame += 1;
        }
        let (blame, cancel) = (record.blame, record.cancel);
        if suspect {
            let until = now + self.settings.lease_ms;
            self.state.suspects.put(&worker, until);
        }
        if cancel {
            self.state.record(id).code = "cancelled".into();
            self.finish(id, JobState::Cancelled, None);
        } else if blame >= self.settings.max_lost_leases {
            self.state.record(id).code = "poison".into();
            self.finish(id, JobState::Failed, Some(DeadReason::Poison));
            self.state.counters.poisoned += 1;
        } else {
            self.state.leave(id);
            let record = self.state.record(id);
            record.owner.clear();
            record.state = JobState::Queued;
            self.state.ready(id);
        }
    }

    /// A job whose deadline has come: expired where it waited, a dead letter where it ran.
    pub(super) fn end_overdue(&mut self, id: &str) {
        let cancel = self.state.jobs[id].cancel;
        let code = if cancel {
            "cancelled"
        } else {
            "deadline_exceeded"
        };
        self.state.record(id).code = code.into();
        if self.state.jobs[id].state != JobState::Running {
            return self.finish(id, JobState::Expired, None);
        }
        let ended = if cancel { "cancelled" } else { "deadline" };
        self.state.close_delivery(id, self.at.now, ended);
        self.clear_suspect(id);
        if cancel {
            self.finish(id, JobState::Cancelled, None);
        } else {
            self.finish(id, JobState::Failed, Some(DeadReason::Deadline));
        }
    }

    /// Jobs whose deadline has come end.
    pub(super) fn lapse_deadlines(&mut self, limit: u64) -> u64 {
        let rows = self.state.sets.deadlines.up_to(self.at.now, limit);
        for (id, _) in &rows {
            self.end_overdue(id);
        }
        rows.len() as u64
    }
}
