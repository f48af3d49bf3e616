//! The connection: just enough HTTP/1.1 to answer wrongly on purpose.
//!
//! A server library refuses to send what the tests need: bodies shorter than announced, resets in the middle, closes before
//! the head. So the wire is read and written by hand: requests strictly (RFC 9112) here, answers byte by byte in `outlet`.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::outlet::Stop;

/// Largest request body: 64 MiB, far above any body the product lets through.
const BODY_MAX_BYTES: usize = 64 * 1024 * 1024;
/// Largest request head, as most servers have it.
const HEAD_MAX_BYTES: usize = 64 * 1024;
/// Bytes a caller may send ahead while its call is answered; beyond, a close is noticed only at the next write.
const AHEAD_MAX_BYTES: usize = 256 * 1024;
/// How long a refused caller gets to read the refusal before the socket goes.
const LINGER: Duration = Duration::from_secs(1);

/// One request, wholly read.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    /// Names in lower case, in order of arrival.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// The caller asked to have the connection closed after the answer.
    pub(super) close: bool,
}

/// Why no request was read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The caller closed, or the socket failed.
    Gone,
    /// The request is not acceptable; the connection must be closed after saying so.
    Refused(u16, String),
}

fn refused<T>(status: u16, why: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Refused(status, why.into()))
}

/// One caller's connection.
#[derive(Debug)]
pub(super) struct Conn {
    stream: TcpStream,
    buf: BytesMut,
}

impl Conn {
    pub(super) fn new(stream: TcpStream) -> Self {
        // Only a matter of latency; a socket that refuses it still works.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            buf: BytesMut::with_capacity(8 * 1024),
        }
    }

    async fn fill(&mut self) -> Result<(), ReadError> {
        match self.stream.read_buf(&mut self.buf).await {
            Ok(0) | Err(_) => Err(ReadError::Gone),
            Ok(_) => Ok(()),
        }
    }

    /// Takes everything up to and with `end` off the buffer, reading more as needed.
    async fn take_until(&mut self, end: &[u8], max_bytes: usize) -> Result<Vec<u8>, ReadError> {
        let mut scanned = 0;
        loop {
            if let Some(at) = self.buf[scanned..]
                .windows(end.len())
                .position(|w| w == end)
            {
                return Ok(self.buf.split_to(scanned + at + end.len()).to_vec());
            }
            scanned = self.buf.len().saturating_sub(end.len() - 1);
            if self.buf.len() > max_bytes {
                return refused(
                    431,
                    format!("request head or chunk line above {max_bytes} bytes"),
                );
            }
            self.fill().await?;
        }
    }

    async fn take_exact(&mut self, bytes: usize, into: &mut Vec<u8>) -> Result<(), ReadError> {
        let mut left = bytes;
        while left > 0 {
            if self.buf.is_empty() {
                self.fill().await?;
            }
            let part = left.min(self.buf.len());
            into.extend_from_slice(&self.buf[..part]);
            self.buf.advance(part);
            left -= part;
        }
        Ok(())
    }

    /// Reads the next request of the connection, body included.
    pub(super) async fn read_request(&mut self) -> Result<Request, ReadError> {
        let head = self.take_until(b"\r\n\r\n", HEAD_MAX_BYTES).await?;
        let mut request = parse_head(&head)?;
        let body_kind = body_kind(&request.headers)?;
        if request
            .header("expect")
            .is_some_and(|v| v.eq_ignore_ascii_case("100-continue"))
        {
            self.stream
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await
                .map_err(|_| ReadError::Gone)?;
        }
        request.body = match body_kind {
            BodyKind::Sized(bytes) => {
                let mut body = Vec::new();
                self.take_exact(bytes, &mut body).await?;
                body
            }
            BodyKind::Chunked => self.read_chunked().await?,
        };
        Ok(request)
    }

    async fn read_chunked(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        loop {
            let line = self.take_until(b"\r\n", HEAD_MAX_BYTES).await?;
            let text = String::from_utf8_lossy(&line);
            let size = text.split(';').next().unwrap_or_default().trim();
            let Ok(bytes) = usize::from_str_radix(size, 16) else {
                return refused(
                    400,
                    format!("chunk size {size:?} is not a hexadecimal number"),
                );
            };
            if bytes == 0 {
                // Trailers, up to the empty line, say nothing this server needs.
                while self.take_until(b"\r\n", HEAD_MAX_BYTES).await? != b"\r\n" {}
                return Ok(body);
            }
            if bytes > BODY_MAX_BYTES - body.len() {
                return refused(413, format!("body above {BODY_MAX_BYTES} bytes"));
            }
            self.take_exact(bytes, &mut body).await?;
            if self.take_until(b"\r\n", 2).await? != b"\r\n" {
                return refused(400, "chunk does not end in CRLF");
            }
        }
    }

    /// Resolves when the caller has closed its side. Losing the race in a `select!` loses nothing: what it read is kept.
    pub(super) async fn closed(&mut self) {
        while self.buf.len() < AHEAD_MAX_BYTES {
            if self.fill().await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Waits for `future`, unless the caller closes first.
    pub(super) async fn unless_closed<T>(
        &mut self,
        future: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        tokio::select! {
            biased;
            () = self.closed() => Err(Stop::CallerClosed),
            value = future => Ok(value),
        }
    }

    /// Waits until `due`, unless the caller closes first.
    pub(super) async fn wait_until(&mut self, due: Instant) -> Result<(), Stop> {
        if due <= Instant::now() {
            return Ok(());
        }
        self.unless_closed(tokio::time::sleep_until(due)).await
    }

    /// Waits for `pause`, unless the caller closes first.
    pub(super) async fn wait(&mut self, pause: Duration) -> Result<(), Stop> {
        self.wait_until(Instant::now() + pause).await
    }

    /// Writes all of `bytes`.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.stream
            .write_all(bytes)
            .await
            .map_err(|_| Stop::CallerClosed)
    }

    /// Closes with a TCP reset: the caller sees "connection reset by peer", not an end of stream.
    pub(super) fn reset(self) {
        // With a linger of zero the kernel answers the close by RST; where it fails the close is a plain one.
        let _ = self.stream.set_zero_linger();
    }

    /// Closes politely, giving the caller time to read what was sent though its own bytes were not all read.
    pub(super) async fn close_after_refusal(mut self) {
        let _: io::Result<()> = self.stream.shutdown().await;
        let drain = async {
            while self.fill().await.is_ok() {
                self.buf.clear();
            }
        };
        let _ = tokio::time::timeout(LINGER, drain).await;
    }
}

