//! One of each step, and of each reply.

use super::super::script::Script;
use super::super::{
    Append, Apply, Beat, Cancel, Claim, Expire, Fetch, Follow, Holder, Inspect, Kept, Lineage,
    List, NextClaim, Op, Pause, Pieces, Purge, Read, Renew, RenewItem, Requeue, Settle, Snapshot,
    Step, Submit, Value,
};
use super::source;
use crate::config::PoolConfig;
use crate::domain::{DeadReason, Fence, JobId, Owner, PoolName, State, Usage, Verdict, WorkerId};

/// A bare job id.
const BARE: &str = "0123456789abcdefghjkmnpqrs";

/// What looks at a step of any type.
pub(super) trait Visitor {
    /// Looks at one.
    fn visit<S: Step>(&mut self, step: &S);
}

/// Shows one of each step.
pub(super) fn each_step(visitor: &mut impl Visitor) {
    let pool: PoolName = "gpu".parse().unwrap();
    let id = JobId::from_bare(&pool, BARE).unwrap();
    let (fence, owner, worker) = (Fence(1), Owner::mint(), WorkerId::mint());
    let tenant = Some("acme".to_owned());
    visitor.visit(&Submit {
        id: id.clone(),
        tenant: "acme".into(),
        class: "default".into(),
        priority: 0,
        delay_ms: 0,
        deadline_ms: 0,
        timeout_ms: 0,
        max_attempts: 3,
        model: "m".into(),
        idempotency: super::super::Idempotency {
            key_hash: "k".into(),
            body_hash: "b".into(),
        },
        envelope: vec![1],
    });
    visitor.visit(&Claim {
        pool: pool.clone(),
        worker: worker.clone(),
        owners: vec![owner.clone(), Owner::mint()],
    });
    let item = RenewItem {
        id: id.clone(),
        fence,
        owner: owner.clone(),
        output_tokens: 1,
    };
    visitor.visit(&Renew {
        pool: pool.clone(),
        default_timeout_ms: 1,
        items: vec![item],
    });
    visitor.visit(&Settle {
        id: id.clone(),
        fence,
        owner: owner.clone(),
        verdict: Verdict::Succeed,
        delay_ms: 0,
        reason: DeadReason::Timeout,
        code: String::new(),
        error: String::new(),
        usage: Some(Usage::default()),
        content_type: "application/json".into(),
        result: vec![1],
        next: Some(NextClaim {
            worker: worker.clone(),
            owner: Owner::mint(),
        }),
    });
    visitor.visit(&Append {
        id: id.clone(),
        fence,
        owner,
        first: 1,
        max_bytes: 1,
        pieces: vec![vec![1], vec![2]],
    });
    visitor.visit(&Follow {
        id: id.clone(),
        tenant: tenant.clone(),
    });
    visitor.visit(&Cancel {
        id: id.clone(),
        tenant: tenant.clone(),
    });
    visitor.visit(&Requeue {
        id: id.clone(),
        operation: "op".into(),
    });
    visitor.visit(&Purge { id: id.clone() });
    visitor.visit(&Expire {
        pool: pool.clone(),
        limit: 1,
        lineage: "a".into(),
    });
    visitor.visit(&Lineage { pool: pool.clone() });
    visitor.visit(&Snapshot { pool: pool.clone() });
    visitor.visit(&Read {
        id: id.clone(),
        tenant: tenant.clone(),
    });
    visitor.visit(&List {
        pool: pool.clone(),
        tenant,
        after: Some(id.clone()),
        cursor: Some(1),
        state: Some(State::Queued),
        dead: false,
        class: None,
        limit: 1,
        scan: 1,
    });
    visitor.visit(&Beat {
        pool: pool.clone(),
        worker,
        gone: false,
        info: "{}".into(),
    });
    visitor.visit(&Apply {
        pool: pool.clone(),
        config: PoolConfig::default(),
    });
    visitor.visit(&Pause {
        pool: pool.clone(),
        paused: Some(true),
        draining: None,
    });
    visitor.visit(&Fetch {
        id: id.clone(),
        what: Kept::Result,
        from: 0,
        max_bytes: 1,
    });
    visitor.visit(&Pieces {
        id: id.clone(),
        after: None,
        count: 1,
    });
    visitor.visit(&Holder {
        pool: pool.clone(),
        key_hash: "k".into(),
    });
    visitor.visit(&Inspect {
        pool,
        index: "jobs".into(),
        start: 0,
        count: 1,
    });
}

/// A string of a reply.
pub(super) fn text(word: &str) -> Value {
    Value::Bytes(word.as_bytes().to_vec())
}

/// A reply as the header's line has it, with a fitting value for each of its words.
pub(super) fn sample_reply(script: &Script, line: &'static str, op: &Op) -> (&'static str, Value) {
    let line = line.split("  ").next().unwrap();
    let mut words = line.split_whitespace();
    let tag = words.next().unwrap();
    assert!(matches!(words.next(), Some("now" | "version")), "{line}");
    let mut items = vec![text(tag), text(&format!("1 {op}"))];
    for word in words {
        match (script.name, word) {
            // Names of the pairs are in the script's last statement.
            ("snapshot", "field") => {
                for name in source::quoted(script.step.rsplit_once("'snapshot'").unwrap().1) {
                    items.extend([text(&name), text("1")]);
                }
            }
            ("read", "field") => items.extend([text("state"), text("queued")]),
            ("renew", "status...") => items.push(text("ok")),
            (_, "value...") => {}
            (_, "delivery..." | "next..." | "job..." | "fact..." | "piece...") => {}
            ("read", "pending_reason") => items.push(text("slots")),
            ("claim", "reason") => items.push(text("empty")),
            ("settle", "reason") => items.push(text("timeout")),
            (_, "state" | "status") => items.push(text("failed")),
            (_, "limit") => items.push(text("max_queued")),
            (_, "id") => items.push(text(BARE)),
            _ => items.push(text("1")),
        }
    }
    (tag, Value::Array(items))
}
