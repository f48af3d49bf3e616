//! Steps whose answers are shown to clients. Under `durability = "replicated"` an acceptance, a cancel, a requeue or an
//! end of a job is shown only once enough replicas hold it; until then it is *unconfirmed*, and asking again may confirm
//! it. What a worker publishes waits for nothing: who reads it first confirms it.

use super::confirm::{Confirmed, Proof};
use super::{Store, StoreError, Trouble};
use crate::domain::{Job, JobId, PoolName};
use crate::protocol::{
    Cancel, CancelReply, List, ListReply, Read, ReadReply, Requeue, RequeueReply, Submit,
    SubmitReply,
};

/// Looks at something that changes between its reading and its confirmation: a dead letter that is requeued.
const LOOKS: u32 = 3;

impl Store {
    /// Accepts a job. A submit that was stored before under its own id is accepted.
    ///
    /// # Errors
    /// Where the store cannot say, or too few replicas confirm; the same step may be sent again.
    pub async fn submit(&self, step: &Submit) -> Result<SubmitReply, StoreError> {
        let reply = self.place(step).await?;
        match &reply {
            SubmitReply::Accepted => self.must_hold(Proof::stored(&step.id), &step.id).await?,
            SubmitReply::Duplicate(id) => self.must_hold(Proof::stored(id), id).await?,
            _ => {}
        }
        Ok(reply)
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// Where the store cannot say, or too few replicas confirm; the same step may be sent again.
    pub async fn cancel(&self, step: &Cancel) -> Result<CancelReply, StoreError> {
        let reply = self.run(step).await?;
        let id = &step.id;
        match &reply {
            CancelReply::Cancelled | CancelReply::Already(_) => {
                self.must_hold(Proof::ended(id, None), id).await?;
            }
            CancelReply::Cancelling => self.must_hold(Proof::marked(id), id).await?,
            CancelReply::Unknown => {}
        }
        Ok(reply)
    }

    /// Gives a dead letter a new life.
    ///
    /// # Errors
    /// Where the store cannot say, or too few replicas confirm; the same step may be sent again.
    pub async fn requeue(&self, step: &Requeue) -> Result<RequeueReply, StoreError> {
        let reply = self.run(step).await?;
        if reply == RequeueReply::Requeued {
            let proof = Proof::requeued(&step.id, &step.operation);
            self.must_hold(proof, &step.id).await?;
        }
        Ok(reply)
    }

    /// Reads a job.
    ///
    /// # Errors
    /// Where the store cannot say, or it has an end that too few replicas confirm; the same step may be sent again.
    pub async fn read(&self, step: &Read) -> Result<ReadReply, StoreError> {
        for _ in 0..LOOKS {
            let reply = self.run(step).await?;
            let ended = match &reply {
                ReadReply::Job { job, .. } => end_of(job).into_iter().collect(),
                ReadReply::Unknown => Vec::new(),
            };
            if self.holds(step.id.pool(), ended).await? {
                return Ok(reply);
            }
        }
        Err(self.lost(step.id.to_string()))
    }

    /// Reads a page of jobs.
    ///
    /// # Errors
    /// Where the store cannot say, or the page has an end that too few replicas confirm; the same step may be sent again.
    pub async fn list(&self, step: &List) -> Result<ListReply, StoreError> {
        for _ in 0..LOOKS {
            let reply = self.run(step).await?;
            let ended = match &reply {
                ListReply::Page { jobs, .. } => jobs.iter().filter_map(end_of).collect(),
                ListReply::Unknown => Vec::new(),
            };
            if self.holds(&step.pool, ended).await? {
                return Ok(reply);
            }
        }
        Err(self.lost("a job of this page"))
    }

    async fn must_hold(&self, proof: Proof, id: &JobId) -> Result<(), StoreError> {
        match self.holds(id.pool(), vec![proof]).await? {
            true => Ok(()),
            false => Err(self.lost(id.to_string())),
        }
    }

    /// Whether the primary still has all of it, and enough replicas.
    async fn holds(&self, pool: &PoolName, proofs: Vec<Proof>) -> Result<bool, StoreError> {
        match self.0.confirm.confirm(pool, proofs).await {
            Confirmed::Yes => Ok(true),
            Confirmed::Differs => Ok(false),
            Confirmed::Short(why) => Err(self.counted(why)),
        }
    }

    fn lost(&self, what: impl std::fmt::Display) -> StoreError {
        self.counted(format!("the primary does not have {what} as it was read"))
    }

    fn counted(&self, detail: String) -> StoreError {
        let trouble = Trouble::Unconfirmed;
        self.0.metrics.store_error(trouble.as_str());
        StoreError::Unavailable { trouble, detail }
    }
}

/// What proves a job's end; none where it has not ended.
fn end_of(job: &Job) -> Option<Proof> {
    let ended = job.state.is_terminal();
    ended.then(|| Proof::ended(&job.id, job.finished_at_ms))
}
