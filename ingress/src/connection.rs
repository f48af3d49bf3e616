//! One connection: how long it may take for what, and how it ends.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Most bytes of a request's head, and what is read ahead of a body.
const BUFFER_BYTES: usize = 128 * 1024;
/// How long a connection may rest between two requests, or take none of an answer: longer than the usual clients keep one (90 s at most), so that
/// it is they who end it and no request meets a closing door.
const IDLE: Duration = Duration::from_secs(120);
/// How long a connection that has sent nothing yet is waited for once no more are taken.
const FRESH: Duration = Duration::from_millis(500);

/// Ends one connection at once; in the extensions of each of its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hangup(CancellationToken);

impl Hangup {
    /// One that `all` ends too.
    pub(crate) fn under(all: &CancellationToken) -> Self {
        Self(all.child_token())
    }

    /// Ends the connection.
    pub(crate) fn now(&self) {
        self.0.cancel();
    }

    /// Whether that was asked for.
    #[cfg(test)]
    pub(crate) fn is_hung_up(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing has come yet, or the head of a request is on its way, since then.
    Head(Instant),
    /// A request is served.
    Busy,
    /// Between two requests, since then.
    Idle(Instant),
}

/// In the extensions of a request whose head gave its length more than once. The server library drops a second one that
/// says the same, so it is looked for in the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LengthRepeated;

/// Looks for repeated lengths in a head, line by line.
#[derive(Debug, Default)]
struct HeadScan {
    /// Beginning of the line that is being read.
    line: Vec<u8>,
    begun: bool,
    over: bool,
    lengths: usize,
}

impl HeadScan {
    const NAME: &[u8] = b"content-length:";

    fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.over {
                return;
            }
            if byte != b'\n' {
                if self.line.len() < Self::NAME.len() {
                    self.line.push(byte);
                }
                continue;
            }
            let empty = matches!(self.line.as_slice(), b"" | b"\r");
            self.over = empty && self.begun;
            self.begun |= !empty;
            self.lengths += usize::from(self.line.eq_ignore_ascii_case(Self::NAME));
            self.line.clear();
        }
    }
}

/// The phase of a connection, told by its bytes and its requests.
#[derive(Debug)]
struct Pace {
    phase: Mutex<Phase>,
    changed: Notify,
    head: Mutex<HeadScan>,
}

impl Pace {
    fn new(phase: Phase) -> Arc<Self> {
        Arc::new(Self {
            phase: Mutex::new(phase),
            changed: Notify::new(),
            head: Mutex::default(),
        })
    }

    /// Whether the head that was read gave its length more than once; the next head is another one.
    fn take_repeated(&self) -> bool {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *head).lengths > 1
    }

    fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.changed.notify_one();
    }

    /// Bytes have come: a head begins, if nothing else goes on.
    fn bytes(&self, bytes: &[u8]) {
        match self.phase() {
            Phase::Busy => return,
            Phase::Idle(_) => self.set(Phase::Head(Instant::now())),
            Phase::Head(_) => {}
        }
        self.head
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .feed(bytes);
    }

    /// Bytes have gone out: a reader of an answer that was handed over is still there.
    fn wrote(&self) {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if let Phase::Idle(since) = &mut *phase {
            *since = Instant::now();
        }
    }

    /// Returns once a phase has taken too long, with that phase.
    async fn overdue(&self, head: Duration) -> Phase {
        loop {
            let phase = self.phase();
            let until = match phase {
                Phase::Head(since) => since + head,
                Phase::Idle(since) => since + IDLE,
                Phase::Busy => {
                    self.changed.notified().await;
                    continue;
                }
            };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {
                    if self.phase() == phase {
                        return phase;
                    }
                }
                () = self.changed.notified() => {}
            }
        }
    }
}

