//! What one prompt asks of the server: a script in double square brackets, `[[sim key=value; key=value]]`.
//!
//! Tests build it with [`Script`] and put the rendered text anywhere in the prompt; the server parses it back
//! ([`Script::parse_all`]). Several scripts in one prompt are a sequence: the first call with that tag obeys the first,
//! the next call the next, and the last one stays. Text, bodies and header values are percent-encoded, so that no value
//! can end a script or need escaping inside JSON.

mod parse;

use std::fmt;

pub use parse::ScriptError;
pub(super) use parse::percent_decode;

/// Largest scripted answer, as one request's body is bounded.
pub(super) const ANSWER_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Most chunks of one scripted answer: an hour at a chunk every few milliseconds.
pub(super) const CHUNKS_MAX: u32 = 1_000_000;
/// Longest scripted pause: one day in milliseconds, so that no sum of times overflows.
pub(super) const PAUSE_MAX_MS: u64 = 86_400_000;

/// How a scripted cut ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CutHow {
    /// A polite close (FIN) without the end the framing asks for.
    #[default]
    Close,
    /// A TCP reset (RST).
    Reset,
    /// An SSE event with a top-level `error`, then the end of the body. With `cut_chunks` only.
    Error,
    /// Half an SSE event, then a polite close. With `cut_chunks` only.
    Half,
}

/// The `finish_reason` of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The answer came to its own end.
    Stop,
    /// The answer met its bound of output tokens.
    Length,
}

impl Finish {
    /// The word on the wire.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// A script for the simulated GPU server. Every setter takes and gives the script; `to_string` renders it.
///
/// ```
/// use tidegate_loadtest::gpu::Script;
/// assert_eq!(Script::tag("a").sleep_ms(50).to_string(), "[[sim tag=a; sleep_ms=50]]");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    pub(super) tag: Option<String>,
    pub(super) sleep_ms: Option<u64>,
    pub(super) first_ms: Option<u64>,
    pub(super) chunk_ms: Option<u64>,
    pub(super) chunks: Option<u32>,
    pub(super) text: Option<String>,
    pub(super) bytes: Option<u64>,
    pub(super) status: Option<u16>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) cut: Option<u64>,
    pub(super) cut_chunks: Option<u32>,
    pub(super) cut_how: Option<CutHow>,
    pub(super) no_usage: bool,
    pub(super) no_done: bool,
    pub(super) no_finish: bool,
    pub(super) finish: Option<Finish>,
    pub(super) hold: bool,
    pub(super) comments_only: bool,
    pub(super) plain: bool,
    pub(super) raw: Option<Vec<u8>>,
    pub(super) usage_in: Option<u64>,
    pub(super) usage_out: Option<u64>,
    pub(super) short_by: Option<u64>,
    pub(super) fail_times: Option<u32>,
    pub(super) refuse: bool,
}

/// Setters that only store their value.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $kind:ty;)*) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, value: $kind) -> Self {
            self.$name = Some(value.into());
            self
        })*
    };
}

/// Setters that switch something on.
macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self) -> Self {
            self.$name = true;
            self
        })*
    };
}

impl Script {
    /// A script whose calls appear in the log under `tag`.
    #[must_use]
    pub fn tag(tag: impl Into<String>) -> Self {
        Self {
            tag: Some(tag.into()),
            ..Self::default()
        }
    }

    /// A script without a tag; `hold`, `fail_times` and sequences need one.
    #[must_use]
    pub fn untagged() -> Self {
        Self::default()
    }

    setters! {
        /// Pause before the answer's head, in milliseconds; the call is being worked on meanwhile.
        sleep_ms: u64;
        /// Pause between the head and the first body byte, in milliseconds.
        first_ms: u64;
        /// Pause before each content chunk, in milliseconds; a plain answer takes the sum of them.
        chunk_ms: u64;
        /// Number of content chunks; without `text` or `bytes` one generated word each.
        chunks: u32;
        /// The exact text of the answer, whatever `max_tokens` says; one word is one output token.
        text: &str;
        /// Answer text of exactly so many bytes, four to an output token.
        bytes: u64;
        /// Answers with this status (200 to 599) and `body`, or an error body made for it.
        status: u16;
        /// The raw body for `status` (200 when that is not given).
        body: &[u8];
        /// Ends the connection after so many bytes of the body (see `cut_how`).
        cut: u64;
        /// Ends a streamed answer after so many content chunks (see `cut_how`).
        cut_chunks: u32;
        /// How `cut`, `cut_chunks` and `refuse` end the connection.
        cut_how: CutHow;
        /// Says this finish reason instead of the true one.
        finish: Finish;
        /// These bytes are the whole body, streamed or not; name a content type with [`Script::header`].
        raw: &[u8];
        /// Says so many input tokens in `usage`.
        usage_in: u64;
        /// Says so many output tokens in `usage`.
        usage_out: u64;
        /// A plain answer that closes so many bytes short of its `Content-Length`; implies `plain`.
        short_by: u64;
        /// Misbehaves for the first so many calls with this tag only. Later ones keep what describes a good answer:
        /// tag, text, bytes, chunks, chunk_ms, finish and usage.
        fail_times: u32;
    }

