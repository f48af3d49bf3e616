//! Pieces of a stream that may yet be published.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Bytes kept of one delivery's stream: as much as the store keeps of a job's.
pub(crate) const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;
/// Most pieces in one append, so that its script stays short.
const MAX_BATCH_PIECES: usize = 256;
/// Most bytes in one append, so that it does not hold up others.
const MAX_BATCH_BYTES: usize = 256 * 1024;

#[derive(Debug)]
struct Kept {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Number of the first piece kept, from 1 within the delivery.
    first: u64,
}

/// The newest pieces of a stream, numbered from 1. Kept whether or not somebody reads along yet, so that a reader who
/// comes later misses nothing that fits; beyond the bound the oldest make room.
#[derive(Debug)]
pub(crate) struct Chunks {
    kept: Mutex<Kept>,
    max_bytes: usize,
    grew: Notify,
}

/// Pieces in order, without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Number of the first piece.
    pub(crate) first: u64,
    /// The pieces.
    pub(crate) pieces: Vec<Vec<u8>>,
}

impl Chunks {
    /// None yet; `max_bytes` are kept.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            kept: Mutex::new(Kept {
                pieces: VecDeque::new(),
                bytes: 0,
                first: 1,
            }),
            max_bytes,
            grew: Notify::new(),
        }
    }

    /// One more piece.
    pub(crate) fn push(&self, piece: &[u8]) {
        let mut kept = self.kept();
        kept.bytes += piece.len();
        kept.pieces.push_back(piece.to_vec());
        while kept.bytes > self.max_bytes {
            kept.drop_first();
        }
        drop(kept);
        self.grew.notify_one();
    }

    /// The oldest pieces, as many as one append may carry; none where there are none.
    pub(crate) fn batch(&self) -> Option<Batch> {
        let kept = self.kept();
        let mut bytes = 0;
        let fits = |piece: &&Vec<u8>| {
            bytes += piece.len();
            bytes == piece.len() || bytes <= MAX_BATCH_BYTES
        };
        let pieces: Vec<Vec<u8>> = (kept.pieces.iter().take(MAX_BATCH_PIECES))
            .take_while(fits)
            .cloned()
            .collect();
        (!pieces.is_empty()).then_some(Batch {
            first: kept.first,
            pieces,
        })
    }

    /// A batch was stored: its pieces go, if they have not gone to make room.
    pub(crate) fn stored(&self, batch: &Batch) {
        let end = batch.first + batch.pieces.len() as u64;
        let mut kept = self.kept();
        while kept.first < end && !kept.pieces.is_empty() {
            kept.drop_first();
        }
    }

    /// Bytes kept.
    pub(crate) fn bytes(&self) -> usize {
        self.kept().bytes
    }

    /// Returns when pieces came since the last time. Safe to cancel.
    pub(crate) async fn grew(&self) {
        self.grew.notified().await;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn drop_first(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.bytes -= piece.len();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pieces_are_numbered_from_one_and_go_once_they_are_stored() {
        let chunks = Chunks::new(100);
        assert_eq!(chunks.batch(), None);
        chunks.push(b"a");
        chunks.push(b"b");
        let batch = chunks.batch().unwrap();
        assert_eq!((batch.first, batch.pieces.len()), (1, 2));
        chunks.push(b"c");
        assert_eq!(
            chunks.batch().unwrap().first,
            1,
            "what is not stored is sent again"
        );
        chunks.stored(&batch);
        let batch = chunks.batch().unwrap();
        assert_eq!((batch.first, batch.pieces), (3, vec![b"c".to_vec()]));
    }

    #[test]
    fn beyond_the_bound_the_oldest_make_room_and_keep_their_numbers() {
        let chunks = Chunks::new(10);
        for piece in [&b"aaaa"[..], b"bbbb", b"cccc"] {
            chunks.push(piece);
        }
        let batch = chunks.batch().unwrap();
        assert_eq!((batch.first, batch.pieces.len()), (2, 2));
        chunks.push(b"dddddddd");
        chunks.stored(&batch);
        let batch = chunks.batch().unwrap();
        assert_eq!((batch.first, chunks.bytes()), (4, 8));
        chunks.push(&[0; 11]);
        assert_eq!((chunks.batch(), chunks.bytes()), (None, 0));
        chunks.push(b"e");
        assert_eq!(chunks.batch().unwrap().first, 6);
    }

    #[test]
    fn one_append_is_bounded_and_carries_at_least_one_piece() {
        let chunks = Chunks::new(MAX_KEPT_BYTES);
        for _ in 0..1000 {
            chunks.push(b"x");
        }
        assert_eq!(chunks.batch().unwrap().pieces.len(), MAX_BATCH_PIECES);
        let chunks = Chunks::new(MAX_KEPT_BYTES);
        chunks.push(&[0; MAX_BATCH_BYTES + 1]);
        chunks.push(b"y");
        assert_eq!(chunks.batch().unwrap().pieces.len(), 1);
    }
}
