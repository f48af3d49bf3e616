//! The store as a list of steps.

use std::time::{Duration, Instant};

use super::{Lane, Store, StoreError};
use crate::domain::{Envelope, JobId, PoolName};
use crate::protocol::{
    Append, AppendReply, Beat, Claim, ClaimReply, Event, Expire, ExpireReply, Fetch, FetchReply,
    Follow, FollowReply, Holder, HolderReply, Inspect, InspectReply, Kept, Lineage, Pause, Pieces,
    Purge, PurgeReply, Renew, RenewStatus, Settle, SettleReply, Snapshot, SnapshotReply, Submit,
    SubmitReply, base,
};

/// How long it is remembered which pool a key was used in: a day, as keys are by default.
const KEY_ROUTE_MS: u64 = 86_400_000;
/// Pause between two looks for a submit that took a key and has not arrived yet.
const KEY_LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Declares a method for each step.
macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident($step:ty) -> $reply:ty;)+) => {
        impl Store {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Where the store cannot say; the same step may be sent again.
                pub async fn $name(&self, step: &$step) -> Result<$reply, StoreError> {
                    self.run(step).await
                }
            )+
        }
    };
}

steps! {
    /// Hands waiting jobs to a worker.
    claim(Claim) -> ClaimReply;
    /// Closes a delivery; may take the next job in the same trip.
    settle(Settle) -> SettleReply;
    /// Publishes pieces of a stream.
    append(Append) -> AppendReply;
    /// Asks that a job's stream be published.
    follow(Follow) -> FollowReply;
    /// Removes a dead letter.
    purge(Purge) -> PurgeReply;
    /// The reaper's pass.
    expire(Expire) -> ExpireReply;
    /// Names the history of writes that a pool's server goes on with.
    lineage(Lineage) -> String;
    /// A worker says that it is here.
    beat(Beat) -> ();
    /// Stops or resumes claims or submits.
    pause(Pause) -> ();
    /// Reads raw facts for `doctor`.
    inspect(Inspect) -> InspectReply;
}

impl Store {
    /// Stores a job, whatever replicas have of it.
    ///
    /// A key counts for the whole tenant, a script for one pool alone: where the key was last used in another pool, that
    /// pool is asked first.
    pub(super) async fn place(&self, step: &Submit) -> Result<SubmitReply, StoreError> {
        if let Some(reply) = self.used_elsewhere(step).await? {
            return Ok(reply);
        }
        Ok(match self.run(step).await? {
            SubmitReply::Duplicate(id) if id == step.id => SubmitReply::Accepted,
            other => other,
        })
    }

    /// The reply where the submit's key belongs to a job of another pool.
    async fn used_elsewhere(&self, step: &Submit) -> Result<Option<SubmitReply>, StoreError> {
        let hash = &step.idempotency.key_hash;
        if hash.is_empty() {
            return Ok(None);
        }
        let routed = format!("{}:{hash}", super::directory::key("idempotency"));
        let here = step.id.pool().to_string();
        let mut first = redis::cmd("SET");
        first
            .arg(&routed)
            .arg(&here)
            .arg("NX")
            .arg("GET")
            .arg("PX")
            .arg(KEY_ROUTE_MS);
        let earlier: Option<String> = self.command(&first).await?;
        let other: PoolName = match earlier {
            Some(pool) if pool != here => match pool.parse() {
                Ok(pool) => pool,
                Err(_) => return Ok(None),
            },
            _ => return Ok(None),
        };
        if let Some((id, body_hash)) = self.holder_of_key(&routed, &other, hash).await? {
            let same = body_hash == step.idempotency.body_hash;
            return Ok(Some(if same {
                SubmitReply::Duplicate(id)
            } else {
                SubmitReply::Conflict(id)
            }));
        }
        self.command::<()>(
            redis::cmd("SET")
                .arg(routed)
                .arg(here)
                .arg("PX")
                .arg(KEY_ROUTE_MS),
        )
        .await?;
        Ok(None)
    }

    /// The job and its request's digest that a pool has of a key that was taken for it. A submit that took the key less than its time-out ago may
    /// still be on its way there, so it is waited for.
    async fn holder_of_key(
        &self,
        routed: &str,
        pool: &PoolName,
        hash: &str,
    ) -> Result<Option<(JobId, String)>, StoreError> {
        let look = Holder {
            pool: pool.clone(),
            key_hash: hash.to_owned(),
        };
        let started = Instant::now();
        loop {
            match self.run(&look).await {
                Ok(HolderReply::Job { id, body_hash }) => return Ok(Some((id, body_hash))),
                Ok(HolderReply::Unknown) | Err(StoreError::NoPool(_)) => {}
                Err(error) => return Err(error),
            }
            let left_ms: i64 = self.command(redis::cmd("PTTL").arg(routed)).await?;
            let age_ms = KEY_ROUTE_MS.saturating_sub(u64::try_from(left_ms).unwrap_or(0));
            let on_its_way = Duration::from_millis(age_ms) < self.0.timeout
                && started.elapsed() < self.0.timeout;
            if !on_its_way {
                return Ok(None);
            }
            tokio::time::sleep(KEY_LOOK_AGAIN).await;
        }
    }