impl Request {
    /// The first header of that (lower case) name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }
}

enum BodyKind {
    Sized(usize),
    Chunked,
}

fn parse_head(head: &[u8]) -> Result<Request, ReadError> {
    let Ok(text) = std::str::from_utf8(head) else {
        return refused(400, "request head is not UTF-8");
    };
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let words: Vec<&str> = first.split(' ').collect();
    let &[method, target, version] = words.as_slice() else {
        return refused(
            400,
            format!("request line {first:?} is not METHOD TARGET VERSION"),
        );
    };
    if version != "HTTP/1.1" {
        return refused(505, format!("{version:?} is not served, HTTP/1.1 is"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = Vec::new();
    for line in lines.filter(|l| !l.is_empty()) {
        let Some((name, value)) = line.split_once(':').filter(|(n, _)| is_header_name(n)) else {
            return refused(400, format!("header line {line:?} is not NAME: VALUE"));
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let close = headers
        .iter()
        .any(|(n, v)| n == "connection" && v.to_ascii_lowercase().contains("close"));
    Ok(Request {
        method: method.into(),
        path: path.into(),
        query: query.into(),
        headers,
        body: Vec::new(),
        close,
    })
}

fn body_kind(headers: &[(String, String)]) -> Result<BodyKind, ReadError> {
    let mut sized = None;
    for (_, value) in headers.iter().filter(|(n, _)| n == "content-length") {
        match value.parse::<usize>() {
            Ok(bytes) if sized.is_none_or(|s| s == bytes) => sized = Some(bytes),
            _ => return refused(400, format!("Content-Length {value:?} is not one number")),
        }
    }
    match headers.iter().find(|(n, _)| n == "transfer-encoding") {
        Some(_) if sized.is_some() => refused(400, "both Content-Length and Transfer-Encoding"),
        Some((_, v)) if v.eq_ignore_ascii_case("chunked") => Ok(BodyKind::Chunked),
        Some((_, v)) => refused(
            501,
            format!("Transfer-Encoding {v:?} is not served, chunked is"),
        ),
        None => match sized.unwrap_or(0) {
            bytes if bytes > BODY_MAX_BYTES => {
                refused(413, format!("body above {BODY_MAX_BYTES} bytes"))
            }
            bytes => Ok(BodyKind::Sized(bytes)),
        },
    }
}

/// Whether `name` may stand before the colon of a header line (RFC 9110, `field-name`).
pub(super) fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
