//! What the book finds where scripts and reference would be wrong together: the replies here are made up.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::PoolConfig;
use crate::domain::step::{Command, advance};
use crate::domain::{DeadReason, Verdict};
use crate::domain::{PoolName, WorkerId};
use crate::protocol::{
    Append, Apply, Claim, Idempotency, Renew, RenewItem, Settle, SettleReply, Submit,
};

const RAW_MS: u64 = 1_000_000;

struct World {
    state: State,
    book: Ledger,
    pool: PoolName,
}

impl World {
    fn new() -> Self {
        let pool: PoolName = "gpu".parse().unwrap();
        let mut world = Self {
            state: State::default(),
            book: Ledger::default(),
            pool: pool.clone(),
        };
        let config = PoolConfig {
            slots: 2,
            ..PoolConfig::default()
        };
        world.runs(Action::Apply(Apply { pool, config })).unwrap();
        world
    }

    /// Runs a step and books it as it was.
    fn runs(&mut self, action: Action) -> Result<Reply, String> {
        let touched = self.book.touched(&self.state, &action, RAW_MS);
        let command = Command {
            deadline_ms: u64::MAX,
            action,
        };
        let reply = advance(&mut self.state, &command, RAW_MS);
        self.books(&command.action, &reply, touched)?;
        Ok(reply)
    }

    /// Books a reply to a step that never ran.
    fn hears(&mut self, action: &Action, reply: &Reply) -> Result<(), String> {
        let touched = self.book.touched(&self.state, action, RAW_MS);
        self.books(action, reply, touched)
    }

    fn books(&mut self, action: &Action, reply: &Reply, ids: Vec<String>) -> Result<(), String> {
        let line = Line {
            action,
            reply,
            raw_ms: RAW_MS,
        };
        self.book.take(&line, ids, &self.state)
    }

    fn submits(&mut self, delay_ms: u64) -> JobId {
        let id = JobId::mint(&self.pool);
        self.runs(Action::Submit(Submit {
            id: id.clone(),
            tenant: "acme".into(),
            class: "default".into(),
            priority: 0,
            delay_ms,
            deadline_ms: 0,
            timeout_ms: 0,
            max_attempts: 3,
            model: String::new(),
            idempotency: Idempotency::default(),
            envelope: vec![1],
        }))
        .unwrap();
        id
    }

