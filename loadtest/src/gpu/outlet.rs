//! The answer side of a connection: heads, framed bodies, and the ends a script puts to them.

use super::http::Conn;

/// Why an answer ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The caller closed its side, or the write failed.
    CallerClosed,
    /// The script ends the answer here, by closing.
    CutClose,
    /// The script ends the answer here, by a TCP reset.
    CutReset,
}

/// How the caller learns where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// `Content-Length` with this many bytes.
    Sized(usize),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// No body at all (204, 304).
    Empty,
}

/// Where a script ends the body early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Body bytes let through before the end; chunk framing is not counted.
    pub(super) after_bytes: u64,
    /// By reset instead of by close.
    pub(super) reset: bool,
}

/// The answer side of one call: sends a head, then a body, and keeps the scripted cut.
#[derive(Debug)]
pub(super) struct Outlet<'a> {
    pub(super) conn: &'a mut Conn,
    framing: Framing,
    cut: Option<Cut>,
}

impl<'a> Outlet<'a> {
    /// Sends the head. `extra` replaces a default header of the same name; among themselves extras may repeat.
    pub(super) async fn open(
        conn: &'a mut Conn,
        status: u16,
        defaults: &[(&str, &str)],
        extra: &[(String, String)],
        framing: Framing,
        cut: Option<Cut>,
    ) -> Result<Self, Stop> {
        conn.write(render_head(status, defaults, extra, framing).as_bytes())
            .await?;
        let mut outlet = Self { conn, framing, cut };
        // A cut after zero bytes happens at the head, also when the body never comes.
        if outlet.cut.is_some_and(|c| c.after_bytes == 0) {
            outlet.send(b"").await?;
        }
        Ok(outlet)
    }

    /// Sends body bytes, as one chunk when chunked.
    pub(super) async fn send(&mut self, body: &[u8]) -> Result<(), Stop> {
        let mut part = body;
        let mut ended = None;
        if let Some(cut) = &mut self.cut {
            let room = usize::try_from(cut.after_bytes).unwrap_or(usize::MAX);
            if room <= body.len() {
                part = &body[..room];
                ended = Some(if cut.reset {
                    Stop::CutReset
                } else {
                    Stop::CutClose
                });
            }
            cut.after_bytes = cut.after_bytes.saturating_sub(part.len() as u64);
        }
        if !part.is_empty() {
            match self.framing {
                Framing::Chunked => {
                    let mut framed = format!("{:x}\r\n", part.len()).into_bytes();
                    framed.extend_from_slice(part);
                    framed.extend_from_slice(b"\r\n");
                    self.conn.write(&framed).await?;
                }
                Framing::Sized(_) => self.conn.write(part).await?,
                Framing::Empty => {}
            }
        }
        ended.map_or(Ok(()), Err)
    }

    /// Ends the body.
    pub(super) async fn end(self) -> Result<(), Stop> {
        match self.framing {
            Framing::Chunked => self.conn.write(b"0\r\n\r\n").await,
            Framing::Sized(_) | Framing::Empty => Ok(()),
        }
    }
}

fn render_head(
    status: u16,
    defaults: &[(&str, &str)],
    extra: &[(String, String)],
    framing: Framing,
) -> String {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    let replaced = |name: &str| extra.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    let kept = defaults.iter().copied().filter(|(n, _)| !replaced(n));
    for (name, value) in kept.chain(extra.iter().map(|(n, v)| (n.as_str(), v.as_str()))) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match framing {
        Framing::Sized(bytes) => head.push_str(&format!("content-length: {bytes}\r\n")),
        Framing::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
        Framing::Empty => {}
    }
    head.push_str("\r\n");
    head
}

/// The usual words after a status; RFC 9112 lets them be empty.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "",
    }
}
