//! A job as the store keeps it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Fence, JobId};

/// A word of the protocol that is not in its list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no {kind}")]
pub struct UnknownWord {
    /// What list it should be in.
    pub kind: &'static str,
    /// The word.
    pub word: String,
}

/// Declares an enum whose variants are words of the protocol, the same in Lua, API and metrics.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $kind:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+ }
        impl $name {
            /// Every word.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// The word.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $word,)+ } }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.as_str()) }
        }
        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word { $($word => Ok(Self::$variant),)+ _ => Err(UnknownWord { kind: $kind, word: word.to_owned() }) }
            }
        }
    };
}

words! {
    /// Where a job stands.
    State, "state" {
        /// Not due yet: delayed by its submitter or backing off.
        Scheduled = "scheduled",
        /// Waiting to be claimed.
        Queued = "queued",
        /// Under a lease.
        Running = "running",
        /// Terminal: the model's answer is stored.
        Succeeded = "succeeded",
        /// Terminal: no answer; a dead letter or a refusal that will never change.
        Failed = "failed",
        /// Terminal: cancelled before an answer was published.
        Cancelled = "cancelled",
        /// Terminal: its deadline came while it waited.
        Expired = "expired",
    }
}

impl State {
    /// Whether the state never changes again.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Queued | Self::Running)
    }
}

words! {
    /// What a worker asks at the end of a delivery.
    Verdict, "verdict" {
        /// The answer is complete.
        Succeed = "succeed",
        /// Final refusal; no dead letter.
        Fail = "fail",
        /// Final, and kept for a person.
        Dead = "dead",
        /// Again later, while attempts remain.
        Retry = "retry",
        /// Handed back by a planned stop; spends no attempt.
        Release = "release",
    }
}

words! {
    /// Why a job is a dead letter.
    DeadReason, "reason" {
        /// All attempts were spent.
        AttemptsExhausted = "attempts_exhausted",
        /// Its workers died, too often.
        Poison = "poison",
        /// Its runs took longer than its time-out.
        Timeout = "timeout",
        /// Its deadline came while it ran, or before it could be tried again.
        Deadline = "deadline",
        /// Nothing serves its model.
        Unroutable = "unroutable",
        /// The model server's answer could not be used.
        Upstream = "upstream",
    }
}

words! {
    /// Why a waiting job waits.
    PendingReason, "pending reason" {
        /// All slots of the pool are taken, or those ahead take them.
        Slots = "slots",
        /// The pool is paused.
        Paused = "paused",
        /// No worker serves the pool.
        NoWorker = "no_worker",
        /// Its delay is not over.
        NotDue = "not_due",
        /// It failed and is tried again later.
        Backoff = "backoff",
    }
}

/// Tokens of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of the prompt.
    pub input_tokens: u64,
    /// Of the answer.
    pub output_tokens: u64,
    /// Whether the model server said nothing usable and this is our estimate.
    pub estimated: bool,
}

/// The last error of a job, kept as JSON in its record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// Stable code: the list in docs/API and answers to clients.
    pub code: String,
    /// For a person; bounded and escaped.
    pub message: String,
    /// The model server's `type`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The model server's `param`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// The model server's `code`, where it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_code: Option<String>,
    /// The model server's HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_status: Option<u16>,
    /// The part of the answer that came before it broke off, bounded; never an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

/// One handing of the job to one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeliveryRecord {
    /// Its fence.
    pub fence: Fence,
    /// The worker's process life.
    pub worker: String,
    /// When it was claimed, in ms of the pool's clock.
    pub claimed_at_ms: u64,
    /// When it ended.
    pub ended_at_ms: Option<u64>,
    /// The verdict, `cancelled`, `lost` or `deadline`.
    pub outcome: Option<String>,
}

