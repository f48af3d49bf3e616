//! What the reference must say, in plain cases. That the scripts say the same is the property test's part.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::PoolConfig;
use crate::domain::{DeadReason, JobId, Owner, PoolName, State as JobState, Verdict, WorkerId};
use crate::protocol::{Delivery, Idempotency, RenewItem, SettleTag};

const START: u64 = 1_000_000;
const FAR: u64 = u64::MAX;

/// A pool and its server's clock.
struct World {
    state: State,
    raw: u64,
    pool: PoolName,
    lineage: &'static str,
}

impl World {
    fn new(change: impl FnOnce(&mut PoolConfig)) -> Self {
        let mut config = PoolConfig {
            lease_ms: 1_000,
            renew_ms: 200,
            max_lost_leases: 2,
            ..PoolConfig::default()
        };
        change(&mut config);
        let pool: PoolName = "gpu".parse().unwrap();
        let mut world = Self {
            state: State::default(),
            raw: START,
            pool: pool.clone(),
            lineage: "",
        };
        world.does(Action::Apply(Apply { pool, config }));
        world
    }

    fn does(&mut self, action: Action) -> Reply {
        let command = Command {
            deadline_ms: FAR,
            action,
        };
        let (state, reply) = step(&self.state, &command, self.raw);
        self.state = state;
        reply
    }

