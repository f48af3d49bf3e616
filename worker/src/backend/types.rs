//! What goes into a call and what comes out.

use std::time::Duration;

use bytes::Bytes;

pub use tidegate_shared::domain::Endpoint;

use super::upstream::UpstreamDetail;

/// What to call.
#[derive(Debug, Clone)]
pub struct CallRequest<'a> {
    /// The route.
    pub endpoint: Endpoint,
    /// The caller's JSON object, bytes as received.
    pub body: &'a [u8],
    /// W3C `traceparent` the call carries on; one that is no valid header value is left out.
    pub traceparent: Option<String>,
    /// Sent as `x-request-id`, so that the model server's log can be matched.
    pub request_id: &'a str,
}

/// The four time-outs of one call, all on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection (TLS included) stands.
    pub connect: Duration,
    /// From the start of the call to the first byte of the body.
    pub first_byte: Duration,
    /// Between two signs of progress after that. Comments and blank events of a stream, and white space of a plain
    /// body, are no progress: a heartbeat must not hide a dead model.
    pub between_chunks: Duration,
    /// From the start of the call to its end.
    pub total: Duration,
}

/// Bounds of one model server's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest body kept, in bytes: as received for a plain answer, as assembled for a streamed one. Also bounds one
    /// event of a stream, so that memory for a call is at most about twice this.
    pub max_response_bytes: usize,
}

/// Hears about progress while the answer comes. Called on the task that reads the answer: must not block.
pub trait Progress: Send + Sync {
    /// Output tokens so far: an estimate (one for each piece of text) until the server reports its own count.
    fn output_tokens(&self, so_far: u64);
    /// One event's data as received. `[DONE]`, error events, and the usage chunk that the caller did not ask for are
    /// left out.
    fn chunk(&self, data: &[u8]);
}

/// Nobody listens.
impl Progress for () {
    fn output_tokens(&self, _so_far: u64) {}
    fn chunk(&self, _data: &[u8]) {}
}

/// How a call ended.
#[derive(Debug)]
pub enum CallOutcome {
    /// A complete, validated answer.
    Answered(Answer),
    /// The model server refused in a way that no repetition changes.
    Refused(UpstreamError),
    /// Anything else that is no answer; [`CallFailure::retryable`] tells whether another try may help.
    Failed(CallFailure),
    /// The caller gave the call up; the connection is closed.
    Cancelled {
        /// Output tokens seen before, as in [`Progress::output_tokens`].
        output_tokens_so_far: u64,
    },
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The model server's HTTP status, 200–299.
    pub status: u16,
    /// One JSON object: the server's bytes without a byte order mark, or the body assembled from its stream.
    pub body: Bytes,
    /// Media type of [`Self::body`].
    pub content_type: String,
    /// What the call used.
    pub usage: Usage,
    /// The server reported usage that cannot be true (negative, not a number, absurd); it was not believed.
    pub odd_usage: bool,
    /// `finish_reason` of each choice, by index; empty where there are no choices.
    pub finish_reasons: Vec<String>,
    /// Whether the answer came as a stream.
    pub streamed: bool,
}

/// Tokens of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Both, or more where the server says so.
    pub total_tokens: u64,
    /// Some of the above is our estimate, because the server did not say or what it said cannot be true.
    pub estimated: bool,
}

/// Why a call failed: the job error codes of the public interface that can come from a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureCode {
    /// The server judged the request itself and said no.
    UpstreamRefused,
    /// The server failed, was busy, or pointed elsewhere.
    UpstreamError,
    /// No connection, or it broke before any answer.
    ConnectFailed,
    /// Nothing came within [`Timeouts::first_byte`].
    FirstByteTimeout,
    /// Nothing came within [`Timeouts::between_chunks`].
    Stalled,
    /// Not done within [`Timeouts::total`].
    Timeout,
    /// More than [`Limits::max_response_bytes`].
    ResponseTooLarge,
    /// What came is not the JSON (or HTTP) it claims to be.
    InvalidResponse,
    /// The answer ended before its end.
    IncompleteResponse,
}

impl FailureCode {
    /// Every code.
    pub const ALL: [Self; 9] = [
        Self::UpstreamRefused,
        Self::UpstreamError,
        Self::ConnectFailed,
        Self::FirstByteTimeout,
        Self::Stalled,
        Self::Timeout,
        Self::ResponseTooLarge,
        Self::InvalidResponse,
        Self::IncompleteResponse,
    ];

    /// The code as the public interface spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UpstreamRefused => "upstream_refused",
            Self::UpstreamError => "upstream_error",
            Self::ConnectFailed => "connect_failed",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::Stalled => "stalled",
            Self::Timeout => "timeout",
            Self::ResponseTooLarge => "response_too_large",
            Self::InvalidResponse => "invalid_response",
            Self::IncompleteResponse => "incomplete_response",
        }
    }
}

/// A refusal that never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamError {
    /// `upstream_refused`, or `upstream_error` for a redirect.
    pub code: FailureCode,
    /// One sentence for people: status, the server's code and its message; bounded, control characters escaped.
    pub message: String,
    /// What the server said, member by member.
    pub upstream: UpstreamDetail,
}

/// A call that gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// Why.
    pub code: FailureCode,
    /// One sentence for people; bounded, control characters escaped.
    pub message: String,
    /// What the server said, where it said something.
    pub upstream: Option<UpstreamDetail>,
    /// How long the server asked to wait; not capped here, compare it with the job's deadline.
    pub retry_after: Option<Duration>,
    /// What had come of the answer: raw bytes of a plain body, the assembled body of a stream (unfinished choices carry
    /// `finish_reason: null`). At most [`Limits::max_response_bytes`]; `None` when nothing of the answer had come.
    pub partial: Option<Bytes>,
    /// Output tokens seen, as in [`Progress::output_tokens`]; 0 for a plain call.
    pub output_tokens_so_far: u64,
}

impl CallFailure {
    /// Whether another try may end differently: all but an answer that is too large, which would be so again.
    pub fn retryable(&self) -> bool {
        self.code != FailureCode::ResponseTooLarge
    }

    /// The HTTP status the server gave, where it gave an error.
    pub fn upstream_status(&self) -> Option<u16> {
        self.upstream.as_ref().and_then(|detail| detail.status)
    }
}
