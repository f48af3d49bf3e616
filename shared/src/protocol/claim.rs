//! The typed face of `lua/claim.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{Fence, JobId, Owner, PoolName, UnknownWord, WorkerId};

/// Hand waiting jobs to a worker, at most one for each owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Where to look.
    pub pool: PoolName,
    /// Who asks.
    pub worker: WorkerId,
    /// Minted for this claim; the same owners again get the same deliveries.
    pub owners: Vec<Owner>,
}

/// One handing of a job to one worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The job.
    pub id: JobId,
    /// Raised by this claim.
    pub fence: Fence,
    /// Proves that the delivery is ours.
    pub owner: Owner,
    /// End of the lease, in ms of the pool's clock.
    pub expires_at_ms: u64,
    /// Attempts spent before.
    pub attempts: u32,
    /// Attempts allowed.
    pub max_attempts: u32,
    /// Who pays.
    pub tenant: String,
    /// Kind of traffic.
    pub class: String,
    /// Acceptance, in ms of the pool's clock.
    pub created_at_ms: u64,
    /// In ms of the pool's clock.
    pub deadline_at_ms: Option<u64>,
    /// Of the job itself; none: the pool's.
    pub timeout_ms: Option<u64>,
    /// Somebody reads along.
    pub follow: bool,
    /// Model asked for.
    pub model: String,
    /// MessagePack of [`crate::domain::Envelope`].
    pub envelope: Vec<u8>,
    /// The pool's time at the claim.
    pub now_ms: u64,
}

/// Why a claim brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleReason {
    /// Nothing waits that this worker may have.
    Empty,
    /// All slots of the pool are taken.
    Slots,
    /// The pool is paused.
    Paused,
}

impl std::str::FromStr for IdleReason {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "empty" => Ok(Self::Empty),
            "slots" => Ok(Self::Slots),
            "paused" => Ok(Self::Paused),
            other => Err(UnknownWord {
                kind: "idle reason",
                word: other.to_owned(),
            }),
        }
    }
}

/// What a claim brought.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimReply {
    /// At least one delivery.
    Deliveries(Vec<Delivery>),
    /// Nothing now.
    None {
        /// Why.
        reason: IdleReason,
        /// In how many ms the next scheduled job is due.
        due_in_ms: Option<u64>,
    },
}

impl Delivery {
    /// Reads one delivery of a reply.
    pub(super) fn read(pool: &PoolName, reply: &mut Reply) -> Result<Self, Corrupt> {
        let bare = reply.text()?;
        let id = JobId::from_bare(pool, &bare).map_err(|e| reply.corrupt(e))?;
        let fence = Fence(reply.number()?);
        let owner = Owner::parse(&reply.text()?).map_err(|e| reply.corrupt(e))?;
        let expires_at_ms = reply.number()?;
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(Self {
            id,
            fence,
            owner,
            expires_at_ms,
            attempts: small(reply.number()?),
            max_attempts: small(reply.number()?),
            tenant: reply.text()?,
            class: reply.text()?,
            created_at_ms: reply.number()?,
            deadline_at_ms: Some(reply.number()?).filter(|&at| at > 0),
            timeout_ms: Some(reply.number()?).filter(|&ms| ms > 0),
            follow: !reply.text()?.is_empty(),
            model: reply.text()?,
            envelope: reply.bytes()?,
            now_ms: 0,
        })
    }
}

impl Step for Claim {
    type Reply = ClaimReply;
    const SCRIPT: &'static Script = &script::CLAIM;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, &self.pool);
        call.arg("deadline", deadline_ms)
            .arg("worker", self.worker.as_str());
        for owner in &self.owners {
            call.arg("owners", owner.expose());
        }
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<ClaimReply, Corrupt> {
        let now_ms = reply.now_ms();
        match tag {
            "deliveries" => {
                let mut deliveries = Vec::with_capacity(self.owners.len());
                while let Some(mut one) = reply.list()? {
                    let mut delivery = Delivery::read(&self.pool, &mut one)?;
                    delivery.now_ms = now_ms;
                    deliveries.push(delivery);
                }
                Ok(ClaimReply::Deliveries(deliveries))
            }
            "none" => Ok(ClaimReply::None {
                reason: reply.word()?,
                due_in_ms: reply.maybe_number()?.map(|at| at.saturating_sub(now_ms)),
            }),
            other => Err(unknown_tag(other, reply)),
        }
    }
}
