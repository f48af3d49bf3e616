//! A job as clients see it: every member always there, null where it is not known.

use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_shared::domain::{DeliveryRecord, Job, PendingReason, State};

/// A job at one moment, with what only its pool knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    /// The record.
    pub(crate) job: Job,
    /// Jobs ahead of it, where it is queued.
    pub(crate) position: Option<u64>,
    /// Why it waits, where it waits.
    pub(crate) pending_reason: Option<PendingReason>,
    /// Mean time between completions of its pool; none below three samples.
    pub(crate) gap_ms: Option<u64>,
}

impl View {
    /// A record alone, as in lists.
    pub(crate) fn of(job: Job) -> Self {
        Self {
            job,
            position: None,
            pending_reason: None,
            gap_ms: None,
        }
    }

    /// Whether it never changes again.
    pub(crate) fn is_terminal(&self) -> bool {
        self.job.state.is_terminal()
    }

    /// When it is expected to start, from the observed pace of its pool.
    pub(crate) fn eta_ms(&self) -> Option<u64> {
        Some(
            self.gap_ms?
                .saturating_mul(self.position?.saturating_add(1)),
        )
    }
}

#[derive(Serialize)]
struct UsageBody {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    estimated: bool,
}

#[derive(Serialize)]
struct ErrorBody {
    code: String,
    message: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    param: Option<String>,
    upstream_status: Option<u16>,
    upstream_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<String>,
}

/// The answer's members, in the order of the documentation.
#[derive(Serialize)]
pub(crate) struct JobBody {
    id: String,
    object: &'static str,
    status: State,
    pool: String,
    model: String,
    class: String,
    tenant: String,
    priority: u8,
    attempts: u32,
    max_attempts: u32,
    lost_leases: u32,
    created_at_ms: u64,
    due_at_ms: Option<u64>,
    deadline_at_ms: Option<u64>,
    started_at_ms: Option<u64>,
    finished_at_ms: Option<u64>,
    pending_reason: Option<PendingReason>,
    position: Option<u64>,
    eta_ms: Option<u64>,
    /// Nothing is set aside in this release.
    hold_tokens: Option<u64>,
    usage: Option<UsageBody>,
    deliveries: Vec<DeliveryRecord>,
    cancel_requested: bool,
    dead: bool,
    error: Option<ErrorBody>,
    result: Option<Box<RawValue>>,
    result_expired: bool,
    metadata: Option<Box<RawValue>>,
}

impl JobBody {
    /// The record's members; `result` and `metadata` are null.
    pub(crate) fn new(view: &View) -> Self {
        let job = &view.job;
        Self {
            id: job.id.to_string(),
            object: "job",
            status: job.state,
            pool: job.id.pool().to_string(),
            model: job.model.clone(),
            class: job.class.clone(),
            tenant: job.tenant.clone(),
            priority: job.priority,
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            lost_leases: job.lost_leases,
            created_at_ms: job.created_at_ms,
            due_at_ms: job.due_at_ms,
            deadline_at_ms: job.deadline_at_ms,
            started_at_ms: job.started_at_ms,
            finished_at_ms: job.finished_at_ms,
            pending_reason: view.pending_reason,
            position: view.position,
            eta_ms: view.eta_ms(),
            hold_tokens: None,
            usage: job.usage.map(|usage| UsageBody {
                input_tokens: usage.input_tokens,
                output_tokens: usage.output_tokens,
                total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
                estimated: usage.estimated,
            }),
            deliveries: job.deliveries.clone(),
            cancel_requested: job.cancel_requested,
            dead: job.dead.is_some(),
            error: error(job),
            result: None,
            result_expired: job.result_expired,
            metadata: None,
        }
    }

    /// With the parts that are kept outside the record.
    pub(crate) fn with(
        mut self,
        result: Option<Box<RawValue>>,
        metadata: Option<Box<RawValue>>,
    ) -> Self {
        self.result = result;
        self.metadata = metadata;
        self
    }
}

