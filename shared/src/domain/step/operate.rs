//! lua/cancel.lua, lua/requeue.lua and lua/purge.lua: what people ask of a job.

use super::Turn;
use crate::domain::State as JobState;
use crate::protocol::{Cancel, CancelReply, Purge, PurgeReply, Requeue, RequeueReply};

/// Requeues of a job that are remembered; a copy of one comes within seconds, and a life takes longer than a step.
const REMEMBERED: usize = 8;

impl Turn {
    /// Terminal at once where the job is not running, else marked for its worker.
    pub(super) fn cancel(&mut self, step: &Cancel) -> CancelReply {
        let id = step.id.bare();
        let Some(record) = self.state.jobs.get(id) else {
            return CancelReply::Unknown;
        };
        if step.tenant.as_ref().is_some_and(|t| *t != record.tenant) {
            return CancelReply::Unknown;
        }
        match record.state {
            JobState::Running => {
                self.keep_time();
                self.state.record(id).cancel = true;
                CancelReply::Cancelling
            }
            JobState::Queued | JobState::Scheduled => {
                self.keep_time();
                self.state.record(id).code = "cancelled".into();
                self.finish(id, JobState::Cancelled, None);
                CancelReply::Cancelled
            }
            ended => CancelReply::Already(ended),
        }
    }

    /// A dead letter starts a new life; the same operation again is the same one.
    pub(super) fn requeue(&mut self, step: &Requeue) -> RequeueReply {
        let id = step.id.bare();
        let Some(record) = self.state.jobs.get(id) else {
            return RequeueReply::Unknown;
        };
        let mut operations = record.requeued_by.split_whitespace();
        if operations.any(|done| done == step.operation) {
            return RequeueReply::Requeued;
        }
        if self.state.sets.dead.score(id).is_none() {
            return RequeueReply::NotDead(record.state);
        }
        let full = |limit: &str, value: u64| RequeueReply::Full {
            limit: limit.into(),
            value,
        };
        if self.state.sets.owed() >= self.settings.max_queued {
            return full("max_queued", self.settings.max_queued);
        }
        let bytes = record.bytes;
        if self.state.counters.bytes + bytes > self.settings.max_queued_bytes {
            return full("max_queued_bytes", self.settings.max_queued_bytes);
        }
        self.keep_time();
        self.state.counters.seq += 1;
        self.state.counters.bytes += bytes;
        self.state.sets.dead.drop(id);
        self.start_new_life(id, &step.operation);
        self.state.ready(id);
        self.state.marker = true;
        RequeueReply::Requeued
    }

    /// What the old life left behind goes; fence, history and acceptance stay.
    fn start_new_life(&mut self, id: &str, operation: &str) {
        let now = self.at.now;
        let order = self.state.counters.seq;
        let record = self.state.record(id);
        let began_at = match record.requeued_at {
            0 => record.created_at,
            at => at,
        };
        record.state = JobState::Queued;
        record.order = order;
        let done = record.requeued_by.split_whitespace().chain([operation]);
        let done: Vec<&str> = done.collect();
        let forgotten = done.len().saturating_sub(REMEMBERED);
        record.requeued_by = done[forgotten..].join(" ");
        record.requeued_at = now;
        record.lives += 1;
        record.dead = None;
        record.code.clear();
        record.error.clear();
        record.settled_by.clear();
        (record.ended_at, record.due_at, record.progress) = (0, 0, 0);
        (record.attempts, record.lost, record.blame, record.stops) = (0, 0, 0, 0);
        (record.cancel, record.backoff, record.estimated) = (false, false, false);
        (record.input_tokens, record.output_tokens) = (None, None);
        record.events.clear();
        record.events_bytes = 0;
        record.events_until_raw_ms = None;
        record.record_until_raw_ms = None;
        record.envelope_until_raw_ms = None;
        if record.deadline_at > 0 {
            record.deadline_at = now + record.deadline_at - began_at;
            let deadline_at = record.deadline_at;
            self.state.sets.deadlines.put(id, deadline_at);
        }
    }

    /// Removes one dead letter for good.
    pub(super) fn purge(&mut self, step: &Purge) -> PurgeReply {
        let id = step.id.bare();
        let Some(record) = self.state.jobs.get(id) else {
            return PurgeReply::Unknown;
        };
        if self.state.sets.dead.score(id).is_none() {
            return PurgeReply::NotDead(record.state);
        }
        self.state.forget(id);
        PurgeReply::Purged
    }
}
