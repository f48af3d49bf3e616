//! What the random programs do not do: steps that read, and bounds that take long to reach.

use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::{DeadReason, JobId, Owner, PoolName, State, Verdict, WorkerId};
use tidegate_shared::protocol::{
    Append, Apply, Claim, ClaimReply, Delivery, Expire, ExpireReply, Holder, HolderReply,
    Idempotency, List, ListReply, Outcome, Purge, Read, ReadReply, Renew, RenewItem, Requeue,
    RequeueReply, Settle, Step, Submit, SubmitReply, base,
};

use crate::rig::Rig;

const FAR_MS: u64 = (1 << 53) - 1;
/// Deliveries that a record keeps, as lua/lib/job.lua has it.
const HISTORY: usize = 20;

/// The checks that look at a file of `lua/`; the name of the first that fails.
pub(crate) fn checks(rig: &mut Rig, file: &str) -> Result<(), String> {
    type Check = fn(&mut Pool) -> Result<bool, String>;
    let all: [(&str, &[&str], Check); 13] = [
        ("tenants see their own", &["read", "list"], tenants),
        ("a page is as long as asked for", &["list"], pages),
        ("a key lives with its job", &["holder"], keys),
        ("a reply is of a bounded size", &["lib/take"], bytes),
        ("a record is of a bounded size", &["lib/take"], history),
        ("an owner is used once", &["lib/take"], owners),
        ("a stream goes on over deliveries", &["append"], streams),
        ("a pass is of a bounded size", &["expire"], passes),
        ("a shorter lease is for new ones", &["renew"], leases),
        ("bytes have a bound", &["submit", "requeue"], full),
        ("a requeue of an earlier life is known", &["requeue"], lives),
        ("a store that was away is to blame", &["lib/lapse"], blame),
        ("a suspect ends at its deadline", &["lib/lapse"], suspects),
    ];
    for (name, files, check) in all {
        if !files.contains(&file) {
            continue;
        }
        let () = rig.command(&["FLUSHALL"]);
        let mut pool = Pool {
            rig,
            name: "gpu".parse().unwrap(),
        };
        pool.applies(PoolConfig::default())?;
        if check(&mut pool) != Ok(true) {
            return Err(format!("check: {name}"));
        }
    }
    Ok(())
}

struct Pool<'a> {
    rig: &'a mut Rig,
    name: PoolName,
}

impl Pool<'_> {
    fn sends<S: Step>(&mut self, step: &S) -> Result<S::Reply, String> {
        match self.rig.try_send(step, FAR_MS)?.1 {
            Outcome::Done(reply) => Ok(reply),
            Outcome::Late | Outcome::NoPool => Err("refused".into()),
        }
    }

    fn applies(&mut self, config: PoolConfig) -> Result<(), String> {
        let pool = self.name.clone();
        self.sends(&Apply { pool, config }).map(drop)
    }

    /// Time passes for the pool.
    fn waits(&mut self, ms: u64) {
        let key = format!("{}:state", base(&self.name));
        let _: i64 = self
            .rig
            .command(&["HINCRBY", &key, "skew", &ms.to_string()]);
    }

    fn passes(&mut self, limit: u32) -> Result<ExpireReply, String> {
        self.sends(&Expire {
            pool: self.name.clone(),
            limit,
            lineage: String::new(),
        })
    }

    fn submits(&mut self, tenant: &str, key: &str, bytes: usize) -> Result<JobId, String> {
        let step = self.submit(tenant, key, bytes);
        self.sends(&step)?;
        Ok(step.id)
    }

    fn submit(&self, tenant: &str, key: &str, bytes: usize) -> Submit {
        Submit {
            id: JobId::mint(&self.name),
            tenant: tenant.into(),
            class: "default".into(),
            priority: 0,
            delay_ms: 0,
            deadline_ms: 0,
            timeout_ms: 0,
            max_attempts: 1,
            model: String::new(),
            idempotency: Idempotency {
                key_hash: key.into(),
                body_hash: "body".into(),
            },
            envelope: vec![b'x'; bytes],
        }
    }

    fn claims(&mut self, want: usize) -> Result<Vec<Delivery>, String> {
        let claim = Claim {
            pool: self.name.clone(),
            worker: WorkerId::mint(),
            owners: (0..want).map(|_| Owner::mint()).collect(),
        };
        Ok(match self.sends(&claim)? {
            ClaimReply::Deliveries(taken) => taken,
            ClaimReply::None { .. } => Vec::new(),
        })
    }

    fn settles(&mut self, one: &Delivery, verdict: Verdict) -> Result<(), String> {
        let step = Settle {
            id: one.id.clone(),
            fence: one.fence,
            owner: one.owner.clone(),
            verdict,
            delay_ms: 0,
            reason: DeadReason::Upstream,
            code: String::new(),
            error: String::new(),
            usage: None,
            content_type: String::new(),
            result: Vec::new(),
            next: None,
        };
        self.sends(&step).map(drop)
    }

    fn lists(&mut self, tenant: &str, after: Option<&JobId>) -> Result<ListReply, String> {
        self.sends(&List {
            pool: self.name.clone(),
            tenant: Some(tenant.into()),
            after: after.cloned(),
            cursor: None,
            state: Some(State::Queued),
            dead: false,
            class: None,
            limit: 2,
            scan: 100,
        })
    }
}

