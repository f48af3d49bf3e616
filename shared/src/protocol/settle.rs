//! The typed face of `lua/settle.lua`.

use super::call::{Call, Corrupt, Reply};
use super::claim::Delivery;
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{DeadReason, Fence, JobId, Owner, PoolName, State, Usage, Verdict, WorkerId};

/// Who wants the next job in the same trip.
#[derive(Clone, Debug, PartialEq)]
pub struct NextClaim {
    /// Who asks.
    pub worker: WorkerId,
    /// Minted for it.
    pub owner: Owner,
}

/// Close one delivery and free what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// The job.
    pub id: JobId,
    /// Of the delivery.
    pub fence: Fence,
    /// Of the delivery.
    pub owner: Owner,
    /// What is asked.
    pub verdict: Verdict,
    /// `retry`: how long the job backs off.
    pub delay_ms: u64,
    /// Reason of the dead letter, for `dead`, and for `retry` where no attempt remains.
    pub reason: DeadReason,
    /// Error code, or empty.
    pub code: String,
    /// JSON of [`crate::domain::JobError`], or empty.
    pub error: String,
    /// What the call used.
    pub usage: Option<Usage>,
    /// Of the result.
    pub content_type: String,
    /// The model's body; empty but for `succeed`.
    pub result: Vec<u8>,
    /// Take the next job in the same trip.
    pub next: Option<NextClaim>,
}

/// Whose verdict it became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleTag {
    /// Done as asked.
    Settled,
    /// A cancel came first: the job is cancelled.
    Cancelled,
    /// This delivery was settled before.
    Duplicate,
    /// The delivery is not ours any more; nothing was changed.
    Lost,
}

/// What became of a settle.
#[derive(Clone, Debug, PartialEq)]
pub struct SettleReply {
    /// Whose verdict it became.
    pub tag: SettleTag,
    /// Where the job stands now; none where there is no such job.
    pub state: Option<State>,
    /// Why it is a dead letter, if this settle made it one.
    pub dead: Option<DeadReason>,
    /// The next delivery, if one was asked for and there was one.
    pub next: Option<Delivery>,
}

impl Step for Settle {
    type Reply = SettleReply;
    const SCRIPT: &'static Script = &script::SETTLE;

    fn pool(&self) -> &PoolName {
        self.id.pool()
    }

    fn bind(&self, deadline_ms: u64) -> Call {
        let (worker, next_owner) = match &self.next {
            Some(next) => (next.worker.as_str(), next.owner.expose()),
            None => ("", ""),
        };
        let mut call = Call::new(Self::SCRIPT, self.pool());
        call.arg("deadline", deadline_ms)
            .arg("id", self.id.bare())
            .arg("fence", self.fence.0)
            .arg("owner", self.owner.expose())
            .arg("verdict", self.verdict.as_str())
            .arg("delay_ms", self.delay_ms)
            .arg("reason", self.reason.as_str())
            .arg("code", self.code.as_str())
            .arg("error", self.error.as_str())
            .arg("input_tokens", self.usage.map(|u| u.input_tokens))
            .arg("output_tokens", self.usage.map(|u| u.output_tokens))
            .arg("estimated", self.usage.is_some_and(|u| u.estimated))
            .arg("content_type", self.content_type.as_str())
            .arg("result", self.result.as_slice())
            .arg("worker", worker)
            .arg("next_owner", next_owner);
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<SettleReply, Corrupt> {
        let now_ms = reply.now_ms();
        let tag = match tag {
            "settled" => SettleTag::Settled,
            "cancelled" => SettleTag::Cancelled,
            "duplicate" => SettleTag::Duplicate,
            "lost" => SettleTag::Lost,
            other => return Err(unknown_tag(other, reply)),
        };
        let parsed = |text: String| (!text.is_empty()).then_some(text);
        let state = parsed(reply.text()?)
            .map(|word| word.parse())
            .transpose()
            .map_err(|e| reply.corrupt(e))?;
        let dead = parsed(reply.text()?)
            .map(|word| word.parse())
            .transpose()
            .map_err(|e| reply.corrupt(e))?;
        let next = match reply.list()? {
            Some(mut one) => Some(Delivery {
                now_ms,
                ..Delivery::read(self.pool(), &mut one)?
            }),
            None => None,
        };
        Ok(SettleReply {
            tag,
            state,
            dead,
            next,
        })
    }
}
