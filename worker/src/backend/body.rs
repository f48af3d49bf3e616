//! The bytes of an answer, with a content encoding undone.
//!
//! None is asked for, but a proxy on the way may compress all the same.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;

/// Why there are no more bytes.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The connection broke.
    Broken(reqwest::Error),
    /// One piece became more than the bound: what a few bytes may turn into is not the sender's to say.
    TooLarge,
    /// The bytes are not in the encoding they claim.
    NotDecodable,
}

/// A response's body.
pub(super) struct Body {
    response: Response,
    decoder: Option<MultiGzDecoder<Bounded>>,
    max_piece_bytes: usize,
}

impl Body {
    /// The body of a response whose pieces may become at most `max_piece_bytes`; the encoding's name where it is none
    /// of `identity`, `gzip`, `x-gzip`.
    pub(super) fn of(response: Response, max_piece_bytes: usize) -> Result<Self, String> {
        let header = response.headers().get(CONTENT_ENCODING);
        let encoding = header
            .map_or("", |value| value.to_str().unwrap_or("?"))
            .trim()
            .to_ascii_lowercase();
        let decoder = match encoding.as_str() {
            "" | "identity" => None,
            "gzip" | "x-gzip" => Some(MultiGzDecoder::new(Bounded {
                piece: Vec::new(),
                max: max_piece_bytes,
            })),
            _ => return Err(encoding),
        };
        Ok(Self {
            response,
            decoder,
            max_piece_bytes,
        })
    }

    /// The next bytes, `None` at the end. Never empty.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        while let Some(bytes) = self.response.chunk().await.map_err(BodyError::Broken)? {
            let bytes = self.decode(bytes)?;
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    fn decode(&mut self, bytes: Bytes) -> Result<Bytes, BodyError> {
        let Some(decoder) = &mut self.decoder else {
            return Ok(bytes);
        };
        // The flush brings out all that these bytes hold, so that a stream is heard as it comes.
        let result = decoder.write_all(&bytes).and_then(|()| decoder.flush());
        let piece = std::mem::take(&mut decoder.get_mut().piece);
        match result {
            Ok(()) => Ok(piece.into()),
            Err(_) if piece.len() >= self.max_piece_bytes => Err(BodyError::TooLarge),
            Err(_) => Err(BodyError::NotDecodable),
        }
    }
}

/// Takes what is decoded of one piece, up to a bound.
#[derive(Debug)]
struct Bounded {
    piece: Vec<u8>,
    max: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.max - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        // Nothing taken is an error to the writer above, which is what ends a piece that is too large.
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
