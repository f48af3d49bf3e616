//! lua/renew.lua, lua/append.lua and lua/follow.lua: what happens to deliveries while they run.

use super::{Piece, Turn};
use crate::domain::{Fence, JobId, Owner};
use crate::protocol::{Append, AppendReply, Follow, FollowReply, Renew, RenewItem, RenewStatus};

impl Turn {
    /// Whether the delivery is the job's current one and its lease is live; says when that ends.
    fn live(&self, id: &JobId, fence: Fence, owner: &Owner) -> Option<u64> {
        let record = self.state.jobs.get(id.bare())?;
        let expiry = self.state.sets.leases.score(id.bare())?;
        let current = record.owner == owner.expose() && record.fence == fence.0;
        (current && expiry > self.at.lapsed).then_some(expiry)
    }

    pub(super) fn renew(&mut self, step: &Renew) -> Vec<RenewStatus> {
        self.keep_time();
        step.items
            .iter()
            .map(|item| self.renew_one(item, step.default_timeout_ms))
            .collect()
    }

    /// A delivery is renewed no longer than one lease past its run's time-out.
    fn renew_one(&mut self, item: &RenewItem, default_timeout_ms: u64) -> RenewStatus {
        let id = item.id.bare();
        let Some(expiry) = self.live(&item.id, item.fence, &item.owner) else {
            return RenewStatus::Lost;
        };
        let lease_ms = self.settings.lease_ms;
        let record = self.state.record(id);
        let timeout_ms = match record.timeout_ms {
            0 => default_timeout_ms,
            own => own,
        };
        let last = record.claimed_at + timeout_ms + lease_ms;
        if item.output_tokens > 0 {
            record.progress = item.output_tokens;
        }
        let status = if record.cancel {
            RenewStatus::Cancel
        } else if record.follow {
            RenewStatus::Follow
        } else {
            RenewStatus::Ok
        };
        let extended = (self.at.now + lease_ms).min(last).max(expiry);
        self.state.sets.leases.put(id, extended);
        status
    }

    /// The same piece again is stored once; the oldest make room, the newest stays.
    pub(super) fn append(&mut self, step: &Append) -> AppendReply {
        if self.live(&step.id, step.fence, &step.owner).is_none() {
            return AppendReply::Lost;
        }
        self.keep_time();
        let record = self.state.record(step.id.bare());
        let stored = match record.events.last() {
            Some(last) if last.fence == step.fence.0 => last.n,
            _ => 0,
        };
        for (n, data) in (step.first..).zip(&step.pieces) {
            if n > stored {
                record.events_bytes += data.len() as u64;
                record.events.push(Piece {
                    fence: step.fence.0,
                    n,
                    data: data.clone(),
                });
            }
        }
        while record.events_bytes > step.max_bytes && record.events.len() > 1 {
            let oldest = record.events.remove(0);
            record.events_bytes -= oldest.data.len() as u64;
        }
        AppendReply::Appended
    }

    pub(super) fn follow(&mut self, step: &Follow) -> FollowReply {
        let Some(record) = self.state.jobs.get_mut(step.id.bare()) else {
            return FollowReply::Unknown;
        };
        if step.tenant.as_ref().is_some_and(|t| *t != record.tenant) {
            return FollowReply::Unknown;
        }
        if record.ended_at == 0 {
            record.follow = true;
        }
        FollowReply::Following(record.state)
    }
}
