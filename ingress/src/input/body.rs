//! Reading a request's body: by its header first, then by its bytes, and within a time.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use http_body_util::BodyExt as _;
use tidegate_shared::shutdown::Tasks;
use tokio::sync::Semaphore;

use super::headers::{Encoding, encoding, is_json};
use crate::error::{Code, Problem};

/// From this size on a body is judged on a thread that serves nobody else, in bytes: below, a judgement takes less time
/// than the hand-over is worth.
const LARGE_BYTES: usize = 64 * 1024;
/// Largest window a zstd frame may ask for, as a power of two: 8 MiB, what level 19 uses.
const ZSTD_WINDOW_LOG: u32 = 23;
/// What is read and thrown away of a refused body, so that the refusal arrives before the connection ends.
const LINGER_BYTES: u64 = 64 * 1024 * 1024;
/// How long that goes on at most.
const LINGER: Duration = Duration::from_secs(5);

/// Bounds of a body.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Largest decoded body, in bytes.
    pub(crate) max_bytes: u64,
    /// For the whole of it.
    pub(crate) timeout: Duration,
}

/// Reads and judges bodies; large ones on blocking threads, as many at once as there are cores.
#[derive(Clone)]
pub(crate) struct Reader {
    bounds: Bounds,
    heavy: Arc<Semaphore>,
    tasks: Tasks,
}

impl Reader {
    /// A reader; what it leaves behind is tracked in `tasks`.
    pub(crate) fn new(bounds: Bounds, tasks: Tasks) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            bounds,
            heavy: Arc::new(Semaphore::new(cores)),
            tasks,
        }
    }

    /// Reads a JSON body, decoded, and judges it.
    pub(crate) async fn read<T, F>(
        &self,
        headers: &HeaderMap,
        body: Body,
        judge: F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, Problem> + Send + 'static,
    {
        let packed = match self.promised(headers) {
            Ok(encoding) => encoding,
            Err(problem) => {
                self.throw_away(headers, body);
                return Err(problem);
            }
        };
        let bytes = self.collect(body).await?;
        self.judge(packed, bytes, judge).await
    }

    /// Judges by the headers alone, before a byte of the body is read.
    fn promised(&self, headers: &HeaderMap) -> Result<Encoding, Problem> {
        let encoding = encoding(headers)?;
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.bounds.max_bytes) {
            return Err(self.too_large());
        }
        is_json(headers)?;
        Ok(encoding)
    }

    fn too_large(&self) -> Problem {
        let max = self.bounds.max_bytes;
        Problem::new(
            Code::BodyTooLarge,
            format!("the body must be at most {max} bytes, decoded"),
        )
        .limit("max_body_bytes", max)
    }

    /// A client that is still sending would not see the refusal if the connection just ended.
    fn throw_away(&self, headers: &HeaderMap, body: Body) {
        if headers.contains_key(EXPECT) {
            return;
        }
        self.tasks.spawn(async move {
            let mut body = body;
            let mut left = LINGER_BYTES;
            let reading = async {
                while let Some(Ok(frame)) = body.frame().await {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    left = left.saturating_sub(bytes);
                    if left == 0 {
                        return;
                    }
                }
            };
            let _ = tokio::time::timeout(LINGER, reading).await;
        });
    }

    async fn collect(&self, mut body: Body) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        let reading = async {
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else {
                    return Err(Problem::new(Code::InvalidJson, "the body broke off").close());
                };
                let Some(data) = frame.data_ref() else {
                    continue;
                };
                if (bytes.len() + data.len()) as u64 > self.bounds.max_bytes {
                    return Err(self.too_large());
                }
                bytes.extend_from_slice(data);
            }
            Ok(())
        };
        let outcome = tokio::time::timeout(self.bounds.timeout, reading).await;
        match outcome {
            Ok(Ok(())) => Ok(bytes),
            Ok(Err(problem)) => {
                if problem.status() == axum::http::StatusCode::PAYLOAD_TOO_LARGE {
                    self.throw_away(&HeaderMap::new(), body);
                }
                Err(problem)
            }
            Err(_) => {
                let within = self.bounds.timeout.as_millis();
                Err(Problem::new(
                    Code::RequestTimeout,
                    format!("the body must arrive within {within} ms"),
                )
                .close())
            }
        }
    }

    async fn judge<T, F>(&self, packed: Encoding, bytes: Vec<u8>, judge: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, Problem> + Send + 'static,
    {
        if packed == Encoding::Plain && bytes.len() < LARGE_BYTES {
            return judge(&bytes);
        }
        let max_bytes = self.bounds.max_bytes;
        let permit = Arc::clone(&self.heavy).acquire_owned().await;
        let judging = tokio::task::spawn_blocking(move || {
            // Held until the work is done, even where its client has gone away.
            let _permit = permit;
            let unpacked = unpack(packed, &bytes, max_bytes)?;
            judge(unpacked.as_deref().unwrap_or(&bytes)).map_err(Unpack::from)
        });
        let too_large = |problem: Unpack| match problem {
            Unpack::TooLarge => self.too_large(),
            Unpack::Refused(problem) => problem,
        };
        match judging.await {
            Ok(verdict) => verdict.map_err(too_large),
            Err(_) => Err(Problem::new(
                Code::Internal,
                "the request could not be judged",
            )),
        }
    }
}

