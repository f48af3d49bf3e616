//! Reading, waiting for, and cancelling one job.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use serde_json::value::RawValue;
use tidegate_shared::domain::{JobId, State};
use tidegate_shared::protocol::{Cancel, CancelReply, Follow, FollowReply, Read, ReadReply};
use tidegate_shared::store::{Store, StoreError, Trouble};
use tokio::time::Instant;

use super::{App, not_found};
use crate::error::Problem;
use crate::wire::job::{JobBody, View};

/// Longest result shown inside a job, in bytes; a larger one is at `/result` alone.
const MAX_INLINE_BYTES: usize = 1024 * 1024;
/// Deepest nesting of a result shown inside a job: common readers of JSON give the whole job up some way beyond.
const MAX_INLINE_DEPTH: usize = 100;
/// A larger result is read from the store in pieces of so many bytes, at its reader's pace: many readers of large ones
/// neither fill the memory here nor keep others from the store.
const PIECE_BYTES: usize = 1024 * 1024;
/// How long a waiter trusts that a hint would have come, before it looks by itself.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

impl App {
    /// A job as it is now; `sees` is the reader's tenant, none for an operator.
    pub(crate) async fn read(&self, id: &JobId, sees: Option<String>) -> Result<View, Problem> {
        let step = Read {
            id: id.clone(),
            tenant: sees,
        };
        match self.store.read(&step).await? {
            ReadReply::Job {
                job,
                position,
                pending_reason,
                gap_ms,
                ..
            } => Ok(View {
                job: *job,
                position,
                pending_reason,
                gap_ms,
            }),
            ReadReply::Unknown => Err(not_found()),
        }
    }

    /// A job once it is terminal, or as it is after `limit`, or when this process drains.
    pub(crate) async fn wait(
        &self,
        id: &JobId,
        sees: Option<String>,
        limit: Duration,
    ) -> Result<View, Problem> {
        if limit.is_zero() {
            return self.read(id, sees).await;
        }
        let until = Instant::now() + limit;
        // Subscribe, then look, then wait: what happens in between is not missed.
        let mut watch = self.store.hints().job(id).await;
        loop {
            let view = self.read(id, sees.clone()).await?;
            let now = Instant::now();
            if view.is_terminal() || now >= until || self.shutdown.is_draining() {
                return Ok(view);
            }
            tokio::select! {
                _ = watch.next() => {}
                () = tokio::time::sleep_until(until.min(now + LOOK_EVERY)) => {}
                () = self.shutdown.draining() => {}
            }
        }
    }

    /// The job's answer in full: with its metadata, and with its result where that is not large.
    pub(crate) async fn shown(&self, view: &View) -> Result<JobBody, Problem> {
        let job = &view.job;
        let metadata = self.metadata(&job.id).await?;
        let mut result = None;
        if job.state == State::Succeeded && !job.result_expired {
            // A poll must not fetch tens of megabytes to find that they are too many.
            let inline = self.store.small_result(&job.id, MAX_INLINE_BYTES).await?;
            // What is not JSON cannot stand inside JSON; `/result` gives it as it is.
            let inline = inline.filter(|bytes| nesting(bytes) <= MAX_INLINE_DEPTH);
            result = inline.and_then(|bytes| serde_json::from_slice::<Box<RawValue>>(&bytes).ok());
        }
        Ok(JobBody::new(view).with(result, raw(&metadata)))
    }

    /// The job's metadata as JSON; empty: none.
    async fn metadata(&self, id: &JobId) -> Result<Arc<str>, Problem> {
        if let Some(known) = self.metadata.get(id) {
            return Ok(known);
        }
        let envelope = self.store.envelope(id).await?;
        let text = envelope
            .map(|envelope| envelope.metadata)
            .unwrap_or_default();
        self.metadata.put(id, &text);
        Ok(text.into())
    }

    /// The model's body with its length in bytes; none once its retention is over.
    pub(crate) async fn result(&self, id: &JobId) -> Result<Option<(usize, Body)>, Problem> {
        let bytes = self.store.result_bytes(id).await?;
        if bytes == 0 {
            return Ok(None);
        }
        let first = self.store.result_piece(id, 0, PIECE_BYTES).await?;
        if first.len() == bytes {
            return Ok(Some((bytes, first.into())));
        }
        let rest = Rest {
            store: self.store.clone(),
            id: id.clone(),
            next: Some(first),
            at: 0,
            bytes,
        };
        let pieces = futures_util::stream::try_unfold(rest, Rest::piece);
        Ok(Some((bytes, Body::from_stream(pieces))))
    }

    /// Cancels a job and gives it as it then is.
    pub(crate) async fn cancel(&self, id: &JobId, sees: Option<String>) -> Result<View, Problem> {
        let step = Cancel {
            id: id.clone(),
            tenant: sees.clone(),
        };
        match self.store.cancel(&step).await? {
            CancelReply::Unknown => Err(not_found()),
            CancelReply::Cancelled | CancelReply::Cancelling | CancelReply::Already(_) => {
                self.read(id, sees).await
            }
        }
    }

    /// Asks that the job's stream be published. The caller reads the job next, which tells whether it may.
    pub(crate) async fn follow(&self, id: &JobId, sees: Option<String>) -> Result<(), Problem> {
        let step = Follow {
            id: id.clone(),
            tenant: sees,
        };
        match self.store.follow(&step).await {
            Ok(FollowReply::Following(_)) => Ok(()),
            Ok(FollowReply::Unknown) => Err(not_found()),
            // Nothing can be asked for, and pieces could not be stored either; where the job stands can be told.
            Err(StoreError::Unavailable {
                trouble: Trouble::Full,
                ..
            }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What of a large result is still to be sent.
struct Rest {
    store: Store,
    id: JobId,
    /// A piece that was fetched already.
    next: Option<Vec<u8>>,
    at: usize,
    bytes: usize,
}

impl Rest {
    /// The next piece, fetched when its reader has taken the ones before it. A result that goes away meanwhile, or a store
    /// that does, breaks the answer off short of its length, which no client takes for the whole.
    async fn piece(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        if self.at == self.bytes {
            return Ok(None);
        }
        let most = PIECE_BYTES.min(self.bytes - self.at);
        let piece = match self.next.take() {
            Some(piece) => piece,
            None => self.store.result_piece(&self.id, self.at, most).await?,
        };
        if piece.len() != most {
            return Err(StoreError::Corrupt(format!(
                "the result of {} went away while it was read",
                self.id
            )));
        }
        self.at += most;
        Ok(Some((piece.into(), self)))
    }
}

/// How deep JSON is nested; of what is not JSON, some number.
fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// JSON as it is; none for an empty text.
fn raw(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(text.to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_counts_brackets_outside_strings_alone() {
        for (json, deep) in [
            ("1", 0),
            ("{}", 1),
            (r#"[{"a":[1]},[2]]"#, 3),
            (r#"{"[[[":"[{\"[\\","b":[]}"#, 2),
        ] {
            assert_eq!(nesting(json.as_bytes()), deep, "{json}");
        }
    }
}
