//! Each check of a history, by a history that it must refuse.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::audit::Read as Said;
use crate::config::PoolConfig;
use crate::domain::step::{self, Action, Command, Reply, advance};
use crate::domain::{DeadReason, Fence, Owner, PoolName, Verdict, WorkerId};
use crate::protocol::{
    Apply, Cancel, Claim, Idempotency, Purge, Requeue, Settle, SettleReply, SettleTag, Submit,
    SubmitReply,
};

/// A run, and what its clients saw.
struct World {
    state: step::State,
    effects: Effects,
    events: Vec<Event>,
    pool: PoolName,
    ms: u64,
}

impl World {
    fn new() -> Self {
        let pool: PoolName = "gpu".parse().unwrap();
        let mut world = Self {
            state: step::State::default(),
            effects: Effects::default(),
            events: Vec::new(),
            pool: pool.clone(),
            ms: 0,
        };
        let config = PoolConfig::default();
        world.runs(Action::Apply(Apply { pool, config }));
        world
    }

    /// The server runs a step.
    fn runs(&mut self, action: Action) -> Reply {
        self.ms += 1;
        let command = Command {
            deadline_ms: u64::MAX,
            action,
        };
        let reply = advance(&mut self.state, &command, 1_000_000 + self.ms);
        self.effects.note(&Said {
            command,
            reply: reply.clone(),
            now_ms: None,
        });
        reply
    }

    /// A client asks, and is told.
    fn sees(&mut self, phase: Phase, asked: What, told: What) {
        let op = self.events.len() as u64;
        for (phase, what) in [(Phase::Invoke, asked), (phase, told)] {
            self.ms += 1;
            self.events.push(Event {
                op,
                client: 1,
                at_ms: self.ms,
                phase,
                what,
            });
        }
    }

    fn accepts(&mut self, key: &str) -> JobId {
        let id = JobId::mint(&self.pool);
        let step = Submit {
            id: id.clone(),
            tenant: "acme".into(),
            class: "default".into(),
            priority: 0,
            delay_ms: 0,
            deadline_ms: 0,
            timeout_ms: 0,
            max_attempts: 3,
            model: String::new(),
            idempotency: Idempotency {
                key_hash: key.into(),
                body_hash: key.into(),
            },
            envelope: vec![1],
        };
        assert_eq!(
            self.runs(Action::Submit(step)),
            Reply::Submit(SubmitReply::Accepted)
        );
        id
    }

    /// A job that its client was told of.
    fn told(&mut self) -> JobId {
        let id = self.accepts("");
        self.sees(Phase::Ok, submit("", None), submit("", Some(&id)));
        id
    }

    /// Runs a waiting job to its end.
    fn ends(&mut self, id: &JobId, verdict: Verdict) -> Owner {
        let owner = Owner::mint();
        self.runs(Action::Claim(Claim {
            pool: self.pool.clone(),
            worker: WorkerId::mint(),
            owners: vec![owner.clone()],
        }));
        let reply = self.runs(Action::Settle(Settle {
            id: id.clone(),
            fence: Fence(self.state.jobs[id.bare()].fence),
            owner: owner.clone(),
            verdict,
            delay_ms: 0,
            reason: DeadReason::Upstream,
            code: String::new(),
            error: String::new(),
            usage: None,
            content_type: String::new(),
            result: Vec::new(),
            next: None,
        }));
        let settled = matches!(
            reply,
            Reply::Settle(SettleReply {
                tag: SettleTag::Settled,
                ..
            })
        );
        assert!(settled, "{reply:?}");
        owner
    }

    fn reads(&mut self, id: &JobId, state: Option<State>, result: &str) {
        let read = |state, result: &str| What::Read {
            id: id.clone(),
            state,
            result: (!result.is_empty()).then(|| result.to_owned()),
        };
        self.sees(Phase::Ok, read(None, ""), read(state, result));
    }

    fn report(&self, failover: bool) -> Report {
        check(&self.events, &self.effects, &self.state, failover)
    }

    /// The one problem of this world.
    fn problem(&self) -> String {
        let report = self.report(false);
        assert_eq!(report.problems.len(), 1, "{report:#?}");
        report.problems[0].clone()
    }
}

fn submit(key: &str, id: Option<&JobId>) -> What {
    What::Submit {
        key_hash: (!key.is_empty()).then(|| key.to_owned()),
        id: id.cloned(),
    }
}