    switches! {
        /// Leaves usage out.
        no_usage;
        /// Ends a stream without `data: [DONE]`.
        no_done;
        /// Gives no finish reason.
        no_finish;
        /// Keeps the answer until [`super::Server::release`] is called with this tag.
        hold;
        /// Streams SSE comments only: one each `chunk_ms` (100 when not given), `chunks` of them or without end.
        comments_only;
        /// Answers in one JSON body even where a stream was asked for.
        plain;
        /// Closes the connection before the head (see `cut_how`).
        refuse;
    }

    /// Adds a header to the answer; it replaces a header the server would send under that name, and may be repeated.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// All scripts in `prompt`, in order.
    ///
    /// # Errors
    /// A script that does not close, an unknown or repeated key, a value of the wrong kind, or keys that exclude each
    /// other; the error names the key and what would be right.
    pub fn parse_all(prompt: &str) -> Result<Vec<Self>, ScriptError> {
        parse::parse_all(prompt)
    }

    /// What is left of this script for the call that `earlier` calls with the same tag came before.
    pub(super) fn at(&self, earlier: usize) -> Self {
        let keep = self
            .fail_times
            .is_none_or(|n| earlier < usize::try_from(n).unwrap_or(usize::MAX));
        if keep {
            return self.clone();
        }
        Self {
            tag: self.tag.clone(),
            text: self.text.clone(),
            bytes: self.bytes,
            chunks: self.chunks,
            chunk_ms: self.chunk_ms,
            finish: self.finish,
            usage_in: self.usage_in,
            usage_out: self.usage_out,
            ..Self::default()
        }
    }
}

/// Everything but RFC 3986's unreserved characters is encoded.
fn percent_encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

impl Script {
    /// The script's `key=value` parts and bare keys, rendered.
    fn parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let mut text = |key: &str, value: Option<&[u8]>| {
            parts.extend(value.map(|v| format!("{key}={}", percent_encode(v))));
        };
        text("tag", self.tag.as_deref().map(str::as_bytes));
        text("text", self.text.as_deref().map(str::as_bytes));
        text("body", self.body.as_deref());
        text("raw", self.raw.as_deref());
        let numbers = [
            ("sleep_ms", self.sleep_ms),
            ("first_ms", self.first_ms),
            ("chunk_ms", self.chunk_ms),
            ("chunks", self.chunks.map(u64::from)),
            ("bytes", self.bytes),
            ("status", self.status.map(u64::from)),
            ("cut", self.cut),
            ("cut_chunks", self.cut_chunks.map(u64::from)),
            ("usage_in", self.usage_in),
            ("usage_out", self.usage_out),
            ("short_by", self.short_by),
            ("fail_times", self.fail_times.map(u64::from)),
        ];
        parts.extend(
            numbers
                .iter()
                .filter_map(|(key, value)| value.map(|v| format!("{key}={v}"))),
        );
        let headers = self.headers.iter();
        parts
            .extend(headers.map(|(name, value)| {
                format!("header.{name}={}", percent_encode(value.as_bytes()))
            }));
        parts.extend(self.cut_how.map(|how| format!("cut_how={}", how.word())));
        parts.extend(
            self.finish
                .map(|finish| format!("finish={}", finish.word())),
        );
        let switches = [
            ("no_usage", self.no_usage),
            ("no_done", self.no_done),
            ("no_finish", self.no_finish),
            ("hold", self.hold),
            ("comments_only", self.comments_only),
            ("plain", self.plain),
            ("refuse", self.refuse),
        ];
        parts.extend(
            switches
                .iter()
                .filter(|(_, on)| *on)
                .map(|(key, _)| (*key).to_owned()),
        );
        parts
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        let space = if parts.is_empty() { "" } else { " " };
        write!(f, "[[sim{space}{}]]", parts.join("; "))
    }
}

impl CutHow {
    /// The word in a script.
    fn word(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Reset => "reset",
            Self::Error => "error",
            Self::Half => "half",
        }
    }
}
