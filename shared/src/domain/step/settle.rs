//! lua/settle.lua: close one delivery and free what it holds.

use super::take::Taken;
use super::{BACKSTOP_MS, Turn};
use crate::domain::{DeadReason, State as JobState, Verdict};
use crate::protocol::{Settle, SettleReply, SettleTag};

/// Completions that the average of their gaps looks back over.
const GAP_WEIGHT: u64 = 8;
/// A longer gap is a pause, not the pool's pace; in ms.
const LONGEST_GAP_MS: u64 = 60_000;

impl Turn {
    pub(super) fn settle(&mut self, step: &Settle) -> SettleReply {
        let tag = self.whose_verdict(step);
        self.keep_time();
        let mut dead = None;
        if matches!(tag, SettleTag::Settled | SettleTag::Cancelled) {
            dead = self.close(step, tag);
            self.count_completion(step);
        }
        let state = self.state.jobs.get(step.id.bare()).map(|r| r.state);
        // A dead letter that was dropped at once, to keep the bound, still answers as what it became.
        let state = match (dead, tag) {
            (Some(_), _) => Some(JobState::Failed),
            _ => state,
        };
        let mut next = None;
        if let Some(claim) = &step.next {
            let owners = std::slice::from_ref(&claim.owner);
            if let Taken::Deliveries(taken) =
                self.take(step.id.pool(), claim.worker.as_str(), owners)
            {
                next = taken.into_iter().next();
            }
        } else if tag == SettleTag::Settled
            && self.state.sets.leases.len() < self.settings.slots
            && self.state.sets.any_ready()
        {
            self.state.marker = true;
        }
        SettleReply {
            tag,
            state,
            dead,
            next,
        }
    }

    fn whose_verdict(&self, step: &Settle) -> SettleTag {
        let id = step.id.bare();
        let Some(record) = self.state.jobs.get(id) else {
            return SettleTag::Lost;
        };
        let owner = step.owner.expose();
        let current = record.state == JobState::Running
            && record.owner == owner
            && record.fence == step.fence.0;
        let expiry = self.state.sets.leases.score(id).unwrap_or(0);
        if current && expiry > self.at.lapsed {
            if record.cancel {
                SettleTag::Cancelled
            } else {
                SettleTag::Settled
            }
        } else if record.settled_by == owner {
            SettleTag::Duplicate
        } else {
            SettleTag::Lost
        }
    }

    /// Carries the verdict out; says why the job is a dead letter, if it is one now.
    fn close(&mut self, step: &Settle, tag: SettleTag) -> Option<DeadReason> {
        let id = step.id.bare();
        let now = self.at.now;
        let outcome = match tag {
            SettleTag::Cancelled => "cancelled",
            _ => step.verdict.as_str(),
        };
        self.state.close_delivery(id, now, outcome);
        let record = self.state.record(id);
        record.settled_by = step.owner.expose().to_owned();
        if step.verdict != Verdict::Release {
            record.attempts += 1;
        }
        self.clear_suspect(id);
        if tag == SettleTag::Cancelled {
            self.note_usage(step);
            self.state.record(id).code = "cancelled".into();
            self.finish(id, JobState::Cancelled, None);
            return None;
        }
        match step.verdict {
            Verdict::Release => self.release(id),
            Verdict::Succeed => self.succeed(step),
            Verdict::Retry => return self.retry(step),
            Verdict::Fail => self.fail(step, &step.code, None),
            Verdict::Dead => {
                self.fail(step, &step.code, Some(step.reason));
                return Some(step.reason);
            }
        }
        None
    }

    fn note_usage(&mut self, step: &Settle) {
        let Some(usage) = step.usage else { return };
        let record = self.state.record(step.id.bare());
        record.input_tokens = Some(usage.input_tokens);
        record.output_tokens = Some(usage.output_tokens);
        record.estimated |= usage.estimated;
    }

    fn release(&mut self, id: &str) {
        self.state.leave(id);
        let record = self.state.record(id);
        record.stops += 1;
        record.owner.clear();
        record.state = JobState::Queued;
        self.state.ready(id);
        self.state.marker = true;
    }

    fn succeed(&mut self, step: &Settle) {
        let id = step.id.bare();
        self.note_usage(step);
        let until = self.at.raw + self.settings.result_retention_ms + BACKSTOP_MS;
        let record = self.state.record(id);
        record.content_type = step.content_type.clone();
        record.result = Some(step.result.clone());
        record.result_until_raw_ms = Some(until);
        // An earlier try's error is none of a success.
        if record.attempts > 1 {
            record.code.clear();
            record.error.clear();
        }
        self.finish(id, JobState::Succeeded, None);
    }

    /// Again after the delay, while attempts remain and the deadline leaves room; else a dead letter.
    fn retry(&mut self, step: &Settle) -> Option<DeadReason> {
        let id = step.id.bare();
        let due = self.at.now + step.delay_ms;
        let record = &self.state.jobs[id];
        if record.attempts >= record.max_attempts {
            self.fail(step, &step.code, Some(step.reason));
            return Some(step.reason);
        }
        if record.deadline_at > 0 && due >= record.deadline_at {
            self.fail(step, "deadline_exceeded", Some(DeadReason::Deadline));
            return Some(DeadReason::Deadline);
        }
        self.state.leave(id);
        self.note_error(step);
        let record = self.state.record(id);
        record.code = step.code.clone();
        record.due_at = due;
        record.backoff = true;
        record.owner.clear();
        record.state = JobState::Scheduled;
        self.state.sets.due.put(id, due);
        self.state.marker = true;
        None
    }

    fn note_error(&mut self, step: &Settle) {
        if !step.error.is_empty() {
            self.state.record(step.id.bare()).error = step.error.clone();
        }
    }

    fn fail(&mut self, step: &Settle, code: &str, dead: Option<DeadReason>) {
        let id = step.id.bare();
        self.note_error(step);
        self.note_usage(step);
        self.state.record(id).code = code.to_owned();
        self.finish(id, JobState::Failed, dead);
    }

    /// The gap between completions, a moving average, is what a refusal's Retry-After is made of.
    fn count_completion(&mut self, step: &Settle) {
        let goes_on = self
            .state
            .jobs
            .get(step.id.bare())
            .is_some_and(|r| !r.state.is_terminal());
        if goes_on {
            return;
        }
        let now = self.at.now;
        let counters = &mut self.state.counters;
        if counters.done_at > 0 {
            let gap = now - counters.done_at;
            if gap <= LONGEST_GAP_MS {
                counters.gap_ms = if counters.gaps == 0 {
                    gap
                } else {
                    (counters.gap_ms * (GAP_WEIGHT - 1) + gap) / GAP_WEIGHT
                };
                counters.gaps = (counters.gaps + 1).min(GAP_WEIGHT);
            }
        }
        counters.done_at = now;
    }
}