fn cancel(id: &JobId, state: Option<State>) -> What {
    What::Cancel {
        id: id.clone(),
        state,
    }
}

#[test]
fn a_good_history_has_no_problem() {
    let mut world = World::new();
    let (done, dead, gone) = (world.told(), world.told(), world.told());
    let owner = world.ends(&done, Verdict::Succeed);
    let settle = |tag: Option<&str>| What::Settle {
        id: done.clone(),
        owner: owner.expose().to_owned(),
        tag: tag.map(str::to_owned),
    };
    world.sees(Phase::Ok, settle(None), settle(Some("settled")));
    world.reads(&done, Some(State::Succeeded), "r");
    world.reads(&done, Some(State::Succeeded), "r");
    world.ends(&dead, Verdict::Dead);
    world.reads(&dead, Some(State::Failed), "");
    let requeue = What::Requeue { id: dead.clone() };
    world.runs(Action::Requeue(Requeue {
        id: dead.clone(),
        operation: "op".into(),
    }));
    world.sees(Phase::Ok, requeue.clone(), requeue);
    world.runs(Action::Cancel(Cancel {
        id: dead.clone(),
        tenant: None,
    }));
    world.sees(
        Phase::Ok,
        cancel(&dead, None),
        cancel(&dead, Some(State::Cancelled)),
    );
    world.ends(&gone, Verdict::Dead);
    world.runs(Action::Purge(Purge { id: gone.clone() }));
    let purge = What::Purge { id: gone.clone() };
    world.sees(Phase::Ok, purge.clone(), purge);
    world.reads(&gone, None, "");
    // Answers that were lost: one submit arrived, one did not.
    world.accepts("");
    world.sees(Phase::Unknown, submit("", None), submit("", None));
    world.sees(Phase::Unknown, submit("", None), submit("", None));
    world.accepts("key");
    world.sees(Phase::Unknown, submit("key", None), submit("key", None));
    world.sees(Phase::Fail, submit("", None), submit("", None));
    let report = world.report(false);
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.failed, report.unknown), (1, 3));
    assert_eq!(report.unknown_accepted, 2);
}

#[test]
fn a_history_is_the_same_after_it_was_written() {
    let mut world = World::new();
    let id = world.told();
    world.reads(&id, Some(State::Queued), "");
    world.sees(Phase::Unknown, submit("key", None), submit("key", None));
    let mut file = Vec::new();
    write(&mut file, &world.events).unwrap();
    assert_eq!(read(file.as_slice()).unwrap(), world.events);
    assert!(read(&b"{\"op\":1}\n"[..]).is_err());
}

#[test]
fn an_accepted_job_that_the_record_lacks_is_lost() {
    let mut world = World::new();
    let ghost = JobId::mint(&world.pool);
    world.sees(Phase::Ok, submit("", None), submit("", Some(&ghost)));
    assert!(world.problem().contains("never accepted"));
    let report = world.report(true);
    assert_eq!((report.problems.len(), report.lost.len()), (0, 1));
    assert!(report.lost[0].contains(ghost.bare()));
}

#[test]
fn a_refused_submit_that_was_accepted_is_found() {
    let mut world = World::new();
    world.accepts("");
    world.sees(Phase::Fail, submit("", None), submit("", None));
    assert!(world.problem().contains("nobody was told of"));
    let mut world = World::new();
    world.accepts("key");
    world.sees(Phase::Fail, submit("key", None), submit("key", None));
    assert!(world.problem().contains("nobody was told of"));
}

#[test]
fn an_unknown_submit_becomes_one_job_at_most() {
    let mut world = World::new();
    world.accepts("");
    world.accepts("");
    world.sees(Phase::Unknown, submit("", None), submit("", None));
    assert!(world.problem().contains("2 jobs"));
}

#[test]
fn one_key_is_one_job() {
    let mut world = World::new();
    let (first, second) = (JobId::mint(&world.pool), JobId::mint(&world.pool));
    let jobs = [first.clone(), second.clone()];
    world.effects.by_key.insert("key".into(), jobs.into());
    for id in [&first, &second] {
        world.effects.accepted.insert(id.clone(), 1);
        world.sees(Phase::Ok, submit("key", None), submit("key", Some(id)));
    }
    assert!(world.problem().starts_with("key key became 2 jobs"));
}

