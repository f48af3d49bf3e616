//! How a command reaches Tidegate: over HTTP to an ingress, or straight to the store. Straight to the store means the
//! ingress's own routes, run in this process: both ways give the same answers by construction.

use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::exit::Failure;
use crate::globals::Globals;
use crate::store;

/// A server that does not accept by then is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two pieces of an answer: above the longest wait of a read (60 s) and the heartbeat of events (15 s).
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// Largest JSON answer, in bytes: a page of dead letters with their requests fits.
const MAX_JSON_BYTES: usize = 256 * 1024 * 1024;

/// One request.
pub(crate) struct Request {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: Vec::new(),
            body: None,
        }
    }

    /// A read of `path`.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// A call of `path` without a body.
    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    /// A write of `path`.
    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    /// With a JSON body.
    pub(crate) fn json(mut self, body: Vec<u8>) -> Self {
        self.headers
            .push((CONTENT_TYPE.as_str(), "application/json".into()));
        self.body = Some(body);
        self
    }

    /// With one more header.
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, String>> + Send>>;

/// An answer whose body has not come yet.
pub(crate) struct Answer {
    /// Its status.
    pub(crate) status: StatusCode,
    pieces: Pieces,
}

impl Answer {
    /// The next piece of the body; none at its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        match tokio::time::timeout(SILENCE_TIMEOUT, self.pieces.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(piece))) => Ok(Some(piece)),
            Ok(Some(Err(error))) => Err(Failure::Unreachable(format!(
                "the answer broke off: {error}"
            ))),
            Err(_) => Err(Failure::Unreachable(format!(
                "nothing came for {} s",
                SILENCE_TIMEOUT.as_secs()
            ))),
        }
    }

    /// The whole body.
    async fn body(&mut self) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::new();
        while let Some(piece) = self.piece().await? {
            if all.len() + piece.len() > MAX_JSON_BYTES {
                return Err(Failure::Error("the answer is too large".into()));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// The answer itself where it is a success, else what it says.
    pub(crate) async fn ok(mut self) -> Result<Self, Failure> {
        if self.status.is_success() {
            return Ok(self);
        }
        let body = self.body().await?;
        let problem = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Err(Failure::from_status(self.status, &problem))
    }
}

/// The way to Tidegate.
pub(crate) enum Backend {
    /// Over HTTP.
    Http {
        /// Connections.
        client: Client,
        /// Address without a slash at its end.
        url: String,
        /// API key.
        api_key: Option<String>,
    },
    /// An ingress's routes in this process.
    Local(Router),
}

impl Backend {
    /// The way that the flags name.
    pub(crate) async fn open(globals: &Globals) -> Result<Self, Failure> {
        if globals.redis.is_some() {
            return Ok(Self::Local(store::routes(globals).await?));
        }
        Self::http(globals.url(), globals.api_key()?)
    }

    /// Over HTTP to the ingress at `url`.
    pub(crate) fn http(url: String, api_key: Option<String>) -> Result<Self, Failure> {
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(Failure::Usage(format!(
                "--url: must be an http:// or https:// address, not {url:?}"
            )));
        }
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            // A redirect would carry the API key to somewhere else.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Failure::Error(format!("cannot make an HTTP client: {error}")))?;
        Ok(Self::Http {
            client,
            url,
            api_key,
        })
    }

    /// Sends a request; every status is an answer.
    pub(crate) async fn send(&self, request: Request) -> Result<Answer, Failure> {
        match self {
            Self::Http {
                client,
                url,
                api_key,
            } => {
                let address = format!("{url}{}", request.path);
                let mut call = client.request(request.method, &address);
                if let Some(key) = api_key {
                    call = call.header(AUTHORIZATION, format!("Bearer {key}"));
                }
                for (name, value) in &request.headers {
                    call = call.header(*name, value);
                }
                if let Some(body) = request.body {
                    call = call.body(body);
                }
                let sent = tokio::time::timeout(SILENCE_TIMEOUT, call.send()).await;
                let answer = sent
                    .map_err(|_| Failure::Unreachable(format!("{url} does not answer")))?
                    .map_err(|error| unreachable_at(url, &error))?;
                Ok(Answer {
                    status: answer.status(),
                    pieces: Box::pin(
                        answer
                            .bytes_stream()
                            .map(|piece| piece.map_err(|e| e.to_string())),
                    ),
                })
            }
            Self::Local(routes) => {
                let mut call = axum::http::Request::builder()
                    .method(request.method)
                    .uri(&request.path);
                for (name, value) in &request.headers {
                    call = call.header(*name, value);
                }
                let call = call
                    .body(request.body.map_or_else(Body::empty, Body::from))
                    .map_err(|error| Failure::Usage(error.to_string()))?;
                let answer = match routes.clone().oneshot(call).await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                };
                let (head, body) = answer.into_parts();
                Ok(Answer {
                    status: head.status,
                    pieces: Box::pin(
                        body.into_data_stream()
                            .map(|piece| piece.map_err(|e| e.to_string())),
                    ),
                })
            }
        }
    }

    /// Sends a request; what is refused is a failure that names what the request was about.
    pub(crate) async fn ok(&self, request: Request) -> Result<Answer, Failure> {
        let about = about(&request.path);
        let answer = self.send(request).await?.ok().await;
        answer.map_err(|failure| match (failure, about) {
            (Failure::NotFound(text), Some(about)) => Failure::NotFound(format!("{about}: {text}")),
            (Failure::Refused(text), Some(about)) => Failure::Refused(format!("{about}: {text}")),
            (failure, _) => failure,
        })
    }

    /// The JSON that a request is answered with.
    ///
    /// # Errors
    /// What the server says where it refuses.
    pub(crate) async fn json(&self, request: Request) -> Result<Value, Failure> {
        Ok(self.exact(request).await?.0)
    }

    /// The JSON that a request is answered with, and its text: a number of a caller may not fit into ours.
    ///
    /// # Errors
    /// What the server says where it refuses.
    pub(crate) async fn exact(&self, request: Request) -> Result<(Value, String), Failure> {
        let mut answer = self.ok(request).await?;
        let body = answer.body().await?;
        let strange = |error: &dyn std::fmt::Display| {
            Failure::Error(format!(
                "the answer is no JSON ({error}); is this an ingress of Tidegate?"
            ))
        };
        let text = String::from_utf8(body).map_err(|error| strange(&error))?;
        match text.is_empty() {
            true => Ok((Value::Null, "null".into())),
            false => Ok((
                serde_json::from_str(&text).map_err(|error| strange(&error))?,
                text,
            )),
        }
    }
}