/// The code a job ended with; none where it ended well, or has not ended and never failed.
pub(crate) fn code(job: &Job) -> Option<String> {
    let error = job
        .error
        .as_ref()
        .map(|error| error.code.clone())
        .filter(|code| !code.is_empty());
    let implied = match job.state {
        State::Cancelled => Some("cancelled"),
        State::Expired => Some("deadline_exceeded"),
        State::Failed => Some("upstream_error"),
        _ => None,
    };
    error
        .or_else(|| job.code.clone())
        .or_else(|| implied.map(str::to_owned))
}

/// What a person is told where nothing more is known.
pub(crate) fn message(job: &Job, code: &str) -> String {
    let said = job
        .error
        .as_ref()
        .map(|error| error.message.clone())
        .filter(|text| !text.is_empty());
    said.unwrap_or_else(|| {
        match (job.state, code) {
            (State::Cancelled, _) => "the job was cancelled",
            (State::Expired, _) => "the job's deadline came while it waited",
            (_, "deadline_exceeded") => "the job's deadline came while it ran",
            (_, "poison") => "too many of the job's workers were lost",
            (_, "attempts_exhausted") => "every attempt was spent",
            _ => "the job did not succeed",
        }
        .to_owned()
    })
}

fn error(job: &Job) -> Option<ErrorBody> {
    // A job that succeeded in the end does not show the errors on the way.
    if job.state == State::Succeeded {
        return None;
    }
    let code = code(job)?;
    let message = message(job, &code);
    let known = job.error.clone().unwrap_or_default();
    Some(ErrorBody {
        code,
        message,
        kind: known.kind,
        param: known.param,
        upstream_status: known.upstream_status,
        upstream_code: known.upstream_code,
        partial: known.partial,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use tidegate_shared::domain::{JobId, PoolName};

    use super::*;

    /// A job of pool `default` with these fields in its record.
    pub(crate) fn job(fields: &[(&str, &str)]) -> Job {
        let pool: PoolName = "default".parse().unwrap();
        let fields: BTreeMap<String, String> = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Job::from_fields(JobId::mint(&pool), &fields).unwrap()
    }

    fn shown(view: &View) -> Value {
        serde_json::to_value(JobBody::new(view)).unwrap()
    }

    #[test]
    fn every_member_is_there_in_every_state() {
        let members = [
            "id",
            "object",
            "status",
            "pool",
            "model",
            "class",
            "tenant",
            "priority",
            "attempts",
            "max_attempts",
            "created_at_ms",
            "due_at_ms",
            "deadline_at_ms",
            "started_at_ms",
            "finished_at_ms",
            "pending_reason",
            "position",
            "eta_ms",
            "hold_tokens",
            "usage",
            "deliveries",
            "dead",
            "error",
            "result",
            "metadata",
        ];
        for state in State::ALL {
            let body = shown(&View::of(job(&[("state", state.as_str())])));
            for member in members {
                assert!(body.get(member).is_some(), "{state} lacks {member}");
            }
            assert_eq!(body["status"], state.as_str());
            let wrong = matches!(state, State::Failed | State::Cancelled | State::Expired);
            assert_eq!(body["error"].is_object(), wrong, "{state}");
        }
    }

    #[test]
    fn an_estimate_needs_a_pace_and_a_place() {
        let mut view = View::of(job(&[("state", "queued")]));
        assert_eq!(view.eta_ms(), None);
        (view.position, view.gap_ms) = (Some(3), Some(250));
        assert_eq!(shown(&view)["eta_ms"], 1000);
    }

    #[test]
    fn usage_and_error_have_all_their_members() {
        let error = r#"{"code":"upstream_refused","message":"no","upstream_status":400,"upstream_code":"c"}"#;
        let fields = [
            ("state", "failed"),
            ("error", error),
            ("input_tokens", "3"),
            ("output_tokens", "4"),
        ];
        let body = shown(&View::of(job(&fields)));
        let usage =
            json!({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "estimated": false});
        assert_eq!(body["usage"], usage);
        let error = json!({"code": "upstream_refused", "message": "no", "type": null, "param": null,
            "upstream_status": 400, "upstream_code": "c"});
        assert_eq!(body["error"], error);
    }
}