#[test]
fn a_job_is_accepted_once() {
    let mut world = World::new();
    let id = world.told();
    world.effects.accepted.insert(id.clone(), 2);
    assert!(world.problem().contains("accepted 2 times"));
}

#[test]
fn a_cancel_and_the_jobs_end_agree() {
    let mut world = World::new();
    let id = world.told();
    world.sees(
        Phase::Ok,
        cancel(&id, None),
        cancel(&id, Some(State::Queued)),
    );
    assert!(world.problem().contains("no cancel met"));

    let mut world = World::new();
    let id = world.told();
    world.ends(&id, Verdict::Succeed);
    world.runs(Action::Cancel(Cancel {
        id: id.clone(),
        tenant: None,
    }));
    world.sees(
        Phase::Ok,
        cancel(&id, None),
        cancel(&id, Some(State::Cancelled)),
    );
    assert!(world.problem().contains("ended as succeeded"));
    world.events.clear();
    world.sees(Phase::Ok, submit("", None), submit("", Some(&id)));
    world.sees(
        Phase::Ok,
        cancel(&id, None),
        cancel(&id, Some(State::Running)),
    );
    assert!(world.problem().contains("was to be cancelled"));

    let mut world = World::new();
    let id = world.told();
    world.runs(Action::Cancel(Cancel {
        id: id.clone(),
        tenant: None,
    }));
    world.sees(Phase::Fail, cancel(&id, None), cancel(&id, None));
    assert!(
        world
            .problem()
            .contains("refused, and the job was cancelled")
    );
}

#[test]
fn a_requeue_gives_one_life() {
    let mut world = World::new();
    let id = world.told();
    let requeue = What::Requeue { id: id.clone() };
    world.sees(Phase::Ok, requeue.clone(), requeue.clone());
    assert!(world.problem().contains("never requeued"));

    for operation in ["one", "two"] {
        world.ends(&id, Verdict::Dead);
        world.runs(Action::Requeue(Requeue {
            id: id.clone(),
            operation: operation.into(),
        }));
    }
    assert!(world.problem().contains("2 lives of 1 requeues"));
}

#[test]
fn a_purge_and_a_settle_that_were_told_are_in_the_record() {
    let mut world = World::new();
    let id = world.told();
    let purge = What::Purge { id: id.clone() };
    world.sees(Phase::Ok, purge.clone(), purge);
    assert!(world.problem().contains("never purged"));

    let mut world = World::new();
    let id = world.told();
    let owner = world.ends(&id, Verdict::Succeed);
    let settle = What::Settle {
        id: id.clone(),
        owner: owner.expose().to_owned(),
        tag: Some("cancelled".into()),
    };
    world.sees(Phase::Ok, settle.clone(), settle);
    assert!(world.problem().contains("no settle"));
}

#[test]
fn a_terminal_that_was_read_stays() {
    let mut world = World::new();
    let id = world.told();
    world.ends(&id, Verdict::Succeed);
    world.reads(&id, Some(State::Failed), "");
    assert!(world.problem().contains("ended as succeeded"));

    let mut world = World::new();
    let id = world.told();
    world.ends(&id, Verdict::Succeed);
    world.reads(&id, Some(State::Succeeded), "r");
    world.reads(&id, Some(State::Running), "");
    assert!(world.problem().contains("read as succeeded before"));

    let mut world = World::new();
    let id = world.told();
    world.ends(&id, Verdict::Succeed);
    world.reads(&id, Some(State::Succeeded), "r");
    world.reads(&id, Some(State::Succeeded), "s");
    assert!(world.problem().contains("2 different results"));
}

#[test]
fn an_acknowledged_job_is_found_and_no_other_is_read() {
    let mut world = World::new();
    let id = world.told();
    world.reads(&id, None, "");
    assert!(world.problem().contains("was not found"));

    let mut world = World::new();
    let ghost = JobId::mint(&world.pool);
    world.reads(&ghost, Some(State::Queued), "");
    assert!(world.problem().contains("never accepted"));
}

#[test]
fn lines_that_do_not_fit_are_a_problem() {
    let mut world = World::new();
    world.told();
    let again = world.events.last().unwrap().clone();
    world.events.push(again);
    assert!(world.problem().contains("do not fit"));
}