/// A job's record, without its request and its result.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    missing_docs,
    reason = "the fields are the record's; surfaces.md names them"
)]
pub struct Job {
    pub id: JobId,
    pub state: State,
    pub tenant: String,
    pub class: String,
    pub priority: u8,
    /// Acceptance order within the pool.
    pub seq: u64,
    pub model: String,
    pub bytes: u64,
    pub attempts: u32,
    pub max_attempts: u32,
    /// Leases lost, whoever was to blame.
    pub lost_leases: u32,
    /// Planned stops.
    pub stops: u32,
    pub fence: Fence,
    pub created_at_ms: u64,
    pub due_at_ms: Option<u64>,
    pub deadline_at_ms: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub started_at_ms: Option<u64>,
    pub finished_at_ms: Option<u64>,
    pub cancel_requested: bool,
    pub dead: Option<DeadReason>,
    pub code: Option<String>,
    pub error: Option<JobError>,
    pub usage: Option<Usage>,
    /// Output tokens so far, of a running job.
    pub progress_tokens: Option<u64>,
    pub content_type: Option<String>,
    /// Request and result are gone; the record remains.
    pub result_expired: bool,
    /// Worker of the last delivery.
    pub worker: Option<String>,
    /// Newest last; the last 20.
    pub deliveries: Vec<DeliveryRecord>,
}

impl Job {
    /// Reads a record's fields.
    ///
    /// # Errors
    /// Where the record is not one of ours.
    pub fn from_fields(id: JobId, fields: &BTreeMap<String, String>) -> Result<Self, UnknownWord> {
        let text = |name: &str| fields.get(name).filter(|v| !v.is_empty()).cloned();
        let number = |name: &str| text(name).and_then(|v| v.parse::<u64>().ok());
        let small = |name: &str| {
            number(name)
                .and_then(|v| u32::try_from(v).ok())
                .unwrap_or(0)
        };
        let input = number("input_tokens");
        let output = number("output_tokens");
        Ok(Self {
            id,
            state: text("state").unwrap_or_default().parse()?,
            tenant: text("tenant").unwrap_or_default(),
            class: text("class").unwrap_or_default(),
            priority: number("priority")
                .and_then(|v| u8::try_from(v).ok())
                .unwrap_or(0),
            seq: number("seq").unwrap_or(0),
            model: text("model").unwrap_or_default(),
            bytes: number("bytes").unwrap_or(0),
            attempts: small("attempts"),
            max_attempts: small("max_attempts"),
            lost_leases: small("lost"),
            stops: small("stops"),
            fence: Fence(number("fence").unwrap_or(0)),
            created_at_ms: number("created_at").unwrap_or(0),
            due_at_ms: number("due_at"),
            deadline_at_ms: number("deadline_at"),
            timeout_ms: number("timeout_ms"),
            started_at_ms: number("started_at"),
            finished_at_ms: number("ended_at"),
            cancel_requested: fields.contains_key("cancel"),
            dead: text("dead").map(|word| word.parse()).transpose()?,
            code: text("code"),
            error: text("error").and_then(|json| serde_json::from_str(&json).ok()),
            usage: (input.is_some() || output.is_some()).then(|| Usage {
                input_tokens: input.unwrap_or(0),
                output_tokens: output.unwrap_or(0),
                estimated: fields.contains_key("estimated"),
            }),
            progress_tokens: number("progress"),
            content_type: text("content_type"),
            result_expired: fields.contains_key("result_expired"),
            worker: text("worker"),
            deliveries: deliveries(fields),
        })
    }
}

/// The history: fields `d<fence>` = "worker claimed_at [ended_at outcome]".
fn deliveries(fields: &BTreeMap<String, String>) -> Vec<DeliveryRecord> {
    let mut all: Vec<DeliveryRecord> = fields
        .iter()
        .filter_map(|(name, value)| {
            let fence = Fence(name.strip_prefix('d')?.parse().ok()?);
            let mut parts = value.split(' ');
            Some(DeliveryRecord {
                fence,
                worker: parts.next()?.to_owned(),
                claimed_at_ms: parts.next()?.parse().ok()?,
                ended_at_ms: parts.next().and_then(|v| v.parse().ok()),
                outcome: parts.next().map(str::to_owned),
            })
        })
        .collect();
    all.sort_by_key(|d| d.fence);
    all
}
