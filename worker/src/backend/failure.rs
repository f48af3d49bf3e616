//! Making failures: what the transport said, in words and codes.

use std::error::Error;
use std::time::Duration;

use super::classify::{self, Finality};
use super::types::{CallFailure, FailureCode, UpstreamError};
use super::upstream::{self, MAX_MESSAGE_CHARS, UpstreamDetail};

/// How a call stopped short of an answer.
#[derive(Debug)]
pub(super) enum Stop {
    /// The server refuses for good.
    Refused(Box<UpstreamError>),
    /// Anything else. What had come is added by the caller, who holds it.
    Failed(Box<CallFailure>),
}

/// A failure of our own finding.
pub(super) fn failed(code: FailureCode, message: &str) -> Stop {
    Stop::Failed(Box::new(CallFailure {
        code,
        message: upstream::tidy(message, MAX_MESSAGE_CHARS),
        upstream: None,
        retry_after: None,
        partial: None,
        output_tokens_so_far: 0,
    }))
}

/// A time-out, with the bound that ran out.
pub(super) fn timed_out(code: FailureCode, bound: Duration, what: &str) -> Stop {
    failed(code, &format!("{what} within {} ms", bound.as_millis()))
}

/// An error answer, by the table.
pub(super) fn said_no(status: u16, detail: UpstreamDetail, retry_after: Option<Duration>) -> Stop {
    let verdict = classify::classify(status, detail.code.as_deref(), detail.kind.as_deref());
    let message = detail.sentence();
    match verdict.finality {
        Finality::Final => Stop::Refused(Box::new(UpstreamError {
            code: verdict.code,
            message,
            upstream: detail,
        })),
        Finality::Transient => Stop::Failed(Box::new(CallFailure {
            code: verdict.code,
            message,
            upstream: Some(detail),
            retry_after,
            partial: None,
            output_tokens_so_far: 0,
        })),
    }
}

/// An error inside an answer that had begun well: judged by the status it names, else as the server's own fault. A code
/// that is final with any status is so here too.
pub(super) fn said_no_midway(data: &[u8]) -> Stop {
    let mut detail = upstream::read_error(None, data);
    detail.status = upstream::named_status(&detail);
    let says_final = [&detail.code, &detail.kind].into_iter().any(|word| {
        word.as_deref()
            .is_some_and(|word| classify::FINAL_REASONS.contains(&word))
    });
    let judged_as = detail.status.unwrap_or(if says_final { 429 } else { 500 });
    said_no(judged_as, detail, None)
}

/// No answer at all: no connection, or one that broke before the head of an answer was whole.
pub(super) fn no_answer(error: reqwest::Error) -> Stop {
    let unreadable = hyper_error(&error).is_some_and(hyper::Error::is_parse);
    let code = if unreadable && !error.is_connect() {
        FailureCode::InvalidResponse
    } else {
        FailureCode::ConnectFailed
    };
    failed(code, &describe(error))
}

/// An error with its causes, without the address (which may carry a password).
pub(super) fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

fn hyper_error(error: &reqwest::Error) -> Option<&hyper::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<hyper::Error>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
