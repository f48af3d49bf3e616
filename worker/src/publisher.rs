//! Publishes a delivery's stream to those who read along.

use std::time::Duration;

use tidegate_shared::protocol::{Append, AppendReply};
use tidegate_shared::retry::Retry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::chunks::{Batch, Chunks, MAX_KEPT_BYTES};
use crate::live::Held;
use crate::pool::Pool;
use crate::verdict::Stop;

/// Pieces that come within it share one append: fast for a reader's eye, cheap for the store.
const GATHER: Duration = Duration::from_millis(50);
/// So many bytes do not wait for more.
const ENOUGH_BYTES: usize = 32 * 1024;
/// How long what is left of a stream may hold up the verdict: the answer is more important than its preview.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// What became of one append.
enum Sent {
    /// It is stored.
    Stored,
    /// The store cannot say; the same pieces may be sent again.
    Unknown,
    /// The delivery is not ours any more, or the pool is gone.
    Over,
}

/// Publishes pieces as they come, once somebody reads along, until the call has `ended`; then what is left, unless the
/// delivery was stopped. No append is cut off half way: its connection would have to be given up.
pub(crate) async fn publish(pool: &Pool, held: &Held, chunks: &Chunks, ended: &CancellationToken) {
    tokio::select! {
        () = held.followed() => {}
        () = ended.cancelled() => {}
    }
    let retry = Retry::store();
    let mut unknown = 0;
    while !ended.is_cancelled() {
        let Some(batch) = chunks.batch() else {
            tokio::select! {
                () = chunks.grew() => continue,
                () = ended.cancelled() => break,
            }
        };
        let wait = match append(pool, held, &batch).await {
            Sent::Stored => {
                chunks.stored(&batch);
                unknown = 0;
                GATHER
            }
            Sent::Unknown => {
                unknown += 1;
                retry.delay(unknown)
            }
            Sent::Over => return,
        };
        tokio::select! {
            () = gather(chunks, wait) => {}
            () = ended.cancelled() => {}
        }
    }
    if held.is_followed() && held.stopped().is_none() {
        flush(pool, held, chunks).await;
    }
}

/// Waits for more pieces, for a short time or until there are enough.
async fn gather(chunks: &Chunks, wait: Duration) {
    let until = Instant::now() + wait;
    while chunks.bytes() < ENOUGH_BYTES {
        tokio::select! {
            () = tokio::time::sleep_until(until) => return,
            () = chunks.grew() => {}
        }
    }
}

/// Publishes what is left, before the verdict; within a bound, and not where the store does not answer.
async fn flush(pool: &Pool, held: &Held, chunks: &Chunks) {
    let until = Instant::now() + FLUSH_LIMIT;
    while let Some(batch) = chunks.batch() {
        if Instant::now() >= until {
            tracing::warn!(job = %held.id, fence = held.fence.0, "the end of the stream could not be published in time");
            return;
        }
        match append(pool, held, &batch).await {
            Sent::Stored => chunks.stored(&batch),
            Sent::Unknown | Sent::Over => return,
        }
    }
}

async fn append(pool: &Pool, held: &Held, batch: &Batch) -> Sent {
    let step = Append {
        id: held.id.clone(),
        fence: held.fence,
        owner: held.owner.clone(),
        first: batch.first,
        max_bytes: MAX_KEPT_BYTES as u64,
        pieces: batch.pieces.clone(),
    };
    match pool.store.append(&step).await {
        Ok(AppendReply::Appended) => Sent::Stored,
        Ok(AppendReply::Lost) => {
            pool.metrics.stale_write(pool.name.as_str(), "append");
            if held.stop(Stop::Lost) {
                tracing::warn!(job = %held.id, fence = held.fence.0, "lease lost: the stream is not published");
            }
            Sent::Over
        }
        Err(error) if error.is_unavailable() => Sent::Unknown,
        Err(error) => {
            tracing::error!(job = %held.id, %error, "the stream cannot be published");
            Sent::Over
        }
    }
}
