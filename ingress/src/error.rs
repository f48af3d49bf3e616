//! Refusals and failures as clients see them: RFC 9457 problem details that also carry the OpenAI `error` member.

use std::borrow::Cow;

use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_shared::store::{StoreError, Trouble};

/// Content type of every refusal (RFC 9457).
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// Tells official OpenAI clients whether sending again can help; stands above their rule by status.
pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Longest `Retry-After`, in seconds: some clients ignore a longer one and come back at once.
const MAX_RETRY_AFTER_S: u64 = 60;

/// Longest text of a caller that is shown back, in characters.
const MAX_ECHO_CHARS: usize = 200;

/// Whether sending the same again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// Never: `x-should-retry: false`.
    Never,
    /// After a while; the number is the usual `Retry-After`, in seconds.
    After(u64),
    /// Nobody knows: a client follows its own rule.
    Open,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:ident, $kind:literal, $again:expr, $title:literal;)+) => {
        /// The stable list of codes of requests. (A job's own codes are the worker's and pass through as they are.)
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code { $($(#[$doc])* $name,)+ }
        impl Code {
            /// Every code.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)+];
            /// The word that clients match on.
            pub(crate) fn as_str(self) -> &'static str { match self { $(Self::$name => $word,)+ } }
            /// HTTP status.
            pub(crate) fn status(self) -> StatusCode { match self { $(Self::$name => StatusCode::$status,)+ } }
            /// The OpenAI error's `type`.
            fn kind(self) -> &'static str { match self { $(Self::$name => $kind,)+ } }
            fn again(self) -> Again { match self { $(Self::$name => $again,)+ } }
            fn title(self) -> &'static str { match self { $(Self::$name => $title,)+ } }
        }
    };
}

codes! {
    /// Not JSON, or not UTF-8.
    InvalidJson = "invalid_json", BAD_REQUEST, "invalid_request_error", Again::Never, "Not valid JSON";
    /// A key twice in one object, or a header that may stand once.
    DuplicateKey = "duplicate_key", BAD_REQUEST, "invalid_request_error", Again::Never, "Given more than once";
    /// Nested deeper than `ingress.max_depth`.
    TooDeep = "too_deep", BAD_REQUEST, "invalid_request_error", Again::Never, "Nested too deep";
    /// A member that must be there is not.
    MissingField = "missing_field", BAD_REQUEST, "invalid_request_error", Again::Never, "Field missing";
    /// Of the wrong type, or outside its domain.
    InvalidValue = "invalid_value", BAD_REQUEST, "invalid_request_error", Again::Never, "Value not allowed";
    /// Known or unknown, but not taken here.
    UnsupportedParameter = "unsupported_parameter", BAD_REQUEST, "invalid_request_error", Again::Never, "Parameter not supported";
    /// More bytes than `ingress.max_body_bytes`, decoded.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "invalid_request_error", Again::Never, "Body too large";
    /// Not JSON by its header, or in an encoding that is not read.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", Again::Never, "Media type not supported";
    /// No key, or not a valid one.
    Unauthorized = "unauthorized", UNAUTHORIZED, "invalid_request_error", Again::Never, "API key missing or not valid";
    /// The key may not do this.
    Forbidden = "forbidden", FORBIDDEN, "permission_error", Again::Never, "Not allowed";
    /// No such thing, or another tenant's.
    NotFound = "not_found", NOT_FOUND, "invalid_request_error", Again::Never, "Not found";
    /// No pool serves the model.
    ModelNotFound = "model_not_found", NOT_FOUND, "invalid_request_error", Again::Never, "Model not found";
    /// The route does not take this method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "invalid_request_error", Again::Never, "Method not allowed";
    /// The request's body did not come in time.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, "invalid_request_error", Again::Open, "Request took too long to arrive";
    /// The job has no result yet.
    NotFinished = "not_finished", CONFLICT, "invalid_request_error", Again::After(1), "Job not finished";
    /// The thing is in a state that does not allow this.
    Conflict = "conflict", CONFLICT, "invalid_request_error", Again::Never, "Not possible in this state";
    /// Its retention is over.
    Expired = "expired", GONE, "invalid_request_error", Again::Never, "Result no longer kept";
    /// The idempotency key belongs to another request.
    IdempotencyMismatch = "idempotency_mismatch", UNPROCESSABLE_ENTITY, "invalid_request_error", Again::Never, "Idempotency key used for another request";
    /// It would not fit into an empty pool.
    Unsatisfiable = "unsatisfiable", BAD_REQUEST, "invalid_request_error", Again::Never, "Can never be done here";
    /// A bound of the pool is reached.
    QueueFull = "queue_full", SERVICE_UNAVAILABLE, "server_error", Again::After(1), "Queue full";
    /// The pool, or this process, takes no new work.
    Draining = "draining", SERVICE_UNAVAILABLE, "server_error", Again::After(5), "Draining";
    /// The store cannot say.
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE, "server_error", Again::After(2), "Store unavailable";
    /// A fault of this program.
    Internal = "internal", INTERNAL_SERVER_ERROR, "server_error", Again::Open, "Internal error";
}

/// A refusal on its way to the client. The request's id is filled in by the outermost layer.
///
/// Boxed: nearly every function here may refuse, and none should pay for the room of a refusal on its way to success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    status: StatusCode,
    code: Cow<'static, str>,
    kind: Cow<'static, str>,
    title: &'static str,
    detail: String,
    param: Option<String>,
    retry_after_s: Option<u64>,
    should_retry: Option<bool>,
    /// Name and value of the limit that refused.
    limit: Option<(String, u64)>,
    /// The rest of the request was not read: the connection cannot go on.
    close: bool,
}

impl Problem {
    /// A refusal; `detail` says what is wrong and what would be right.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let again = code.again();
        Self(Box::new(Inner {
            status: code.status(),
            code: code.as_str().into(),
            kind: code.kind().into(),
            title: code.title(),
            detail: detail.into(),
            param: None,
            retry_after_s: match again {
                Again::After(seconds) => Some(seconds),
                Again::Never | Again::Open => None,
            },
            should_retry: match (code, again) {
                (Code::NotFinished, _) => Some(true),
                (_, Again::Never) => Some(false),
                _ => None,
            },
            limit: None,
            close: false,
        }))
    }

    /// A refusal of one field, named as a path, e.g. `body.messages[0].role`.
    pub(crate) fn field(code: Code, param: impl Into<String>, detail: impl Into<String>) -> Self {
        let param = echo(&param.into());
        let mut problem = Self::new(code, format!("`{param}` {}", detail.into()));
        problem.0.param = Some(param);
        problem
    }

    /// A refusal of settings; `detail` names every problem, `param` the first.
    pub(crate) fn setting(param: impl Into<String>, detail: impl Into<String>) -> Self {
        let mut problem = Self::new(Code::InvalidValue, detail);
        problem.0.param = Some(echo(&param.into()));
        problem
    }

    /// The error that a job ended with, as its result. Nothing changes it any more.
    pub(crate) fn of_job(
        status: StatusCode,
        code: String,
        kind: Option<String>,
        param: Option<String>,
        detail: String,
    ) -> Self {
        let own = if status.is_server_error() {
            "server_error"
        } else {
            "invalid_request_error"
        };
        Self(Box::new(Inner {
            status,
            code: code.into(),
            kind: kind.map_or(Cow::Borrowed(own), Cow::Owned),
            title: "The job did not succeed",
            detail,
            param,
            retry_after_s: None,
            should_retry: Some(false),
            limit: None,
            close: false,
        }))
    }

    /// When to come back: rounded up to whole seconds, within 1–60.
    pub(crate) fn retry_after_ms(mut self, wait_ms: u64) -> Self {
        self.0.retry_after_s = Some(retry_after_s(wait_ms));
        self
    }

    /// The limit that refused.
    pub(crate) fn limit(mut self, name: impl Into<String>, value: u64) -> Self {
        self.0.limit = Some((name.into(), value));
        self
    }

    /// Ends the connection after this answer.
    pub(crate) fn close(mut self) -> Self {
        self.0.close = true;
        self
    }

    /// HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The code's word.
    pub(crate) fn code(&self) -> &str {
        &self.0.code
    }

    /// The field that was refused.
    #[cfg(test)]
    pub(crate) fn param(&self) -> Option<&str> {
        self.0.param.as_deref()
    }

    /// What is wrong.
    #[cfg(test)]
    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The answer; `request_id` is a UUID.
    pub(crate) fn render(&self, request_id: &str) -> Response {
        let body = Body {
            kind: format!("urn:tidegate:problem:{}", self.0.code),
            title: self.0.title,
            status: self.0.status.as_u16(),
            detail: &self.0.detail,
            instance: format!("urn:uuid:{request_id}"),
            limit: self.0.limit.as_ref().map(|(name, value)| Limit {
                name,
                value: *value,
            }),
            error: Error {
                message: &self.0.detail,
                kind: &self.0.kind,
                param: self.0.param.as_deref(),
                code: &self.0.code,
            },
        };
        let body = serde_json::to_vec(&body).expect("strings and numbers always serialise");
        (self.0.status, self.headers(), body).into_response()
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.0.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(retry) = self.0.should_retry {
            headers.insert(
                SHOULD_RETRY,
                HeaderValue::from_static(if retry { "true" } else { "false" }),
            );
        }
        if self.0.status == StatusCode::UNAUTHORIZED && self.0.code == Code::Unauthorized.as_str() {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.0.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        headers
    }
}

/// Whole seconds of a wait, rounded up, within 1–60.
pub(crate) fn retry_after_s(wait_ms: u64) -> u64 {
    wait_ms.div_ceil(1000).clamp(1, MAX_RETRY_AFTER_S)
}

/// A caller's text, cut to what is shown back.
pub(crate) fn echo(text: &str) -> String {
    match text.char_indices().nth(MAX_ECHO_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    instance: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Limit<'a>>,
    error: Error<'a>,
}

#[derive(Serialize)]
struct Limit<'a> {
    name: &'a str,
    value: u64,
}

/// The OpenAI error: all four keys, always.
#[derive(Serialize)]
struct Error<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: &'a str,
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { trouble, detail } => {
                tracing::warn!(trouble = trouble.as_str(), detail, "the store cannot say");
                if trouble == Trouble::Unconfirmed {
                    return Self::new(
                        Code::StoreUnavailable,
                        format!(
                            "this is stored but not confirmed by the replicas that store.durability asks for \
                             ({detail}); ask again, which may confirm it"
                        ),
                    );
                }
                Self::new(
                    Code::StoreUnavailable,
                    format!(
                        "the store cannot say ({}); nothing is known to have changed",
                        trouble.as_str()
                    ),
                )
            }
            StoreError::NoPool(_) => Self::new(Code::NotFound, "there is no such thing"),
            StoreError::Corrupt(detail) => {
                tracing::error!(detail, "the store's data is not as expected");
                Self::new(
                    Code::Internal,
                    "the store holds data that cannot be read; see `tidegate doctor`",
                )
            }
        }
    }
}

/// Carries the problem to the outermost layer, which writes the body: only that layer knows the request's id.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Keeps the list of methods of a 405 in the answer that replaces it.
pub(crate) fn keep_allow(from: &HeaderMap, to: &mut HeaderMap) {
    if let Some(allow) = from.get(ALLOW) {
        to.insert(ALLOW, allow.clone());
    }
}

#[cfg(test)]
mod tests;
