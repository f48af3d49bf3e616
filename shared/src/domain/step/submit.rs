//! lua/submit.lua: accept one job, or say why not.

use super::{Record, Remembered, Turn};
use crate::domain::{JobId, State as JobState};
use crate::protocol::{Submit, SubmitReply};

/// Samples below which no time between completions is given.
const SAMPLES: u64 = 3;

impl Turn {
    pub(super) fn submit(&mut self, step: &Submit) -> SubmitReply {
        if let Some(refusal) = self.refuse_submit(step) {
            return refusal;
        }
        self.keep_time();
        let bytes = step.envelope.len() as u64;
        self.state.counters.seq += 1;
        self.state.counters.bytes += bytes;
        let seq = self.state.counters.seq;
        let id = step.id.bare();
        let record = self.accepted(step, seq);
        self.state.sets.jobs.put(id, seq);
        let tenant = record.tenant.clone();
        self.state
            .sets
            .tenants
            .entry(tenant)
            .or_default()
            .put(id, seq);
        if record.deadline_at > 0 {
            self.state.sets.deadlines.put(id, record.deadline_at);
        }
        let due_at = record.due_at;
        self.state.jobs.insert(id.to_owned(), record);
        if due_at > 0 {
            self.state.sets.due.put(id, due_at);
        } else {
            self.state.ready(id);
        }
        if !step.idempotency.key_hash.is_empty() && self.settings.idempotency_ms > 0 {
            let remembered = Remembered {
                id: id.to_owned(),
                body_hash: step.idempotency.body_hash.clone(),
                until_raw_ms: self.at.raw + self.settings.idempotency_ms,
            };
            let key = step.idempotency.key_hash.clone();
            self.state.idempotency.insert(key, remembered);
        }
        self.state.marker = true;
        SubmitReply::Accepted
    }

    fn refuse_submit(&self, step: &Submit) -> Option<SubmitReply> {
        if self.state.jobs.contains_key(step.id.bare()) {
            return Some(SubmitReply::Duplicate(step.id.clone()));
        }
        if let Some(earlier) = self.earlier(step) {
            return Some(earlier);
        }
        if self.settings.draining {
            return Some(SubmitReply::Draining);
        }
        let bytes = step.envelope.len() as u64;
        let (most, most_bytes) = (self.settings.max_queued, self.settings.max_queued_bytes);
        if bytes > most_bytes {
            return Some(SubmitReply::Unsatisfiable {
                limit: "max_queued_bytes".into(),
                value: most_bytes,
            });
        }
        let (limit, value) = if self.state.sets.owed() >= most {
            ("max_queued", most)
        } else if self.state.counters.bytes + bytes > most_bytes {
            ("max_queued_bytes", most_bytes)
        } else {
            return None;
        };
        let counters = &self.state.counters;
        Some(SubmitReply::Full {
            limit: limit.into(),
            value,
            retry_after_ms: (counters.gaps >= SAMPLES).then_some(counters.gap_ms),
        })
    }

    /// The same caller's key, seen before and still known, with a job that is still known.
    fn earlier(&self, step: &Submit) -> Option<SubmitReply> {
        let key = &step.idempotency;
        let found = self.state.idempotency.get(&key.key_hash)?;
        if found.until_raw_ms <= self.at.raw || !self.state.jobs.contains_key(&found.id) {
            return None;
        }
        let id = JobId::from_bare(step.id.pool(), &found.id).expect("ids come from submits");
        Some(if found.body_hash == key.body_hash {
            SubmitReply::Duplicate(id)
        } else {
            SubmitReply::Conflict(id)
        })
    }

    fn accepted(&self, step: &Submit, seq: u64) -> Record {
        let now = self.at.now;
        let from_now = |ms: u64| if ms > 0 { now + ms } else { 0 };
        Record {
            state: if step.delay_ms > 0 {
                JobState::Scheduled
            } else {
                JobState::Queued
            },
            tenant: step.tenant.clone(),
            class: step.class.clone(),
            model: step.model.clone(),
            priority: step.priority,
            seq,
            bytes: step.envelope.len() as u64,
            created_at: now,
            due_at: from_now(step.delay_ms),
            deadline_at: from_now(step.deadline_ms),
            timeout_ms: step.timeout_ms,
            max_attempts: u64::from(step.max_attempts),
            envelope: Some(step.envelope.clone()),
            ..Record::blank()
        }
    }
}