/// Why a body could not be unpacked or judged.
enum Unpack {
    TooLarge,
    Refused(Problem),
}

impl From<Problem> for Unpack {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

/// The decoded bytes; none where they are as they came. It stops at the bound, so a small body that swells is no danger.
fn unpack(packed: Encoding, bytes: &[u8], max_bytes: u64) -> Result<Option<Vec<u8>>, Unpack> {
    let broken = |_| {
        Problem::new(
            Code::InvalidJson,
            "the body cannot be decoded by its content-encoding",
        )
    };
    let mut unpacked = Vec::new();
    match packed {
        Encoding::Plain => return Ok(None),
        Encoding::Gzip => flate2::read::MultiGzDecoder::new(bytes)
            .take(max_bytes + 1)
            .read_to_end(&mut unpacked)
            .map_err(broken)?,
        Encoding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(broken)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(broken)?;
            decoder
                .take(max_bytes + 1)
                .read_to_end(&mut unpacked)
                .map_err(broken)?
        }
    };
    if unpacked.len() as u64 > max_bytes {
        return Err(Unpack::TooLarge);
    }
    Ok(Some(unpacked))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use axum::http::HeaderName;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| -> (HeaderName, _) {
            (name.parse().unwrap(), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    async fn read(encoding: &str, body: impl Into<Body>) -> Result<Vec<u8>, Problem> {
        let bounds = Bounds {
            max_bytes: 100_000,
            timeout: Duration::from_secs(20),
        };
        let reader = Reader::new(bounds, Tasks::new());
        let headers = headers(&[
            ("content-type", "application/json"),
            ("content-encoding", encoding),
        ]);
        reader
            .read(&headers, body.into(), |bytes| Ok(bytes.to_vec()))
            .await
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn all_three_encodings_give_the_same_bytes() {
        let bytes = vec![b'x'; 100_000];
        assert_eq!(read("identity", bytes.clone()).await.unwrap(), bytes);
        assert_eq!(read("gzip", gzip(&bytes)).await.unwrap(), bytes);
        assert_eq!(
            read("zstd", zstd::encode_all(&bytes[..], 3).unwrap())
                .await
                .unwrap(),
            bytes
        );
    }

    #[tokio::test]
    async fn one_byte_over_the_bound_is_refused_however_it_is_packed() {
        let bytes = vec![b'x'; 100_001];
        for (encoding, packed) in [
            ("", bytes.clone()),
            ("gzip", gzip(&bytes)),
            ("zstd", zstd::encode_all(&bytes[..], 3).unwrap()),
        ] {
            assert_eq!(
                read(encoding, packed).await.unwrap_err().code(),
                "body_too_large",
                "{encoding}"
            );
        }
    }

    #[tokio::test]
    async fn what_cannot_be_decoded_is_refused() {
        assert_eq!(
            read("gzip", "not gzip").await.unwrap_err().code(),
            "invalid_json"
        );
        assert_eq!(
            read("zstd", "not zstd").await.unwrap_err().code(),
            "invalid_json"
        );
        assert_eq!(
            read("br", "x").await.unwrap_err().code(),
            "unsupported_media_type"
        );
        let mut cut = gzip(&[b'x'; 1000]);
        cut.truncate(cut.len() - 4);
        assert_eq!(read("gzip", cut).await.unwrap_err().code(), "invalid_json");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let silent = Body::from_stream(futures_util::stream::pending::<
            Result<bytes::Bytes, std::io::Error>,
        >());
        assert_eq!(
            read("", silent).await.unwrap_err().code(),
            "request_timeout"
        );
    }
}
