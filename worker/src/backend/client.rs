//! One model server: its address, its client, its state.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Url, redirect, retry};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::call::{Call, after};
use super::come::Come;
use super::failure::{Stop, failed, timed_out};
use super::request::{self, Outgoing};
use super::rest::Rest;
use super::types::{
    Answer, CallFailure, CallOutcome, CallRequest, Endpoint, FailureCode, Limits, Progress,
    Timeouts,
};

/// Connect time-out of the first client, the settings' default.
const DEFAULT_CONNECT: Duration = Duration::from_secs(5);
/// Idle connections kept to one server; a pool's slots rarely exceed it.
const MAX_IDLE_CONNECTIONS: usize = 64;
/// How long an idle connection is kept: less than the 5 s after which common model servers close it, so that a call
/// seldom meets a connection that is just being closed.
const IDLE: Duration = Duration::from_secs(4);

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// An address that cannot be a model server's.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Not a URL.
    #[error("{url:?} is not a URL: {why}")]
    NotAUrl {
        /// What was given.
        url: String,
        /// What the parser said.
        why: String,
    },
    /// A URL of another kind.
    #[error("{url:?} cannot be a model server: {why}")]
    Unsuitable {
        /// What was given, without a password.
        url: String,
        /// What would be right.
        why: &'static str,
    },
    /// The HTTP client cannot be built.
    #[error("the HTTP client cannot be built: {0}")]
    Client(String),
}

/// One model server.
#[derive(Debug)]
pub struct Backend {
    base: Url,
    limits: Limits,
    /// The client, and the connect time-out it was built with: a client has one for all its calls.
    client: Mutex<(Duration, Client)>,
    in_flight: AtomicUsize,
    connect_failed_at: Mutex<Option<Instant>>,
    rest: Rest,
}

impl Backend {
    /// A model server at `base_url`, `http` or `https`, with or without `/v1` at its end.
    ///
    /// # Errors
    /// When the address is none, is of another scheme, or has a query, fragment or password.
    pub fn new(base_url: &str, limits: Limits) -> Result<Self, BackendError> {
        let base = parse_base(base_url)?;
        let client = build_client(&base, DEFAULT_CONNECT)?;
        Ok(Self {
            base,
            limits,
            client: Mutex::new((DEFAULT_CONNECT, client)),
            in_flight: AtomicUsize::new(0),
            connect_failed_at: Mutex::new(None),
            rest: Rest::default(),
        })
    }

    /// The address without `/v1`.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Calls under way, counted from [`super::Backends::pick`] or [`Self::call`] to their end.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn count_in_flight(&self) -> &AtomicUsize {
        &self.in_flight
    }

    /// When the last call that got no connection ended; `None` once a later one got an answer.
    pub(super) fn connect_failed_at(&self) -> Option<Instant> {
        *lock(&self.connect_failed_at)
    }

    /// How long the server has asked to be left alone from now on.
    pub(super) fn rest(&self) -> &Rest {
        &self.rest
    }

    /// Makes one call, to its end. Never repeats a request. Cancelling, or dropping the future, closes the connection.
    pub async fn call(
        &self,
        request: &CallRequest<'_>,
        timeouts: Timeouts,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> CallOutcome {
        let _counted = InFlight::enter(&self.in_flight);
        self.call_counted(request, timeouts, progress, cancel).await
    }

    pub(super) async fn call_counted(
        &self,
        request: &CallRequest<'_>,
        timeouts: Timeouts,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> CallOutcome {
        let started = Instant::now();
        let outgoing = request::prepare(request.endpoint, request.body);
        let call = Call {
            endpoint: request.endpoint,
            outgoing: &outgoing,
            request_bytes: request.body.len(),
            timeouts,
            limits: self.limits,
            progress,
            started,
        };
        let mut come = Come::default();
        let result = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            result = self.run_within_total(&call, request, &mut come) => Some(result),
        };
        // The reading, and with it the connection, is gone by here.
        let Some(result) = result else {
            return CallOutcome::Cancelled {
                output_tokens_so_far: come.output_tokens(),
            };
        };
        let outcome = conclude(&call, result, &come);
        self.note(&outcome);
        outcome
    }

    /// The answer, or why there is none; `Err(None)` when the total time ran out.
    async fn run_within_total(
        &self,
        call: &Call<'_>,
        request: &CallRequest<'_>,
        come: &mut Come,
    ) -> Result<Answer, Option<Stop>> {
        let http = self
            .request(request, call.outgoing, call.timeouts.connect)
            .map_err(Some)?;
        match timeout_at(
            after(call.started, call.timeouts.total),
            call.run(http, come),
        )
        .await
        {
            Ok(result) => result.map_err(Some),
            Err(_) => Err(None),
        }
    }

    fn request(
        &self,
        request: &CallRequest<'_>,
        outgoing: &Outgoing,
        connect: Duration,
    ) -> Result<RequestBuilder, Stop> {
        let client = self
            .client(connect)
            .map_err(|error| failed(FailureCode::ConnectFailed, &error.to_string()))?;
        let accept = if outgoing.streamed {
            "text/event-stream, application/json"
        } else {
            "application/json"
        };
        let mut http = client
            .post(self.address(request.endpoint))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, accept)
            .header(ACCEPT_ENCODING, "identity")
            .body(outgoing.body.clone());
        let optional = [
            (X_REQUEST_ID, Some(request.request_id)),
            (TRACEPARENT, request.traceparent.as_deref()),
        ];
        for (name, text) in optional {
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
                http = http.header(name, value);
            }
        }
        Ok(http)
    }

    fn address(&self, endpoint: Endpoint) -> String {
        format!("{}{}", self.url(), endpoint.path())
    }

    fn client(&self, connect: Duration) -> Result<Client, BackendError> {
        let mut held = lock(&self.client);
        if held.0 != connect {
            *held = (connect, build_client(&self.base, connect)?);
        }
        Ok(held.1.clone())
    }

    fn note(&self, outcome: &CallOutcome) {
        self.rest.note(outcome, Instant::now());
        let no_connection = matches!(
            outcome,
            CallOutcome::Failed(CallFailure {
                code: FailureCode::ConnectFailed,
                ..
            })
        );
        *lock(&self.connect_failed_at) = no_connection.then(Instant::now);
    }
}

