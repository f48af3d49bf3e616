//! lua/lib/take.lua and lua/claim.lua: choose waiting jobs and hand each to a worker under a lease.

use super::{HISTORY, Handing, Record, Turn};
use crate::domain::{Fence, JobId, Owner, PoolName, State as JobState};
use crate::protocol::{Claim, ClaimReply, Delivery, IdleReason};

/// Jobs looked at in one line beyond those taken: a crashed worker's suspects must not hide all others.
pub const SCAN: u64 = 256;
/// Bytes of requests in one reply beyond the first: a reply must arrive well within the lease.
pub const CLAIM_BYTES: u64 = 8 * 1024 * 1024;
/// Lapsed leases and due jobs moved by one claim.
pub const SWEEP: u64 = 20;
/// Held as long as the suspect runs.
const WHILE_IT_RUNS: u64 = (1 << 53) - 1;

/// What a claim found.
pub(super) enum Taken {
    Deliveries(Vec<Delivery>),
    None {
        reason: IdleReason,
        next_due: Option<u64>,
    },
}

impl Turn {
    pub(super) fn claim(&mut self, step: &Claim) -> ClaimReply {
        self.keep_time();
        match self.take(&step.pool, step.worker.as_str(), &step.owners) {
            Taken::Deliveries(deliveries) => ClaimReply::Deliveries(deliveries),
            Taken::None { reason, next_due } => ClaimReply::None {
                reason,
                due_in_ms: next_due.map(|at| at.saturating_sub(self.at.now)),
            },
        }
    }

    /// One claim. An owner that has a live delivery gets that one again, and nothing new; one whose delivery is over gets
    /// nothing.
    pub(super) fn take(&mut self, pool: &PoolName, worker: &str, owners: &[Owner]) -> Taken {
        let (mut replay, mut fresh) = (Vec::new(), Vec::new());
        for owner in owners {
            let spent = self.state.spent.score(owner.expose());
            let Some(id) = self.state.owners.get(owner.expose()) else {
                fresh.extend(spent.is_none().then(|| owner.clone()));
                continue;
            };
            let until = self.deadline_ms.max(spent.unwrap_or(0));
            self.state.spent.put(owner.expose(), until);
            let expiry = self.state.sets.leases.score(id).unwrap_or(0);
            if expiry > self.at.lapsed {
                replay.push(self.delivery(pool, id, &self.state.jobs[id], expiry));
            }
        }
        if !replay.is_empty() {
            return Taken::Deliveries(replay);
        }
        self.promote(SWEEP);
        self.lapse_leases(SWEEP);
        let free = self
            .settings
            .slots
            .saturating_sub(self.state.sets.leases.len());
        let reason = if self.settings.paused {
            IdleReason::Paused
        } else if free == 0 {
            IdleReason::Slots
        } else {
            let taken = self.choose(pool, worker, &fresh, free.min(fresh.len() as u64));
            if !taken.is_empty() {
                if (taken.len() as u64) < free && self.state.sets.any_ready() {
                    self.state.marker = true;
                }
                return Taken::Deliveries(taken);
            }
            IdleReason::Empty
        };
        let next_due = self.state.sets.due.iter().next().map(|(_, at)| at);
        Taken::None { reason, next_due }
    }

    /// Takes up to `want` jobs, or fewer large ones: higher priorities first, each line in its order.
    fn choose(
        &mut self,
        pool: &PoolName,
        worker: &str,
        owners: &[Owner],
        want: u64,
    ) -> Vec<Delivery> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        let levels: Vec<u8> = self.state.sets.levels.iter().rev().copied().collect();
        for level in levels {
            let left = want - taken.len() as u64 + SCAN;
            let mut next = self.waiting(level, None);
            if next.is_none() {
                self.state.sets.levels.remove(&level);
            }
            for _ in 0..left {
                let Some(at) = next else { break };
                next = self.waiting(level, Some(&at));
                let id = at.1;
                if taken.len() as u64 >= want {
                    return taken;
                }
                let record = &self.state.jobs[&id];
                if record.deadline_at > 0 && record.deadline_at <= self.at.now {
                    self.end_overdue(&id);
                } else if self.admissible(record, worker) {
                    let with_it = bytes + record.bytes;
                    if !taken.is_empty() && with_it > CLAIM_BYTES {
                        return taken;
                    }
                    bytes = with_it;
                    let owner = &owners[taken.len()];
                    taken.push(self.deliver(pool, &id, worker, owner));
                }
            }
        }
        taken
    }

    /// The first job of a line, or the one behind `after`: what is taken meanwhile moves none of the others.
    fn waiting(&self, level: u8, after: Option<&(u64, String)>) -> Option<(u64, String)> {
        self.state.sets.ready.get(&level)?.next(after)
    }

    /// A worker has at most one suspect at a time.
    fn admissible(&self, record: &Record, worker: &str) -> bool {
        !self.is_suspect(record) || self.state.suspects.score(worker).unwrap_or(0) <= self.at.now
    }

    /// Mints the fence, writes the owner, takes the slot: the lease is all of it.
    fn deliver(&mut self, pool: &PoolName, id: &str, worker: &str, owner: &Owner) -> Delivery {
        let now = self.at.now;
        let expiry = now + self.settings.lease_ms;
        self.state.leave(id);
        let record = self.state.record(id);
        record.state = JobState::Running;
        record.fence += 1;
        record.owner = owner.expose().to_owned();
        record.worker = worker.to_owned();
        record.claimed_at = now;
        if record.fence == 1 {
            record.started_at = now;
        }
        let handing = Handing {
            worker: worker.to_owned(),
            claimed_at: now,
            ended: None,
        };
        record.deliveries.insert(record.fence, handing);
        if record.fence > HISTORY {
            record.deliveries.remove(&(record.fence - HISTORY));
        }
        self.state.sets.leases.put(id, expiry);
        self.state
            .owners
            .insert(owner.expose().to_owned(), id.to_owned());
        self.state.spent.put(owner.expose(), self.deadline_ms);
        if self.is_suspect(&self.state.jobs[id]) {
            self.state.suspects.put(worker, WHILE_IT_RUNS);
        }
        self.delivery(pool, id, &self.state.jobs[id], expiry)
    }

    fn delivery(&self, pool: &PoolName, id: &str, record: &Record, expiry: u64) -> Delivery {
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let some = |n: u64| (n > 0).then_some(n);
        Delivery {
            id: JobId::from_bare(pool, id).expect("ids come from submits"),
            fence: Fence(record.fence),
            owner: Owner::parse(&record.owner).expect("owners come from claims"),
            expires_at_ms: expiry,
            attempts: small(record.attempts),
            max_attempts: small(record.max_attempts),
            tenant: record.tenant.clone(),
            class: record.class.clone(),
            created_at_ms: record.created_at,
            deadline_at_ms: some(record.deadline_at),
            timeout_ms: some(record.timeout_ms),
            follow: record.follow,
            model: record.model.clone(),
            envelope: record.envelope.clone().unwrap_or_default(),
            now_ms: self.at.now,
        }
    }
}
