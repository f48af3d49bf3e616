//! lua/lib/job.lua: where a job is kept, and the moves between those places.

use super::{Handing, Record, State, Turn};
use crate::domain::{DeadReason, State as JobState};

/// Deliveries kept in the record.
pub const HISTORY: u64 = 20;
/// Added to each TTL: the reaper removes index and record together, a TTL only what it missed.
pub const BACKSTOP_MS: u64 = 604_800_000;
/// A stream stays readable so long after the terminal.
pub const EVENTS_KEPT_MS: u64 = 600_000;
/// Dead letters dropped by one step.
const EVICTED_AT_ONCE: u64 = 100;

impl State {
    /// The record of a job that a set has.
    pub(super) fn record(&mut self, id: &str) -> &mut Record {
        self.jobs
            .get_mut(id)
            .expect("a member of a set has a record: both go together")
    }

    /// Removes the job and everything that lives with it.
    pub(super) fn forget(&mut self, id: &str) {
        let tenant = self.jobs.remove(id).map(|record| record.tenant);
        self.sets.jobs.drop(id);
        if let Some(tenant) = tenant
            && let Some(index) = self.sets.tenants.get_mut(&tenant)
        {
            index.drop(id);
            if index.is_empty() {
                self.sets.tenants.remove(&tenant);
            }
        }
        self.sets.ended.drop(id);
        self.sets.dead.drop(id);
        self.sets.deadlines.drop(id);
    }

    /// Puts the job in its line.
    pub(super) fn ready(&mut self, id: &str) {
        let record = self.record(id);
        let (priority, place) = (record.priority, record.place());
        self.sets.ready.entry(priority).or_default().put(id, place);
        self.sets.levels.insert(priority);
    }

    /// Takes the job out of the place it is kept in.
    pub(super) fn leave(&mut self, id: &str) {
        let record = self.record(id);
        let (state, priority, owner) = (record.state, record.priority, record.owner.clone());
        match state {
            JobState::Queued => {
                if let Some(line) = self.sets.ready.get_mut(&priority) {
                    line.drop(id);
                    if line.is_empty() {
                        self.sets.ready.remove(&priority);
                    }
                }
            }
            JobState::Scheduled => {
                self.sets.due.drop(id);
            }
            JobState::Running => {
                self.sets.leases.drop(id);
                self.owners.remove(&owner);
            }
            _ => {}
        }
    }

    /// The delivery that runs ended now.
    pub(super) fn close_delivery(&mut self, id: &str, now: u64, outcome: &'static str) {
        let record = self.record(id);
        let handing = Handing {
            worker: record.worker.clone(),
            claimed_at: record.claimed_at,
            ended: Some((now, outcome)),
        };
        record.deliveries.insert(record.fence, handing);
    }
}

impl Turn {
    /// The one way to a terminal; further fields of the record are set before.
    pub(super) fn finish(&mut self, id: &str, status: JobState, dead: Option<DeadReason>) {
        let (now, raw) = (self.at.now, self.at.raw);
        self.state.leave(id);
        let (body_ms, record_ms) = match dead {
            Some(_) => (self.settings.dead_letter_retention_ms, 0),
            None => (
                self.settings.result_retention_ms,
                self.settings.record_retention_ms,
            ),
        };
        let record = self.state.record(id);
        record.state = status;
        record.ended_at = now;
        record.owner.clear();
        if dead.is_some() {
            record.dead = dead;
        }
        record.record_until_raw_ms = Some(raw + body_ms + record_ms + BACKSTOP_MS);
        record.envelope_until_raw_ms = Some(raw + body_ms + BACKSTOP_MS);
        if !record.events.is_empty() {
            record.events_until_raw_ms = Some(raw + EVENTS_KEPT_MS);
        }
        let bytes = record.bytes;
        self.state.counters.bytes -= bytes;
        self.state.sets.deadlines.drop(id);
        match dead {
            Some(_) => {
                self.state.sets.dead.put(id, now);
                self.evict_dead();
            }
            None => self.state.sets.ended.put(id, now + body_ms),
        }
    }

    /// Dead letters are bounded: the oldest makes room, counted.
    fn evict_dead(&mut self) {
        let over = self
            .state
            .sets
            .dead
            .len()
            .saturating_sub(self.settings.max_dead_letters);
        for id in self.state.sets.dead.first(over.min(EVICTED_AT_ONCE)) {
            self.state.forget(&id);
            self.state.counters.evicted += 1;
        }
    }
}