/// A stream that tells of the bytes that come.
struct Paced {
    stream: TcpStream,
    pace: Arc<Pace>,
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.pace.bytes(&buf.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.pace.wrote();
        Poll::Ready(Ok(wrote))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.pace.wrote();
        Poll::Ready(Ok(wrote))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Says that a request is over when it is dropped: once its body is read or given up and its answer is written, for until
/// then what comes is not the head of another.
struct Served(Arc<Pace>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.set(Phase::Idle(Instant::now()));
    }
}

/// A body that keeps its request going until it is at its end or given up: the request's own, or its answer's.
struct Going<B> {
    body: B,
    _served: Arc<Served>,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Going<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that was taken.
pub(crate) struct Connection {
    pub(crate) router: Router,
    /// From its first moment, and from the first byte of each further request, to a complete head.
    pub(crate) header_timeout: Duration,
    /// No further requests.
    pub(crate) stop: CancellationToken,
    pub(crate) hangup: Hangup,
}

impl Connection {
    /// Serves its requests until it ends.
    pub(crate) async fn serve(self, stream: TcpStream) {
        let pace = Pace::new(Phase::Head(Instant::now()));
        let service = service_fn(|mut request: Request<Incoming>| {
            pace.set(Phase::Busy);
            let served = Arc::new(Served(Arc::clone(&pace)));
            request.extensions_mut().insert(self.hangup.clone());
            if pace.take_repeated() {
                request.extensions_mut().insert(LengthRepeated);
            }
            let going = Arc::clone(&served);
            let request = request.map(|body| {
                Body::new(Going {
                    body,
                    _served: going,
                })
            });
            let answering = self.router.clone().oneshot(request);
            async move {
                let answer = answering.await?;
                Ok::<_, std::convert::Infallible>(answer.map(|body| Going {
                    body,
                    _served: served,
                }))
            }
        });
        let paced = Paced {
            stream,
            pace: Arc::clone(&pace),
        };
        let mut builder = http1::Builder::new();
        let connection = builder
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(paced), service);
        tokio::pin!(connection);
        let (overdue, stopped) = (pace.overdue(self.header_timeout), self.stopped(&pace));
        tokio::pin!(overdue, stopped);
        let mut asked = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection broke off");
                    }
                    return;
                }
                phase = &mut overdue => {
                    tracing::debug!(?phase, "a connection was given up");
                    return;
                }
                () = &mut stopped, if !asked => {
                    asked = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = self.hangup.0.cancelled() => return,
            }
        }
    }

    /// Returns once no further requests are taken.
    async fn stopped(&self, pace: &Pace) {
        self.stop.cancelled().await;
        // It was taken, and its first request may be on the way.
        if matches!(pace.phase(), Phase::Head(_)) {
            tokio::time::sleep(FRESH).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_length_is_found_in_the_head_alone_however_it_is_cut() {
        let twice = b"\r\nPOST / HTTP/1.1\r\nContent-Length: 5\r\nx: content-length: 5\r\ncontent-length: 5\r\n\r\n";
        let once = b"POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length-x: 1\r\n\r\ncontent-length: 5\r\n\r\n";
        for size in [1, 2, 7, 1000] {
            for (head, lengths) in [(twice.as_slice(), 2), (once.as_slice(), 1)] {
                let mut scan = HeadScan::default();
                head.chunks(size).for_each(|bytes| scan.feed(bytes));
                assert_eq!(
                    (scan.lengths, scan.over),
                    (lengths, true),
                    "in pieces of {size}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_own_time() {
        let head = Duration::from_secs(10);
        let start = Instant::now();
        let pace = Pace::new(Phase::Head(start));
        assert_eq!(pace.overdue(head).await, Phase::Head(start));
        assert_eq!(start.elapsed().as_secs(), 10);
        let rested = Instant::now();
        pace.set(Phase::Idle(rested));
        assert_eq!(pace.overdue(head).await, Phase::Idle(rested));
        assert_eq!(rested.elapsed().as_secs(), IDLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_no_time_here_and_the_first_byte_starts_the_heads() {
        let pace = Pace::new(Phase::Busy);
        let head = Duration::from_secs(10);
        let waiting = tokio::time::timeout(Duration::from_secs(1000), pace.overdue(head));
        assert!(waiting.await.is_err());
        pace.bytes(b"G");
        assert_eq!(pace.phase(), Phase::Busy);
        drop(Served(Arc::clone(&pace)));
        assert!(matches!(pace.phase(), Phase::Idle(_)));
        pace.bytes(b"G");
        let begun = Instant::now();
        assert_eq!(pace.overdue(head).await, Phase::Head(begun));
        assert_eq!(begun.elapsed(), head);
    }
}
