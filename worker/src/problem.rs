//! What a job's record says of a delivery that brought no answer.

use tidegate_shared::domain::JobError;

use crate::backend::upstream::UpstreamDetail;
use crate::backend::{CallFailure, UpstreamError};

/// Bytes of the error as JSON: it lives in the job's record and is shown in lists.
pub(crate) const MAX_ERROR_BYTES: usize = 4096;
/// Bytes of the part of an answer that is kept, before escaping.
const MAX_PARTIAL_BYTES: usize = 2048;

/// Codes of jobs that do not come from a model call.
pub(crate) mod code {
    /// The job's deadline came.
    pub(crate) const DEADLINE_EXCEEDED: &str = "deadline_exceeded";
    /// Nothing serves the job.
    pub(crate) const UNROUTABLE: &str = "unroutable";
    /// The job was cancelled.
    pub(crate) const CANCELLED: &str = "cancelled";
    /// A fault of this program.
    pub(crate) const INTERNAL: &str = "internal";
}

/// An error of our own finding.
pub(crate) fn ours(code: &str, message: impl Into<String>) -> JobError {
    JobError {
        code: code.to_owned(),
        message: message.into(),
        ..JobError::default()
    }
}

/// A model server's refusal.
pub(crate) fn refused(error: UpstreamError) -> JobError {
    with_detail(
        ours(error.code.as_str(), error.message),
        Some(error.upstream),
    )
}

/// A call that gave no answer, with what had come of it.
pub(crate) fn failed(failure: &CallFailure) -> JobError {
    let mut error = ours(failure.code.as_str(), failure.message.clone());
    error.partial = failure.partial.as_deref().map(|bytes| {
        let kept = &bytes[..bytes.len().min(MAX_PARTIAL_BYTES)];
        String::from_utf8_lossy(kept).into_owned()
    });
    with_detail(error, failure.upstream.clone())
}

fn with_detail(error: JobError, detail: Option<UpstreamDetail>) -> JobError {
    let Some(detail) = detail else { return error };
    JobError {
        kind: detail.kind,
        param: detail.param,
        upstream_code: detail.code,
        upstream_status: detail.status,
        ..error
    }
}

/// The error as it is stored: JSON of at most [`MAX_ERROR_BYTES`]. The kept part of the answer is cut first, then the
/// message; everything else is short already.
pub(crate) fn to_json(mut error: JobError) -> String {
    loop {
        let json = serde_json::to_string(&error).expect("texts and numbers always serialise");
        if json.len() <= MAX_ERROR_BYTES {
            return json;
        }
        match &mut error.partial {
            Some(partial) if partial.is_empty() => error.partial = None,
            Some(partial) => halve(partial),
            None => halve(&mut error.message),
        }
    }
}

/// Cuts a text to half, between characters.
fn halve(text: &mut String) {
    let mut at = text.len() / 2;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    text.truncate(at);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::backend::FailureCode;

    fn failure(message: &str, partial: Option<Vec<u8>>) -> CallFailure {
        CallFailure {
            code: FailureCode::IncompleteResponse,
            message: message.to_owned(),
            upstream: None,
            retry_after: None,
            partial: partial.map(Into::into),
            output_tokens_so_far: 0,
        }
    }

    #[test]
    fn what_the_server_said_is_kept_member_by_member() {
        let error = refused(UpstreamError {
            code: FailureCode::UpstreamRefused,
            message: "the model server answered 400".into(),
            upstream: UpstreamDetail {
                status: Some(400),
                code: Some("context_length_exceeded".into()),
                message: "too long".into(),
                kind: Some("invalid_request_error".into()),
                param: Some("messages".into()),
            },
        });
        let json: serde_json::Value = serde_json::from_str(&to_json(error)).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"code": "upstream_refused", "message": "the model server answered 400",
                "type": "invalid_request_error", "param": "messages",
                "upstream_code": "context_length_exceeded", "upstream_status": 400})
        );
    }

    #[test]
    fn the_part_that_came_is_kept_within_the_bound() {
        for partial in [
            &b"abc"[..],
            &[b'x'; 100_000],
            "é\u{1}".repeat(50_000).as_bytes(),
            &[0xff; 9_000],
        ] {
            let json = to_json(failed(&failure(&"m".repeat(1_000), Some(partial.to_vec()))));
            assert!(json.len() <= MAX_ERROR_BYTES);
            let error: JobError = serde_json::from_str(&json).unwrap();
            assert_eq!(error.message.len(), 1_000);
            assert!(error.partial.is_some_and(|kept| !kept.is_empty()));
        }
    }

    #[test]
    fn even_an_endless_message_is_bounded() {
        let json = to_json(failed(&failure(&"\u{1}€".repeat(10_000), Some(vec![b'x']))));
        assert!(json.len() <= MAX_ERROR_BYTES);
        let error: JobError = serde_json::from_str(&json).unwrap();
        assert!(error.message.starts_with('\u{1}'));
    }
}
