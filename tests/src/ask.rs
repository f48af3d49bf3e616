//! One mutating step as a line of text: what the matrix of faults asks of a caller process, and what the caller says back.

use serde::{Deserialize, Serialize};
use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::{
    DeadReason, Endpoint, Envelope, Fence, JobId, Owner, PoolName, Verdict, WorkerId,
};
use tidegate_shared::protocol::{
    Append, AppendReply, ApplyReply, Beat, Cancel, CancelReply, Claim, ClaimReply, Expire, Follow,
    FollowReply, Idempotency, Pause, Purge, PurgeReply, Renew, RenewItem, RenewStatus, Requeue,
    RequeueReply, Settle, SettleReply, SettleTag, Submit, SubmitReply,
};
use tidegate_shared::store::{Store, StoreError};

/// The tenant of all jobs of the matrix.
pub const TENANT: &str = "acme";
/// What a succeeding settle stores.
pub const RESULT: &[u8] = br#"{"choices":[]}"#;
/// How long a retrying settle lets its job back off, in milliseconds.
const BACKOFF_MS: u64 = 50;
/// Bytes of a stream that are kept, as the worker asks for.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// One delivery, as its worker knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Held {
    /// The job.
    pub id: JobId,
    /// Of the delivery.
    pub fence: u64,
    /// Of the delivery.
    pub owner: String,
}

/// A step with everything that makes it the same step when it is sent again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Accept a job.
    Submit {
        /// Minted by the one who asks.
        id: JobId,
        /// Digest of an idempotency key; empty: none.
        key: String,
        /// Before it may run, in milliseconds; 0: at once.
        delay_ms: u64,
        /// From acceptance, in milliseconds; 0: none.
        deadline_ms: u64,
    },
    /// Hand one job to a worker.
    Claim {
        /// Where.
        pool: String,
        /// Who.
        worker: String,
        /// Minted for it.
        owner: String,
    },
    /// Extend a lease.
    Renew(Held),
    /// Close a delivery.
    Settle {
        /// Which.
        held: Held,
        /// How.
        verdict: Verdict,
        /// Worker and owner of a claim in the same trip.
        next: Option<(String, String)>,
    },
    /// Publish two pieces of a stream.
    Append(Held),
    /// Ask that a stream be published.
    Follow(JobId),
    /// Cancel a job.
    Cancel(JobId),
    /// Give a dead letter a new life; with the operation's id.
    Requeue(JobId, String),
    /// Remove a dead letter.
    Purge(JobId),
    /// A reaper's pass; with the pool and its server's lineage.
    Expire(String, String),
    /// A worker is here; with the pool and the worker.
    Beat(String, String),
    /// Settings of a pool.
    Apply(String, Box<PoolConfig>),
    /// No claims from a pool.
    Pause(String),
}

impl Ask {
    /// Sends the step, and says in a word what came of it; further words say more.
    ///
    /// # Errors
    /// As the step's.
    ///
    /// # Panics
    /// Where a name in it is none: the line was not written by the harness.
    pub async fn send(&self, store: &Store) -> Result<String, StoreError> {
        Ok(match self {
            Self::Submit { .. } => submitted(&store.submit(&self.submit()).await?),
            Self::Claim {
                pool,
                worker,
                owner,
            } => {
                let step = Claim {
                    pool: name(pool),
                    worker: this_worker(worker),
                    owners: vec![this_owner(owner)],
                };
                claimed(&store.claim(&step).await?)
            }
            Self::Renew(held) => renewed(&store.renew(&held.renewal()).await?),
            Self::Settle {
                held,
                verdict,
                next,
            } => settled(&store.settle(&held.settle(*verdict, next.as_ref())).await?),
            Self::Append(held) => match store.append(&held.append()).await? {
                AppendReply::Appended => "appended".into(),
                AppendReply::Lost => "lost".into(),
            },
            Self::Beat(pool, worker) => {
                let step = Beat {
                    pool: name(pool),
                    worker: this_worker(worker),
                    gone: false,
                    info: "{}".into(),
                };
                store.beat(&step).await?;
                "beaten".into()
            }
            operator => operator.send_operator(store).await?,
        })
    }

    /// The steps that no worker sends.
    async fn send_operator(&self, store: &Store) -> Result<String, StoreError> {
        Ok(match self {
            Self::Follow(id) => {
                let (id, tenant) = (id.clone(), Some(TENANT.to_owned()));
                match store.follow(&Follow { id, tenant }).await? {
                    FollowReply::Following(_) => "following".into(),
                    FollowReply::Unknown => "unknown".into(),
                }
            }
            Self::Cancel(id) => {
                let (id, tenant) = (id.clone(), Some(TENANT.to_owned()));
                match store.cancel(&Cancel { id, tenant }).await? {
                    CancelReply::Cancelled => "cancelled".into(),
                    CancelReply::Cancelling => "cancelling".into(),
                    CancelReply::Already(state) => format!("already {state}"),
                    CancelReply::Unknown => "unknown".into(),
                }
            }
            Self::Requeue(id, operation) => {
                let (id, operation) = (id.clone(), operation.clone());
                match store.requeue(&Requeue { id, operation }).await? {
                    RequeueReply::Requeued => "requeued".into(),
                    RequeueReply::NotDead(state) => format!("not_dead {state}"),
                    RequeueReply::Full { limit, .. } => format!("full {limit}"),
                    RequeueReply::Unknown => "unknown".into(),
                }
            }
            Self::Purge(id) => match store.purge(&Purge { id: id.clone() }).await? {
                PurgeReply::Purged => "purged".into(),
                PurgeReply::NotDead(state) => format!("not_dead {state}"),
                PurgeReply::Unknown => "unknown".into(),
            },
            Self::Expire(pool, lineage) => {
                let step = Expire {
                    pool: name(pool),
                    limit: 100,
                    lineage: lineage.clone(),
                };
                let moved = store.expire(&step).await?;
                format!(
                    "expired {} {} {}",
                    moved.promoted, moved.lapsed, moved.overdue
                )
            }
            Self::Apply(pool, config) => match store.apply(&name(pool), config).await? {
                ApplyReply::Applied(version) => format!("applied {version}"),
                ApplyReply::Unchanged(version) => format!("unchanged {version}"),
            },
            Self::Pause(pool) => {
                let step = Pause {
                    pool: name(pool),
                    paused: Some(true),
                    draining: None,
                };
                store.pause(&step).await?;
                "done".into()
            }
            worker => panic!("{worker:?} is a worker's"),
        })
    }