fn tenants(pool: &mut Pool) -> Result<bool, String> {
    let (mine, yours) = (pool.submits("acme", "", 1)?, pool.submits("globex", "", 1)?);
    let sees = |id: &JobId, tenant: &str| Read {
        id: id.clone(),
        tenant: Some(tenant.into()),
    };
    let listed = match pool.lists("globex", None)? {
        ListReply::Page { jobs, .. } => jobs.into_iter().map(|job| job.id).collect(),
        ListReply::Unknown => Vec::new(),
    };
    Ok(pool.sends(&sees(&mine, "globex"))? == ReadReply::Unknown
        && pool.sends(&sees(&yours, "globex"))? != ReadReply::Unknown
        && listed == [yours]
        && pool.lists("globex", Some(&mine))? == ListReply::Unknown)
}

fn pages(pool: &mut Pool) -> Result<bool, String> {
    for _ in 0..3 {
        pool.submits("acme", "", 1)?;
    }
    Ok(match pool.lists("acme", None)? {
        ListReply::Page { jobs, .. } => jobs.len() == 2,
        ListReply::Unknown => false,
    })
}

fn keys(pool: &mut Pool) -> Result<bool, String> {
    let id = pool.submits("acme", "key", 1)?;
    let look = Holder {
        pool: pool.name.clone(),
        key_hash: "key".into(),
    };
    let before = pool.sends(&look)?;
    let one = pool.claims(1)?.remove(0);
    pool.settles(&one, Verdict::Dead)?;
    pool.sends(&Purge { id: id.clone() })?;
    let held = HolderReply::Job {
        id,
        body_hash: "body".into(),
    };
    Ok(before == held && pool.sends(&look)? == HolderReply::Unknown)
}

fn bytes(pool: &mut Pool) -> Result<bool, String> {
    for megabytes in [3, 3, 3, 9] {
        pool.submits("acme", "", megabytes << 20)?;
    }
    let taken = [pool.claims(4)?, pool.claims(4)?, pool.claims(4)?];
    Ok(taken.map(|one| one.len()) == [2, 1, 1])
}

fn history(pool: &mut Pool) -> Result<bool, String> {
    let id = pool.submits("acme", "", 1)?;
    for _ in 0..=HISTORY {
        let one = pool.claims(1)?.remove(0);
        pool.settles(&one, Verdict::Release)?;
    }
    let key = format!("{}:job:{}", base(&pool.name), id.bare());
    let fields: Vec<String> = pool.rig.command(&["HKEYS", &key]);
    let kept = fields.iter().filter(|name| {
        name.strip_prefix('d')
            .is_some_and(|rest| rest.parse::<u64>().is_ok())
    });
    Ok(kept.count() == HISTORY)
}

/// The first copy of a claim may run for ten seconds, its repeat for longer: then the owner is spent for longer, too.
fn owners(pool: &mut Pool) -> Result<bool, String> {
    pool.submits("acme", "", 1)?;
    let claim = Claim {
        pool: pool.name.clone(),
        worker: WorkerId::mint(),
        owners: vec![Owner::mint()],
    };
    let pass = Expire {
        pool: pool.name.clone(),
        limit: 1,
        lineage: String::new(),
    };
    let (now_ms, _) = pool.rig.try_send(&pass, FAR_MS)?;
    pool.rig.try_send(&claim, now_ms + 10_000)?;
    let ClaimReply::Deliveries(taken) = pool.sends(&claim)? else {
        return Ok(false);
    };
    pool.settles(&taken[0], Verdict::Release)?;
    pool.waits(11_000);
    pool.passes(1)?;
    Ok(matches!(pool.sends(&claim)?, ClaimReply::None { .. }))
}

fn streams(pool: &mut Pool) -> Result<bool, String> {
    let id = pool.submits("acme", "", 1)?;
    for pieces in [3, 1] {
        let one = pool.claims(1)?.remove(0);
        pool.sends(&Append {
            id: id.clone(),
            fence: one.fence,
            owner: one.owner.clone(),
            first: 1,
            max_bytes: 100,
            pieces: vec![b"x".to_vec(); pieces],
        })?;
        pool.settles(&one, Verdict::Release)?;
    }
    let key = format!("{}:events:{}", base(&pool.name), id.bare());
    Ok(pool.rig.command::<usize>(&["XLEN", &key]) == 4)
}

