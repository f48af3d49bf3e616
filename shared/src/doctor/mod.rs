//! Is everything as it should be? The server, the settings, and the invariants of the protocol.
//!
//! What is looked at are raw facts, piece by piece and bounded, so it is safe beside live work. What they mean is judged
//! by pure functions. Each look at a job is one script, so it is consistent in itself; what looks wrong is looked at once
//! more before it is told.

mod examine;
mod invariant;
mod job;
mod keys;
mod pool;
mod sample;
mod server;
#[cfg(test)]
mod tests;

pub use examine::examine;
pub use invariant::{Invariant, Tally};

use serde::Serialize;

/// How a finding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Pass,
    /// It works, but somebody should know.
    Warn,
    /// Something is broken, or a promise is not kept.
    Fail,
}

impl Status {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `I1`–`I14`, `redis.*`, `pools.*` or `keys.*`.
    pub id: String,
    /// How it stands.
    pub status: Status,
    /// What was seen.
    pub message: String,
    /// What to do; empty where nothing is to be done.
    pub fix: String,
}

impl Finding {
    fn pass(id: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(id, Status::Pass, message, "")
    }

    fn warn(id: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, Status::Warn, message, fix)
    }

    fn fail(id: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, Status::Fail, message, fix)
    }

    fn new(
        id: impl Into<String>,
        status: Status,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            status,
            message: message.into(),
            fix: fix.into(),
        }
    }
}