    /// Time passes, with the reaper's pass every 100 ms: no gap.
    fn waits(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.raw += 100;
            self.expires();
        }
    }

    fn expires(&mut self) -> ExpireReply {
        let pool = self.pool.clone();
        let step = Expire {
            pool,
            limit: 100,
            lineage: self.lineage.into(),
        };
        match self.does(Action::Expire(step)) {
            Reply::Expire(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn submits(&mut self, change: impl FnOnce(&mut Submit)) -> JobId {
        let mut step = Submit {
            id: JobId::mint(&self.pool),
            tenant: "acme".into(),
            class: "default".into(),
            priority: 0,
            delay_ms: 0,
            deadline_ms: 0,
            timeout_ms: 0,
            max_attempts: 3,
            model: String::new(),
            idempotency: Idempotency::default(),
            envelope: vec![1],
        };
        change(&mut step);
        let id = step.id.clone();
        assert_eq!(
            self.does(Action::Submit(step)),
            Reply::Submit(SubmitReply::Accepted)
        );
        id
    }

    fn claims(&mut self, worker: &WorkerId, want: usize) -> Vec<Delivery> {
        let claim = Claim {
            pool: self.pool.clone(),
            worker: worker.clone(),
            owners: (0..want).map(|_| Owner::mint()).collect(),
        };
        match self.does(Action::Claim(claim)) {
            Reply::Claim(ClaimReply::Deliveries(all)) => all,
            Reply::Claim(ClaimReply::None { .. }) => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    fn settles(&mut self, one: &Delivery, verdict: Verdict) -> SettleReply {
        let step = Settle {
            id: one.id.clone(),
            fence: one.fence,
            owner: one.owner.clone(),
            verdict,
            delay_ms: 0,
            reason: DeadReason::Upstream,
            code: "upstream_error".into(),
            error: String::new(),
            usage: None,
            content_type: String::new(),
            result: Vec::new(),
            next: None,
        };
        match self.does(Action::Settle(step)) {
            Reply::Settle(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn job(&self, id: &JobId) -> &Record {
        &self.state.jobs[id.bare()]
    }
}

#[test]
fn a_clock_that_steps_back_goes_on_from_where_it_was() {
    let mut world = World::new(|_| {});
    world.expires();
    world.raw -= 400;
    world.expires();
    assert_eq!(world.state.clock.last, START, "it never goes back");
    world.raw += 50;
    world.expires();
    assert_eq!(
        world.state.clock.last,
        START + 50,
        "and it does not stand still"
    );
}

#[test]
fn a_lease_that_was_live_before_a_gap_may_be_renewed_after_it() {
    let mut world = World::new(|_| {});
    let worker = WorkerId::mint();
    world.submits(|_| {});
    let one = world.claims(&worker, 1).remove(0);
    world.raw += 5_000;
    assert_eq!(world.expires().lapsed, 0, "live owners get time to renew");
    let item = RenewItem {
        id: one.id.clone(),
        fence: one.fence,
        owner: one.owner.clone(),
        output_tokens: 0,
    };
    let pool = world.pool.clone();
    let renew = Renew {
        pool,
        default_timeout_ms: 60_000,
        items: vec![item],
    };
    assert_eq!(
        world.does(Action::Renew(renew)),
        Reply::Renew(vec![RenewStatus::Ok])
    );
    world.waits(900);
    assert_eq!(world.job(&one.id).state, JobState::Running);
}

#[test]
fn a_lease_lost_while_the_store_was_away_is_nobodys_fault() {
    let mut world = World::new(|_| {});
    let id = world.submits(|_| {});
    world.claims(&WorkerId::mint(), 1);
    world.raw += 5_000;
    world.waits(1_500);
    let job = world.job(&id);
    assert_eq!((job.state, job.lost, job.blame), (JobState::Queued, 1, 0));
}

#[test]
fn a_worker_gets_one_suspect_at_a_time_and_keeps_its_mark_until_that_one_ends() {
    let mut world = World::new(|_| {});
    let (first, second) = (WorkerId::mint(), WorkerId::mint());
    for _ in 0..2 {
        world.submits(|_| {});
    }
    world.claims(&first, 2);
    world.waits(1_100);
    let innocent = world.submits(|s| s.priority = 9);
    let taken = world.claims(&second, 3);
    assert_eq!(taken.len(), 2, "one of the two suspects, and the innocent");
    let one = taken.into_iter().find(|d| d.id == innocent).unwrap();
    world.settles(&one, Verdict::Succeed);
    assert!(
        world.state.suspects.score(second.as_str()).is_some(),
        "its suspect still runs"
    );
}

#[test]
fn a_poison_job_becomes_a_dead_letter_and_takes_no_innocent_with_it() {
    let mut world = World::new(|_| {});
    let poison = world.submits(|_| {});
    assert_eq!(world.claims(&WorkerId::mint(), 1).len(), 1);
    world.waits(1_100);
    let worker = WorkerId::mint();
    let innocent = world.submits(|_| {});
    assert_eq!(world.claims(&worker, 2).len(), 2);
    world.waits(1_100);
    assert_eq!(world.job(&poison).dead, Some(DeadReason::Poison));
    assert_eq!(world.state.counters.poisoned, 1);
    assert_eq!(
        (world.job(&innocent).lost, world.job(&innocent).blame),
        (1, 0)
    );
}

#[test]
fn a_suspect_that_meets_its_deadline_leaves_no_mark_on_its_worker() {
    let mut world = World::new(|_| {});
    world.submits(|s| s.deadline_ms = 1_800);
    world.claims(&WorkerId::mint(), 1);
    world.waits(1_100);
    let worker = WorkerId::mint();
    assert_eq!(world.claims(&worker, 1).len(), 1);
    assert!(world.state.suspects.score(worker.as_str()).is_some());
    world.waits(800);
    assert!(world.state.suspects.is_empty());
}

#[test]
fn a_deadline_is_as_long_in_each_life() {
    let mut world = World::new(|_| {});
    let id = world.submits(|s| s.deadline_ms = 900);
    for life in 1..=3u64 {
        let one = world.claims(&WorkerId::mint(), 1).remove(0);
        world.settles(&one, Verdict::Dead);
        world.waits(3_000);
        let requeue = Requeue {
            id: id.clone(),
            operation: life.to_string(),
        };
        assert_eq!(
            world.does(Action::Requeue(requeue)),
            Reply::Requeue(RequeueReply::Requeued)
        );
        assert_eq!(world.job(&id).deadline_at, world.raw + 900, "life {life}");
        assert_eq!(world.job(&id).fence, life, "the fence goes on rising");
    }
}

#[test]
fn the_first_completion_is_no_gap() {
    let mut world = World::new(|_| {});
    let worker = WorkerId::mint();
    for _ in 0..3 {
        world.submits(|_| {});
        let one = world.claims(&worker, 1).remove(0);
        world.settles(&one, Verdict::Succeed);
        world.waits(800);
    }
    assert_eq!(
        (world.state.counters.gap_ms, world.state.counters.gaps),
        (800, 2)
    );
}

#[test]
fn where_only_suspects_wait_a_worker_that_has_one_wakes_nobody() {
    let mut world = World::new(|_| {});
    world.submits(|_| {});
    world.submits(|_| {});
    world.claims(&WorkerId::mint(), 2);
    world.waits(1_100);
    let worker = WorkerId::mint();
    assert_eq!(world.claims(&worker, 1).len(), 1);
    world.does(Action::TakeMarker);
    assert!(world.claims(&worker, 1).is_empty());
    assert!(!world.state.marker);
}

#[test]
fn a_piece_larger_than_the_bound_may_be_sent_again() {
    let mut world = World::new(|_| {});
    world.submits(|_| {});
    let one = world.claims(&WorkerId::mint(), 1).remove(0);
    let append = Append {
        id: one.id.clone(),
        fence: one.fence,
        owner: one.owner.clone(),
        first: 1,
        max_bytes: 4,
        pieces: vec![vec![b'x'; 10]],
    };
    for _ in 0..2 {
        assert_eq!(
            world.does(Action::Append(append.clone())),
            Reply::Append(AppendReply::Appended)
        );
        assert_eq!(world.job(&one.id).events.len(), 1);
    }
}

#[test]
fn what_is_cancelled_first_stays_cancelled_whatever_the_worker_says() {
    for verdict in Verdict::ALL {
        let mut world = World::new(|_| {});
        let id = world.submits(|_| {});
        let one = world.claims(&WorkerId::mint(), 1).remove(0);
        let cancel = Cancel {
            id: id.clone(),
            tenant: None,
        };
        assert_eq!(
            world.does(Action::Cancel(cancel)),
            Reply::Cancel(CancelReply::Cancelling)
        );
        assert_eq!(world.settles(&one, *verdict).tag, SettleTag::Cancelled);
        assert_eq!(world.job(&id).state, JobState::Cancelled);
        assert!(world.job(&id).result.is_none());
        assert_eq!(world.settles(&one, *verdict).tag, SettleTag::Duplicate);
    }
}

#[test]
fn a_new_lineage_begins_one_epoch_with_a_grace() {
    let mut world = World::new(|_| {});
    world.lineage = "a";
    world.expires();
    world.submits(|_| {});
    let one = world.claims(&WorkerId::mint(), 1).remove(0);
    let live = |world: &World| world.state.sets.leases.score(one.id.bare()).is_some();
    world.waits(900);
    let passed_at = world.state.epoch.passed_at;
    // The lease is over now, yet it was live when the server was last seen.
    world.raw += 150;
    world.lineage = "b";
    let reply = world.expires();
    assert_eq!(
        (reply.epoch, reply.began, reply.lost_from_ms),
        (1, true, passed_at)
    );
    assert!(live(&world), "it has one renewal interval more");
    // A reaper that is late with the lineage before changes nothing.
    for lineage in ["a", "", "b"] {
        world.lineage = lineage;
        let reply = world.expires();
        assert_eq!((reply.epoch, reply.began), (1, false), "{lineage}");
    }
    world.waits(1_100);
    assert!(!live(&world), "the grace is over");
}