fn passes(pool: &mut Pool) -> Result<bool, String> {
    let config = PoolConfig::default();
    for _ in 0..3 {
        pool.submits("acme", "", 1)?;
        let one = pool.claims(1)?.remove(0);
        pool.settles(&one, Verdict::Dead)?;
    }
    pool.waits(config.dead_letter_retention_ms + 1);
    Ok([pool.passes(2)?.letters, pool.passes(2)?.letters] == [2, 1])
}

fn leases(pool: &mut Pool) -> Result<bool, String> {
    let id = pool.submits("acme", "", 1)?;
    let one = pool.claims(1)?.remove(0);
    pool.applies(PoolConfig {
        lease_ms: 1_000,
        renew_ms: 200,
        ..PoolConfig::default()
    })?;
    pool.sends(&Renew {
        pool: pool.name.clone(),
        default_timeout_ms: 60_000,
        items: vec![RenewItem {
            id: id.clone(),
            fence: one.fence,
            owner: one.owner,
            output_tokens: 0,
        }],
    })?;
    let key = format!("{}:leases", base(&pool.name));
    let until: u64 = pool.rig.command(&["ZSCORE", &key, id.bare()]);
    Ok(until == one.expires_at_ms)
}

/// A copy of a requeue that comes after the job died again, and even after another requeue, gives no life.
fn lives(pool: &mut Pool) -> Result<bool, String> {
    let id = pool.submits("acme", "", 1)?;
    let requeue = |operation: &str| Requeue {
        id: id.clone(),
        operation: operation.into(),
    };
    for operation in ["first", "second"] {
        let one = pool.claims(1)?;
        pool.settles(&one[0], Verdict::Dead)?;
        if pool.sends(&requeue(operation))? != RequeueReply::Requeued {
            return Ok(false);
        }
    }
    let one = pool.claims(1)?;
    pool.settles(&one[0], Verdict::Dead)?;
    let again = [
        pool.sends(&requeue("first"))?,
        pool.sends(&requeue("second"))?,
    ];
    Ok(again == [RequeueReply::Requeued, RequeueReply::Requeued] && pool.claims(1)?.is_empty())
}

fn full(pool: &mut Pool) -> Result<bool, String> {
    pool.applies(PoolConfig {
        max_queued_bytes: 100,
        ..PoolConfig::default()
    })?;
    let id = pool.submits("acme", "", 60)?;
    let second = pool.submit("acme", "", 60);
    let refused = pool.sends(&second)?;
    let one = pool.claims(1)?.remove(0);
    pool.settles(&one, Verdict::Dead)?;
    let accepted = pool.sends(&second)? == SubmitReply::Accepted;
    let requeue = Requeue {
        id,
        operation: "op".into(),
    };
    let bytes = |limit: &str| limit == "max_queued_bytes";
    Ok(accepted
        && matches!(refused, SubmitReply::Full { limit, .. } if bytes(&limit))
        && matches!(pool.sends(&requeue)?, RequeueReply::Full { limit, .. } if bytes(&limit)))
}

fn blame(pool: &mut Pool) -> Result<bool, String> {
    pool.applies(PoolConfig {
        lease_ms: 1_000,
        renew_ms: 200,
        max_lost_leases: 1,
        ..PoolConfig::default()
    })?;
    let id = pool.submits("acme", "", 1)?;
    pool.claims(1)?;
    // No step for more than half a lease, and then the end of the grace.
    pool.waits(700);
    let mut lapsed = pool.passes(100)?.lapsed;
    for _ in 0..4 {
        pool.waits(300);
        lapsed += pool.passes(100)?.lapsed;
    }
    let read = Read { id, tenant: None };
    let state = match pool.sends(&read)? {
        ReadReply::Job { job, .. } => Some(job.state),
        ReadReply::Unknown => None,
    };
    Ok(lapsed == 1 && state == Some(State::Queued))
}

fn suspects(pool: &mut Pool) -> Result<bool, String> {
    pool.applies(PoolConfig {
        lease_ms: 1_000,
        renew_ms: 200,
        max_lost_leases: 2,
        ..PoolConfig::default()
    })?;
    let mut step = pool.submit("acme", "", 1);
    step.deadline_ms = 2_200;
    pool.sends(&step)?;
    pool.claims(1)?;
    for _ in 0..4 {
        pool.waits(300);
        pool.passes(100)?;
    }
    let key = format!("{}:suspects", base(&pool.name));
    let taken = pool.claims(1)?.len();
    let marked: u64 = pool.rig.command(&["ZCARD", &key]);
    for _ in 0..3 {
        pool.waits(400);
        pool.passes(100)?;
    }
    let left: u64 = pool.rig.command(&["ZCARD", &key]);
    Ok((taken, marked, left) == (1, 1, 0))
}