    fn claims(&mut self) -> Delivery {
        let claim = self.claim();
        match self.runs(claim).unwrap() {
            Reply::Claim(ClaimReply::Deliveries(mut all)) => all.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn claim(&self) -> Action {
        Action::Claim(Claim {
            pool: self.pool.clone(),
            worker: WorkerId::mint(),
            owners: vec![Owner::mint()],
        })
    }
}

fn settle(id: &JobId, fence: Fence, owner: &Owner) -> Action {
    Action::Settle(Settle {
        id: id.clone(),
        fence,
        owner: owner.clone(),
        verdict: Verdict::Succeed,
        delay_ms: 0,
        reason: DeadReason::Upstream,
        code: String::new(),
        error: String::new(),
        usage: None,
        content_type: String::new(),
        result: Vec::new(),
        next: None,
    })
}

fn settled() -> Reply {
    Reply::Settle(SettleReply {
        tag: SettleTag::Settled,
        state: Some(JobState::Succeeded),
        dead: None,
        next: None,
    })
}

#[test]
fn a_stale_write_that_was_accepted_is_found_whatever_it_is() {
    let writes = |id: &JobId, fence: Fence, owner: &Owner| {
        let (id, owner) = (id.clone(), owner.clone());
        let item = RenewItem {
            id: id.clone(),
            fence,
            owner: owner.clone(),
            output_tokens: 0,
        };
        let pool = id.pool().clone();
        [
            (settle(&id, fence, &owner), settled()),
            (
                Action::Append(Append {
                    id,
                    fence,
                    owner,
                    first: 1,
                    max_bytes: 1,
                    pieces: vec![vec![1]],
                }),
                Reply::Append(AppendReply::Appended),
            ),
            (
                Action::Renew(Renew {
                    pool,
                    default_timeout_ms: 1,
                    items: vec![item],
                }),
                Reply::Renew(vec![RenewStatus::Ok]),
            ),
        ]
    };
    for number in 0..3 {
        let mut world = World::new();
        world.submits(0);
        let one = world.claims();
        let Fence(fence) = one.fence;
        let other = Owner::mint();
        for (fence, owner) in [(fence, &other), (fence + 1, &one.owner)] {
            let (action, reply) = &writes(&one.id, Fence(fence), owner)[number];
            let found = world.hears(action, reply).unwrap_err();
            assert!(found.starts_with("I5"), "{found}");
        }
        world.runs(settle(&one.id, one.fence, &one.owner)).unwrap();
        let (action, reply) = &writes(&one.id, one.fence, &one.owner)[number];
        assert!(world.hears(action, reply).is_err(), "after its end");
        assert_eq!(world.book.counts.stale_accepted, 3);
    }
}

#[test]
fn a_fence_that_does_not_rise_and_an_owner_that_comes_again_are_found() {
    let mut world = World::new();
    world.submits(0);
    let one = world.claims();
    let again = Reply::Claim(ClaimReply::Deliveries(vec![one.clone()]));
    let claim = world.claim();
    world.hears(&claim, &again).unwrap();
    assert_eq!(world.book.counts.claims_again, 1);
    let same_fence = Reply::Claim(ClaimReply::Deliveries(vec![Delivery {
        owner: Owner::mint(),
        ..one.clone()
    }]));
    assert!(
        world
            .hears(&claim, &same_fence)
            .unwrap_err()
            .starts_with("I4")
    );
    let same_owner = Reply::Claim(ClaimReply::Deliveries(vec![Delivery {
        fence: Fence(2),
        ..one
    }]));
    world.hears(&claim, &same_owner).unwrap();
    assert_eq!(world.book.counts.owners_again, 1);
}

#[test]
fn a_delivery_before_its_job_is_due_and_one_beyond_the_slots_are_found() {
    let mut world = World::new();
    let early = world.submits(60_000);
    world.submits(0);
    let one = world.claims();
    let claim = world.claim();
    let reply = Reply::Claim(ClaimReply::Deliveries(vec![Delivery {
        id: early,
        owner: Owner::mint(),
        ..one
    }]));
    assert!(world.hears(&claim, &reply).unwrap_err().starts_with("I13"));

    let mut world = World::new();
    for _ in 0..2 {
        world.submits(0);
        world.claims();
    }
    world.submits(0);
    world.state.settings.as_mut().unwrap().slots = 3;
    let claim = world.claim();
    let touched = world.book.touched(&world.state, &claim, RAW_MS);
    let command = Command {
        deadline_ms: u64::MAX,
        action: claim,
    };
    let reply = advance(&mut world.state, &command, RAW_MS);
    world.state.settings.as_mut().unwrap().slots = 2;
    let found = world.books(&command.action, &reply, touched).unwrap_err();
    assert!(found.starts_with("I6: 3 leases"), "{found}");
}

#[test]
fn a_depth_beyond_the_bound_is_found() {
    let mut world = World::new();
    world.submits(0);
    world.state.settings.as_mut().unwrap().max_queued = 0;
    let id = JobId::mint(&world.pool);
    let cancel = Action::Cancel(crate::protocol::Cancel { id, tenant: None });
    let accepted = Reply::Submit(SubmitReply::Accepted);
    assert!(
        world
            .hears(&cancel, &accepted)
            .unwrap_err()
            .starts_with("I8")
    );
}

#[test]
fn what_no_command_touched_and_what_is_gone_without_a_word_unbalance_the_book() {
    let mut world = World::new();
    let id = world.submits(0);
    let one = world.claims();
    world.book.balance(&world.state).unwrap();
    let record = world.state.jobs.get_mut(id.bare()).unwrap();
    record.fence += 1;
    let found = world.book.balance(&world.state).unwrap_err();
    assert!(found.contains("no command touched it"), "{found}");
    world.state.jobs.get_mut(id.bare()).unwrap().fence -= 1;
    world.book.counts.accepted += 1;
    let found = world.book.balance(&world.state).unwrap_err();
    assert!(found.starts_with("conservation: 2 accepted"), "{found}");
    world.book.counts.accepted -= 1;
    world.runs(settle(&id, one.fence, &one.owner)).unwrap();
    world.book.counts.terminals.clear();
    let found = world.book.balance(&world.state).unwrap_err();
    assert!(
        found.starts_with("conservation: 1 lives, 0 ended"),
        "{found}"
    );
}

#[test]
fn a_terminal_that_changes_is_found_at_the_command_that_changed_it() {
    let mut world = World::new();
    let id = world.submits(0);
    let one = world.claims();
    world.runs(settle(&id, one.fence, &one.owner)).unwrap();
    world.state.jobs.get_mut(id.bare()).unwrap().state = JobState::Failed;
    let cancel = Action::Cancel(crate::protocol::Cancel { id, tenant: None });
    let reply = Reply::Cancel(crate::protocol::CancelReply::Unknown);
    assert!(world.hears(&cancel, &reply).unwrap_err().starts_with("I2"));
}
