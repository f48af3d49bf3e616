//! What clients saw of a run, held against its record.
//!
//! A client notes each operation before it is sent, and again when it ends: `ok` with what it was told, `fail` where it was
//! refused, `unknown` where no answer came. The record says what truly happened. Every `ok` must be in it, no `fail` may
//! be, and an `unknown` may be there once at most.

mod check;
mod effects;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::domain::{JobId, State};

pub use check::{Report, check};
pub use effects::Effects;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is about to be sent.
    Invoke,
    /// It was done, or had been done before.
    Ok,
    /// It was refused, and did nothing.
    Fail,
    /// No answer came, or one that leaves it open.
    Unknown,
}

/// What was asked, and once it is `ok` what was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum What {
    /// A submit.
    Submit {
        /// The record's digest of tenant and key, [`crate::protocol::Idempotency::key_hash_of`]; none: without a key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key_hash: Option<String>,
        /// The job that it became.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<JobId>,
    },
    /// A cancel.
    Cancel {
        /// The job.
        id: JobId,
        /// Where it stood after it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<State>,
    },
    /// A requeue.
    Requeue {
        /// The dead letter.
        id: JobId,
    },
    /// A purge.
    Purge {
        /// The dead letter.
        id: JobId,
    },
    /// A settle of a worker.
    Settle {
        /// The job.
        id: JobId,
        /// Of the delivery.
        owner: String,
        /// `settled`, `cancelled`, `duplicate` or `lost`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<String>,
    },
    /// A look at a job.
    Read {
        /// The job.
        id: JobId,
        /// Where it stood; none, and `ok`: there was no such job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<State>,
        /// Any digest of the result, the same for the same bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
    },
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the operation: its invoke and its end have the same, no other operation has it.
    pub op: u64,
    /// Whose it is.
    pub client: u32,
    /// Since the run began, by one monotonic clock, in ms.
    pub at_ms: u64,
    /// Where it stands.
    pub phase: Phase,
    /// What was asked and answered.
    #[serde(flatten)]
    pub what: What,
}

/// Writes a history, a line of JSON for each event.
///
/// # Errors
/// Where it cannot be written.
pub fn write<'a>(
    mut to: impl Write,
    events: impl IntoIterator<Item = &'a Event>,
) -> io::Result<()> {
    for event in events {
        serde_json::to_writer(&mut to, event)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

/// Reads what [`write()`] wrote. Empty lines are skipped.
///
/// # Errors
/// Where it cannot be read, or a line is no event.
pub fn read(from: impl BufRead) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    for (number, line) in from.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let event = serde_json::from_str(&line)
            .map_err(|e| io::Error::other(format!("line {}: {e}", number + 1)))?;
        events.push(event);
    }
    Ok(events)
}