/// Adds to what stopped a call what had come before; an answer that was whole when the time ran out is an answer.
fn conclude(call: &Call<'_>, result: Result<Answer, Option<Stop>>, come: &Come) -> CallOutcome {
    let stop = match result {
        Ok(answer) => return CallOutcome::Answered(answer),
        Err(Some(stop)) => stop,
        Err(None) => match come {
            Come::Stream(status, assembler) if assembler.is_whole() => {
                return CallOutcome::Answered(call.streamed_answer(assembler, *status));
            }
            _ => timed_out(
                FailureCode::Timeout,
                call.timeouts.total,
                "the model server did not finish",
            ),
        },
    };
    match stop {
        Stop::Refused(error) => CallOutcome::Refused(*error),
        Stop::Failed(failure) => CallOutcome::Failed(CallFailure {
            output_tokens_so_far: come.output_tokens(),
            // Of an answer that is too large nothing is kept: it is what the bound is there to refuse.
            partial: if failure.code == FailureCode::ResponseTooLarge {
                None
            } else {
                come.partial()
            },
            ..*failure
        }),
    }
}

/// Counts a call for as long as it lives.
#[derive(Debug)]
pub(super) struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    pub(super) fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What is held is whole at every moment, so a panic elsewhere spoils nothing.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn parse_base(text: &str) -> Result<Url, BackendError> {
    let mut base = Url::parse(text).map_err(|error| BackendError::NotAUrl {
        url: text.to_owned(),
        why: error.to_string(),
    })?;
    let has_password = base.password().is_some() || !base.username().is_empty();
    // A URL that cannot carry a user name has none to hide, so the refusals do not matter.
    let _ = base.set_username("");
    let _ = base.set_password(None);
    let refuse = |why| {
        Err(BackendError::Unsuitable {
            url: base.to_string(),
            why,
        })
    };
    if !matches!(base.scheme(), "http" | "https") {
        return refuse("it must begin with http:// or https://");
    }
    if has_password {
        return refuse("a user name or password in the address would end up in logs");
    }
    if base.query().is_some() || base.fragment().is_some() {
        return refuse("it must have no query and no fragment");
    }
    let path = base.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
    base.set_path(&path);
    Ok(base)
}

fn build_client(base: &Url, connect: Duration) -> Result<Client, BackendError> {
    let mut builder = Client::builder()
        .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .referer(false)
        .tcp_nodelay(true)
        // One call, one connection: closing it is what tells a model server to stop.
        .http1_only()
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE);
    if base.scheme() == "http" {
        // Without TLS there is no need to read the system's certificates, nor to fail where there are none.
        builder = builder.tls_certs_only([]);
    }
    builder
        .build()
        .map_err(|error| BackendError::Client(super::failure::describe(error)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn backend(url: &str) -> Result<Backend, BackendError> {
        Backend::new(
            url,
            Limits {
                max_response_bytes: 1_000,
            },
        )
    }

    #[test]
    fn the_address_may_or_may_not_end_in_v1() {
        for (given, chat) in [
            ("http://h:8000", "http://h:8000/v1/chat/completions"),
            ("http://h:8000/", "http://h:8000/v1/chat/completions"),
            ("http://h:8000/v1", "http://h:8000/v1/chat/completions"),
            ("http://h:8000/v1/", "http://h:8000/v1/chat/completions"),
            (
                "https://h/openai/v1",
                "https://h/openai/v1/chat/completions",
            ),
            (
                "http://[::1]:8000/a",
                "http://[::1]:8000/a/v1/chat/completions",
            ),
        ] {
            assert_eq!(
                backend(given).unwrap().address(Endpoint::ChatCompletions),
                chat
            );
        }
        assert!(
            backend("http://h")
                .unwrap()
                .address(Endpoint::Embeddings)
                .ends_with("/v1/embeddings")
        );
        assert!(
            backend("http://h")
                .unwrap()
                .address(Endpoint::Completions)
                .ends_with("/v1/completions")
        );
    }

    #[test]
    fn an_address_that_cannot_serve_is_refused_and_hides_its_password() {
        for url in [
            "",
            "localhost:8000",
            "ftp://h",
            "file:///x",
            "http://h?x=1",
            "http://h/#x",
            "http://",
            "unix:/x",
        ] {
            assert!(backend(url).is_err(), "{url}");
        }
        let error = backend("http://user:geheim@h").unwrap_err().to_string();
        assert!(!error.contains("geheim"), "{error}");
    }
}