/// What a path is about: the id or name behind the noun.
fn about(path: &str) -> Option<String> {
    let path = path.split('?').next().unwrap_or(path);
    path.split('/').nth(3).map(str::to_owned)
}

/// Why nobody answers, without what stands in the address.
fn unreachable_at(url: &str, error: &reqwest::Error) -> Failure {
    let mut cause: &dyn std::error::Error = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    if error.is_builder() {
        return Failure::Usage(format!("--url or --api-key cannot be used: {cause}"));
    }
    Failure::Unreachable(format!(
        "{url} cannot be reached: {cause}. Is an ingress running there? (tidegate dev starts one)"
    ))
}

/// Text as one part of a path or a query.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte))
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A path with those parameters that are given.
pub(crate) fn query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let mut out = path.to_owned();
    for (name, value) in parameters {
        if let Some(value) = value {
            out.push(if out.contains('?') { '&' } else { '?' });
            out.push_str(&format!("{name}={}", encode(value)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_about_what_stands_behind_its_noun() {
        assert_eq!(about("/v1/jobs/job_a?wait=3"), Some("job_a".into()));
        assert_eq!(about("/v1/pools/p/pause"), Some("p".into()));
        assert_eq!(about("/v1/jobs?limit=3"), None);
    }

    #[test]
    fn parameters_are_encoded_and_absent_ones_left_out() {
        let path = query(
            "/v1/jobs",
            &[
                ("pool", Some("a b&c".into())),
                ("class", None),
                ("limit", Some("5".into())),
            ],
        );
        assert_eq!(path, "/v1/jobs?pool=a%20b%26c&limit=5");
    }
}
