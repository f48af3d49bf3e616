//! The typed face of `lua/`: one step, one script, one type. No I/O: a step binds its arguments and reads its reply.

mod append;
mod apply;
mod beat;
mod call;
mod cancel;
mod claim;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod docs;
mod expire;
mod fetch;
mod follow;
mod holder;
mod inspect;
mod lineage;
mod list;
mod op;
mod pause;
mod pieces;
mod purge;
mod read;
mod renew;
mod requeue;
pub mod script;
mod settle;
mod snapshot;
mod submit;

pub use append::{Append, AppendReply};
pub use apply::{Apply, ApplyReply};
pub use beat::Beat;
pub use call::{Arg, Call, Corrupt, Misread, Outcome, Reply, SCHEMA, Value, base};
pub use cancel::{Cancel, CancelReply};
pub use claim::{Claim, ClaimReply, Delivery, IdleReason};
pub use expire::{Expire, ExpireReply};
pub use fetch::{Fetch, FetchReply, Kept};
pub use follow::{Follow, FollowReply};
pub use holder::{Holder, HolderReply};
pub use inspect::{Fact, Inspect, InspectReply};
pub use lineage::Lineage;
pub use list::{List, ListReply};
pub use op::Op;
pub use pause::Pause;
pub use pieces::{Event, Pieces};
pub use purge::{Purge, PurgeReply};
pub use read::{Read, ReadReply};
pub use renew::{Renew, RenewItem, RenewStatus};
pub use requeue::{Requeue, RequeueReply};
pub use settle::{NextClaim, Settle, SettleReply, SettleTag};
pub use snapshot::{Snapshot, SnapshotReply};
pub use submit::{Idempotency, Submit, SubmitReply};

use crate::domain::PoolName;
use script::Script;

/// A step of the protocol.
pub trait Step {
    /// What it replies, its shared refusals aside.
    type Reply;
    /// Its script.
    const SCRIPT: &'static Script;
    /// Whether it reads alone: no deadline, and no harm where it runs late.
    const READS: bool = false;

    /// The pool it acts on.
    fn pool(&self) -> &PoolName;

    /// Binds the arguments. `deadline_ms`, of the pool's clock, is the time after which the step refuses.
    fn bind(&self, deadline_ms: u64) -> Call;

    /// Reads the reply behind `tag` and the time.
    ///
    /// # Errors
    /// Where the reply is not in the step's header.
    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<Self::Reply, Corrupt>;
}

/// Reads the reply to the send `op` of a step: the pool's time, and what it says.
///
/// # Errors
/// Where the reply answers something else, or is not in the step's header.
pub fn decode<S: Step>(
    step: &S,
    op: &Op,
    value: Value,
) -> Result<(u64, Outcome<S::Reply>), Misread> {
    // Whatever does not carry our identity answers something else, of any shape.
    let foreign = |_| Misread::Foreign {
        step: S::SCRIPT.name,
    };
    let mut reply = Reply::new(S::SCRIPT.name, value).map_err(foreign)?;
    let tag = reply.text().map_err(foreign)?;
    let now_ms = reply.answers(op).map_err(foreign)?;
    reply.set_now_ms(now_ms);
    let outcome = match tag.as_str() {
        "late" => Outcome::Late,
        "no_pool" => Outcome::NoPool,
        tag => Outcome::Done(step.decode(tag, &mut reply)?),
    };
    Ok((now_ms, outcome))
}

/// The error of a tag that no arm of `decode` knows.
fn unknown_tag(tag: &str, reply: &Reply) -> Corrupt {
    reply.corrupt(format_args!("tag `{tag}`"))
}