    fn submit(&self) -> Submit {
        let Self::Submit {
            id,
            key,
            delay_ms,
            deadline_ms,
        } = self
        else {
            panic!("{self:?} is no submit")
        };
        let envelope = Envelope {
            endpoint: Endpoint::ChatCompletions,
            body: br#"{"model":"m","messages":[]}"#.to_vec(),
            metadata: String::new(),
            webhook_url: String::new(),
            traceparent: String::new(),
        };
        Submit {
            id: id.clone(),
            tenant: TENANT.into(),
            class: "default".into(),
            priority: 5,
            delay_ms: *delay_ms,
            deadline_ms: *deadline_ms,
            timeout_ms: 0,
            max_attempts: 3,
            model: "m".into(),
            idempotency: Idempotency {
                key_hash: key.clone(),
                body_hash: key.clone(),
            },
            envelope: envelope.to_bytes(),
        }
    }
}

impl Held {
    /// Extends its lease.
    pub fn renewal(&self) -> Renew {
        Renew {
            pool: self.id.pool().clone(),
            default_timeout_ms: 1_800_000,
            items: vec![RenewItem {
                id: self.id.clone(),
                fence: Fence(self.fence),
                owner: this_owner(&self.owner),
                output_tokens: 7,
            }],
        }
    }

    /// Closes it.
    ///
    /// # Panics
    /// Where a name in it is none.
    pub fn settle(&self, verdict: Verdict, next: Option<&(String, String)>) -> Settle {
        Settle {
            id: self.id.clone(),
            fence: Fence(self.fence),
            owner: this_owner(&self.owner),
            verdict,
            delay_ms: BACKOFF_MS,
            reason: DeadReason::Upstream,
            code: match verdict {
                Verdict::Succeed | Verdict::Release => String::new(),
                _ => "upstream_error".into(),
            },
            error: String::new(),
            usage: None,
            content_type: "application/json".into(),
            result: match verdict {
                Verdict::Succeed => RESULT.to_vec(),
                _ => Vec::new(),
            },
            next: next.map(|(worker, owner)| tidegate_shared::protocol::NextClaim {
                worker: this_worker(worker),
                owner: this_owner(owner),
            }),
        }
    }

    fn append(&self) -> Append {
        Append {
            id: self.id.clone(),
            fence: Fence(self.fence),
            owner: this_owner(&self.owner),
            first: 1,
            max_bytes: MAX_BYTES,
            pieces: vec![b"one".to_vec(), b"two".to_vec()],
        }
    }
}

fn name(pool: &str) -> PoolName {
    pool.parse().expect("the harness wrote a pool's name")
}

fn this_worker(text: &str) -> WorkerId {
    WorkerId::parse(text).expect("the harness wrote a worker's id")
}

fn this_owner(text: &str) -> Owner {
    Owner::parse(text).expect("the harness wrote an owner")
}

fn submitted(reply: &SubmitReply) -> String {
    match reply {
        SubmitReply::Accepted => "accepted".into(),
        SubmitReply::Duplicate(id) => format!("duplicate {id}"),
        SubmitReply::Conflict(id) => format!("conflict {id}"),
        SubmitReply::Draining => "draining".into(),
        SubmitReply::Full { limit, .. } => format!("full {limit}"),
        SubmitReply::Unsatisfiable { limit, .. } => format!("unsatisfiable {limit}"),
    }
}

fn claimed(reply: &ClaimReply) -> String {
    match reply {
        ClaimReply::Deliveries(all) => all.iter().fold("deliveries".into(), |text, d| {
            format!("{text} {}", d.fence.0)
        }),
        ClaimReply::None { reason, .. } => format!("none {reason:?}"),
    }
}

fn renewed(reply: &[RenewStatus]) -> String {
    let word = |status: &RenewStatus| match status {
        RenewStatus::Ok => "renewed ok",
        RenewStatus::Follow => "renewed follow",
        RenewStatus::Cancel => "renewed cancel",
        RenewStatus::Lost => "lost",
    };
    reply.first().map_or("nothing", word).into()
}

fn settled(reply: &SettleReply) -> String {
    let word = match reply.tag {
        SettleTag::Settled => "settled",
        SettleTag::Cancelled => "cancelled",
        SettleTag::Duplicate => "duplicate",
        SettleTag::Lost => "lost",
    };
    match &reply.next {
        Some(next) => format!("{word} next {}", next.fence.0),
        None => word.into(),
    }
}
