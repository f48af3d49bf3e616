//! What the clients saw: each call begun, and what came of it. A call without an answer may have been done or not.

use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is said of a call whose caller left before it was answered.
pub(crate) const GIVEN_UP: &str = "given up";

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// A submit with an idempotency key.
    Submit,
    /// A submit without one: sent once.
    SubmitOnce,
    /// The job.
    Read,
    /// A cancel.
    Cancel,
    /// A new life for a dead letter.
    Requeue,
    /// The job's events to their end.
    Follow,
    /// The job, by a tenant that it does not belong to.
    Peek,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// It was sent.
    Invoke,
    /// Done.
    Ok,
    /// Refused for good: it was not done and never will be.
    Fail,
    /// No answer, or one that promises nothing.
    Unknown,
}

/// A terminal as a client was shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// `status`.
    pub status: String,
    /// `finished_at_ms`.
    pub finished_at_ms: u64,
    /// `attempts`.
    pub attempts: u64,
    /// `dead`.
    pub dead: bool,
    /// `error.code`; empty without one.
    pub code: String,
    /// `usage`, as text.
    pub usage: String,
}

impl Shown {
    /// The terminal that an answer shows; none where the job is not over.
    pub fn of(job: &Value) -> Option<Self> {
        crate::terminal(job).then(|| Self {
            status: job["status"].as_str().unwrap_or_default().into(),
            finished_at_ms: job["finished_at_ms"].as_u64().unwrap_or_default(),
            attempts: job["attempts"].as_u64().unwrap_or_default(),
            dead: job["dead"] == true,
            code: job["error"]["code"].as_str().unwrap_or_default().into(),
            usage: job["usage"].to_string(),
        })
    }
}

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Microseconds since the run began, on a monotonic clock.
    pub at_us: u64,
    /// Number of the job's story.
    pub n: u32,
    /// Number of the call, the same in its `Invoke` and in what came of it.
    pub call: u64,
    /// What was asked.
    pub asked: Asked,
    /// What came of it.
    pub came: Came,
    /// Public id of the job; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// Status of the job as it was shown, or the code of a refusal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
    /// A terminal that was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Shown>,
    /// What must never be: an answer of another job, a foreign job shown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wrong: String,
}

/// The history of a run, as it is written.
#[derive(Debug)]
pub(crate) struct History {
    start: Instant,
    inner: Mutex<(u64, Vec<Event>)>,
}

impl History {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            inner: Mutex::default(),
        }
    }

    /// Notes that a call is sent; gives its number.
    pub(crate) fn invoke(&self, n: u32, asked: Asked, job: &str) -> u64 {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 += 1;
        let call = inner.0;
        inner.1.push(Event {
            at_us: self.at_us(),
            n,
            call,
            asked,
            came: Came::Invoke,
            job: job.to_owned(),
            said: String::new(),
            shown: None,
            wrong: String::new(),
        });
        call
    }

    /// Notes what came of a call.
    pub(crate) fn note(&self, event: Event) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.1.push(Event {
            at_us: self.at_us(),
            ..event
        });
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut inner.1)
    }

    fn at_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Writes one JSON object a line.
pub(crate) fn save(path: &Path, events: &[Event]) -> io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for event in events {
        serde_json::to_writer(&mut file, event)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// Reads what [`save`] wrote.
pub(crate) fn load(path: &Path) -> io::Result<Vec<Event>> {
    BufReader::new(std::fs::File::open(path)?)
        .lines()
        .map(|line| Ok(serde_json::from_str(&line?)?))
        .collect()
}