    /// Extends leases, on a connection apart from all other work.
    ///
    /// # Errors
    /// Where the store cannot say; the same step may be sent again.
    pub async fn renew(&self, step: &Renew) -> Result<Vec<RenewStatus>, StoreError> {
        self.run_on(step, Lane::Renewals).await
    }

    /// Counts a pool.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn snapshot(&self, pool: &PoolName) -> Result<SnapshotReply, StoreError> {
        self.run(&Snapshot { pool: pool.clone() }).await
    }

    /// What a job's client submitted; none once it is gone.
    ///
    /// # Errors
    /// Where the store cannot say, or holds something else.
    pub async fn envelope(&self, id: &JobId) -> Result<Option<Envelope>, StoreError> {
        let kept = self
            .fetch(id, Kept::Envelope, 0, Fetch::WHOLE_BYTES)
            .await?;
        if kept.size == 0 {
            return Ok(None);
        }
        Envelope::from_bytes(&kept.bytes)
            .map(Some)
            .map_err(|e| StoreError::Corrupt(format!("envelope of {id}: {e}")))
    }

    /// The model's body; none where there is none, or once it is gone.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn result(&self, id: &JobId) -> Result<Option<Vec<u8>>, StoreError> {
        let kept = self.fetch(id, Kept::Result, 0, Fetch::WHOLE_BYTES).await?;
        Ok((kept.size > 0).then_some(kept.bytes))
    }

    /// The model's body if it has at most `max_bytes`; of a larger one no more is read. None where there is none, or once it
    /// is gone, or where it is larger.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn small_result(
        &self,
        id: &JobId,
        max_bytes: usize,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let kept = self.fetch(id, Kept::Result, 0, max_bytes as u64).await?;
        let whole = kept.size > 0 && kept.size == kept.bytes.len() as u64;
        Ok(whole.then_some(kept.bytes))
    }

    /// Bytes of the model's body; 0 where there is none, or once it is gone.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn result_bytes(&self, id: &JobId) -> Result<usize, StoreError> {
        let kept = self.fetch(id, Kept::Result, 0, 0).await?;
        usize::try_from(kept.size).map_err(|e| StoreError::Corrupt(e.to_string()))
    }

    /// At most `max_bytes`, at least 1, of the model's body from the byte `from` on; fewer at its end, none once it is gone.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn result_piece(
        &self,
        id: &JobId,
        from: usize,
        max_bytes: usize,
    ) -> Result<Vec<u8>, StoreError> {
        let kept = self
            .fetch(id, Kept::Result, from as u64, max_bytes as u64)
            .await?;
        Ok(kept.bytes)
    }

    async fn fetch(
        &self,
        id: &JobId,
        what: Kept,
        from: u64,
        max_bytes: u64,
    ) -> Result<FetchReply, StoreError> {
        let step = Fetch {
            id: id.clone(),
            what,
            from,
            max_bytes,
        };
        self.run_on(&step, Lane::Bulk).await
    }

    /// Pieces of a job's stream after `after`, at most `count`.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn events(
        &self,
        id: &JobId,
        after: Option<&str>,
        count: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let step = Pieces {
            id: id.clone(),
            after: after.map(str::to_owned),
            count: count as u64,
        };
        self.run_on(&step, Lane::Bulk).await
    }

    /// What each worker of a pool last said of itself, as JSON.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn workers(&self, pool: &PoolName) -> Result<Vec<String>, StoreError> {
        let now_ms = self.snapshot(pool).await?.now_ms;
        let base = base(pool);
        let index = format!("{base}:workers");
        let ids: Vec<String> = self
            .command(
                redis::cmd("ZRANGEBYSCORE")
                    .arg(&index)
                    .arg(format!("({now_ms}"))
                    .arg("+inf"),
            )
            .await?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<String> = ids.iter().map(|id| format!("{base}:worker:{id}")).collect();
        let all: Vec<Option<String>> = self.command(redis::cmd("MGET").arg(&keys)).await?;
        Ok(all.into_iter().flatten().collect())
    }
}
