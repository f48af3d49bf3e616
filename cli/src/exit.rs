//! How a command ends: the documented exit codes, and what is said on standard error.

use std::fmt;
use std::io;

use reqwest::StatusCode;
use serde_json::Value;
use tidegate_shared::config::ConfigErrors;
use tidegate_shared::store::StoreError;

use crate::text::visible;

/// Why a command did not end with 0. Each kind has one exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Anything without a code of its own: 1.
    Error(String),
    /// The command line or the settings are wrong: 2.
    Usage(String),
    /// What was named is not there: 3.
    NotFound(String),
    /// The key is missing, unknown, or may not: 4.
    NotAllowed(String),
    /// Refused, or done in part: 5.
    Refused(String),
    /// Nobody answers: 6.
    Unreachable(String),
    /// Not over in the time given: 124.
    TimedOut(String),
    /// Ctrl-C: 130.
    Interrupted(String),
    /// Everything was said already.
    Said(u8),
    /// Whoever read our output has enough: a quiet 0.
    Closed,
}

impl Failure {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Error(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::NotAllowed(_) => 4,
            Self::Refused(_) => 5,
            Self::Unreachable(_) => 6,
            Self::TimedOut(_) => 124,
            Self::Interrupted(_) => 130,
            Self::Said(code) => *code,
        }
    }

    /// The failure that an HTTP answer stands for. `body` is the problem document, if it was one.
    pub(crate) fn from_status(status: StatusCode, body: &Value) -> Self {
        let said = |name: &str| body.get(name).and_then(Value::as_str);
        let code = body["error"]["code"].as_str().or_else(|| said("code"));
        let text = said("detail")
            .or_else(|| body["error"]["message"].as_str())
            .or_else(|| said("title"))
            .unwrap_or("the server gave no reason");
        let text = match code {
            Some(code) => format!("{text} ({code}, HTTP {})", status.as_u16()),
            None => format!("{text} (HTTP {})", status.as_u16()),
        };
        match (status.as_u16(), code) {
            // A job's own error, told in place of its result with the status of the model server.
            (_, Some("upstream_refused")) | (502, Some(_)) => Self::Error(text),
            (401 | 403, _) => Self::NotAllowed(text),
            (404 | 410, _) => Self::NotFound(text),
            (408 | 504, _) => Self::TimedOut(text),
            (503, Some("store_unavailable")) | (502, _) => Self::Unreachable(text),
            (400..=499 | 503, _) => Self::Refused(text),
            _ => Self::Error(text),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(text)
            | Self::Usage(text)
            | Self::NotFound(text)
            | Self::NotAllowed(text)
            | Self::Refused(text)
            | Self::Unreachable(text)
            | Self::TimedOut(text)
            | Self::Interrupted(text) => {
                // What a server or a file said is data: it must not steer the terminal.
                let lines: Vec<String> = text.lines().map(visible).collect();
                f.write_str(&lines.join("\n"))
            }
            Self::Said(_) | Self::Closed => Ok(()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Error(error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } => Self::Unreachable(error.to_string()),
            StoreError::NoPool(_) => Self::NotFound(error.to_string()),
            other => Self::Error(other.to_string()),
        }
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        match errors.0.as_slice() {
            [_] => Self::Usage(errors.to_string()),
            all => Self::Usage(format!("{} problems in the settings:\n{errors}", all.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn code(status: u16, code: &str) -> u8 {
        let status = StatusCode::from_u16(status).expect("a status");
        let body = json!({"detail": "x", "error": {"code": code}});
        Failure::from_status(status, &body).code()
    }

    #[test]
    fn every_answer_of_the_api_has_its_exit_code() {
        for (status, word, exit) in [
            (401, "unauthorized", 4),
            (403, "forbidden", 4),
            (404, "not_found", 3),
            (410, "expired", 3),
            (422, "idempotency_mismatch", 5),
            (429, "queue_full", 5),
            (404, "upstream_refused", 1),
            (502, "first_byte_timeout", 1),
            (503, "draining", 5),
            (503, "store_unavailable", 6),
            (500, "internal", 1),
            (504, "timeout", 124),
        ] {
            assert_eq!(code(status, word), exit, "{status} {word}");
        }
    }

    #[test]
    fn what_a_server_says_cannot_steer_the_terminal() {
        let said = json!({"detail": "a\u{1b}[2Jb"});
        let failure = Failure::from_status(StatusCode::BAD_REQUEST, &said);
        assert!(!failure.to_string().contains('\u{1b}'));
    }
}
