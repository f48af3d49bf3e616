//! The record of calls: what arrived, when, how far its answer went, and who ended it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// Calls kept: as many as the longest check reads back.
const CALLS_MAX: usize = 100_000;
/// Bytes kept over all calls, so that large bodies push old calls out before memory goes.
const LOG_MAX_BYTES: usize = 256 * 1024 * 1024;
/// Prompt text kept of a call: enough to recognise it.
pub(super) const PROMPT_MAX_BYTES: usize = 2 * 1024;
/// Request body kept of a call: enough to compare fields byte for byte.
pub(super) const BODY_MAX_BYTES: usize = 16 * 1024;

/// One call of a model route. Times are milliseconds since the server started, on a monotonic clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Number of the call, from 1 in order of arrival.
    pub seq: u64,
    /// Path of the request, as `/v1/chat/completions`.
    pub path: String,
    /// Tag of the script in the prompt.
    pub tag: Option<String>,
    /// Last user message, prompt or input; its first 2 KiB.
    pub prompt: String,
    /// The request's body as it came; its first 16 KiB, with U+FFFD for what is not UTF-8.
    pub body: String,
    /// Length of the whole request body, in bytes.
    pub body_bytes: usize,
    /// The model asked for.
    pub model: String,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// Request headers, names in lower case; `authorization` and `cookie` say only `present`.
    pub headers: BTreeMap<String, String>,
    /// When the whole request had been read.
    pub arrived_ms: u64,
    /// When the call left the queue and got a slot.
    pub started_ms: Option<u64>,
    /// When the answer was complete; also of scripted refusals and cuts, never of a call its caller closed.
    pub finished_ms: Option<u64>,
    /// Whether the caller closed before the answer was complete.
    pub closed_by_caller: bool,
    /// When that was noticed.
    pub closed_ms: Option<u64>,
    /// Output tokens handed to the socket, over all choices.
    pub output_tokens_sent: u64,
    /// Content chunks handed to the socket.
    pub chunks_sent: u64,
    /// Status of the answer, once its head was due.
    pub status: Option<u16>,
    /// Calls in the server when this one arrived, running or waiting, with itself.
    pub concurrency_at_arrival: usize,
}

impl Call {
    /// A header of the request, by its lower case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Whether an `Authorization` header came with the call.
    #[must_use]
    pub fn authorized(&self) -> bool {
        self.headers.contains_key("authorization")
    }

    /// The request's body as JSON; `None` when it is not JSON or was longer than what is kept.
    #[must_use]
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_str(&self.body).ok()
    }

    /// Whether the call is over, whoever ended it.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.finished_ms.is_some() || self.closed_by_caller
    }

    fn kept_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        size_of::<Self>()
            + self.path.len()
            + self.prompt.len()
            + self.body.len()
            + self.model.len()
            + headers
    }
}

#[derive(Debug, Default)]
struct Calls {
    /// Consecutive by `seq`.
    calls: VecDeque<Call>,
    kept_bytes: usize,
    last_seq: u64,
}

impl Calls {
    fn find(&mut self, seq: u64) -> Option<&mut Call> {
        let first = self.calls.front()?.seq;
        self.calls
            .get_mut(usize::try_from(seq.checked_sub(first)?).ok()?)
    }
}

/// All calls since the start or the last reset, bounded, oldest out first.
#[derive(Debug)]
pub(super) struct CallLog {
    inner: Mutex<Calls>,
    file: Option<Mutex<File>>,
    changed: Notify,
}

impl CallLog {
    /// A log that also appends every ended call to `path`.
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.with_context(|| format!("cannot open the call log {}", path.display()))
                .map(Mutex::new)
        };
        Ok(Self {
            inner: Mutex::default(),
            file: path.map(open).transpose()?,
            changed: Notify::new(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Calls> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an arrival. Gives the call's number and, when `count_earlier` (it walks the log), how many calls with its
    /// tag came before it.
    pub(super) fn begin(&self, mut call: Call, count_earlier: bool) -> (u64, usize) {
        let mut inner = self.inner();
        inner.last_seq += 1;
        call.seq = inner.last_seq;
        let earlier = match &call.tag {
            Some(tag) if count_earlier => inner
                .calls
                .iter()
                .filter(|c| c.tag.as_ref() == Some(tag))
                .count(),
            _ => 0,
        };
        let seq = call.seq;
        inner.kept_bytes += call.kept_bytes();
        inner.calls.push_back(call);
        while inner.calls.len() > CALLS_MAX || inner.kept_bytes > LOG_MAX_BYTES {
            let Some(oldest) = inner.calls.pop_front() else {
                break;
            };
            inner.kept_bytes = inner.kept_bytes.saturating_sub(oldest.kept_bytes());
        }
        drop(inner);
        self.changed.notify_waiters();
        (seq, earlier)
    }

    /// Changes a call that is still kept. Texts must not grow: what is kept was counted at arrival.
    pub(super) fn update(&self, seq: u64, change: impl FnOnce(&mut Call)) {
        if let Some(call) = self.inner().find(seq) {
            change(call);
        }
        self.changed.notify_waiters();
    }

    /// Appends the ended call to the file, when there is one.
    pub(super) fn write_line(&self, seq: u64) {
        let Some(file) = &self.file else { return };
        let Some(call) = self.inner().find(seq).cloned() else {
            return;
        };
        let line = serde_json::to_vec(&call)
            .map_err(std::io::Error::from)
            .map(|mut l| {
                l.push(b'\n');
                l
            });
        // One short append into the page cache: not worth a task of its own.
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = line.and_then(|l| file.write_all(&l)) {
            tracing::warn!(%error, "call log line lost");
        }
    }

    pub(super) fn calls(&self, tag: Option<&str>) -> Vec<Call> {
        let inner = self.inner();
        inner
            .calls
            .iter()
            .filter(|c| tag.is_none_or(|t| c.tag.as_deref() == Some(t)))
            .cloned()
            .collect()
    }

    /// Waits until a call satisfies `wanted`.
    pub(super) async fn wait_for(&self, mut wanted: impl FnMut(&Call) -> bool) -> Call {
        loop {
            let changed = self.changed.notified();
            if let Some(call) = self.inner().calls.iter().find(|c| wanted(c)) {
                return call.clone();
            }
            changed.await;
        }
    }

    /// Forgets all calls; numbers go on.
    pub(super) fn reset(&self) {
        let mut inner = self.inner();
        inner.calls.clear();
        inner.kept_bytes = 0;
    }
}

/// The first `max_bytes` of `text`, cut at a character.
pub(super) fn bounded(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
