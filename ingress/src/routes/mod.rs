//! Routes: read the request, ask the service, write the answer.

mod dead_letters;
mod health;
mod jobs;
mod models;
mod pools;
mod workers;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::FutureExt as _;
use uuid::Uuid;

use crate::connection::LengthRepeated;
use crate::error::{Code, Problem, keep_allow};
use crate::input::headers;
use crate::service::App;

/// Names the request in every answer and in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How long an answer took to begin, in milliseconds.
const PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");

/// What an answer is, or why there is none.
pub(crate) type Answer = Result<Response, Problem>;

/// Which routes a listener has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// All of them, told apart by scope.
    All,
    /// Clients' routes alone: operators have a listener of their own.
    Clients,
    /// Operators' routes alone.
    Operators,
}

/// The routes of a listener.
pub(crate) fn router(app: &Arc<App>, face: Face) -> Router {
    let mut routes = health::routes();
    if face != Face::Operators {
        routes = routes.merge(clients());
    }
    if face != Face::Clients {
        routes = routes.merge(operators());
    }
    routes
        .fallback(async || Problem::new(Code::NotFound, "there is no such route"))
        .method_not_allowed_fallback(async || {
            Problem::new(
                Code::MethodNotAllowed,
                "the route does not take this method",
            )
        })
        .layer(from_fn_with_state(Arc::clone(app), finish))
        .with_state(Arc::clone(app))
}

fn clients() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/jobs", post(jobs::submit).get(jobs::list))
        .route("/v1/jobs/{id}", get(jobs::read))
        .route("/v1/jobs/{id}/result", get(jobs::result))
        .route("/v1/jobs/{id}/events", get(jobs::events))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/models", get(models::list))
}

fn operators() -> Router<Arc<App>> {
    Router::new()
        .route("/metrics", get(health::metrics))
        .route("/v1/pools", get(pools::list))
        .route("/v1/pools/{pool}", get(pools::read).put(pools::apply))
        .route("/v1/pools/{pool}/pause", post(pools::pause))
        .route("/v1/pools/{pool}/resume", post(pools::resume))
        .route("/v1/pools/{pool}/drain", post(pools::drain))
        .route("/v1/pools/{pool}/demand", get(pools::demand))
        .route("/v1/workers", get(workers::list))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/dead-letters/{id}", get(dead_letters::read))
        .route("/v1/dead-letters/{id}/requeue", post(dead_letters::requeue))
        .route("/v1/dead-letters/{id}/purge", post(dead_letters::purge))
}

/// Refuses a request on which a header that decides something stands twice.
fn once(request: &Request) -> Result<(), Problem> {
    if request.extensions().get::<LengthRepeated>().is_some() {
        return Err(headers::repeated("content-length"));
    }
    headers::once(request.headers())
}

/// A JSON answer.
pub(crate) fn json<T: serde::Serialize>(body: &T) -> Response {
    Json(body).into_response()
}

/// The outermost layer: names the request, writes refusals, and tells clients of a draining process to go elsewhere.
async fn finish(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = Uuid::new_v4().to_string();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = match once(&request) {
        Ok(()) => AssertUnwindSafe(next.run(request))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| {
                tracing::error!(request_id = id, %method, path, "a handler panicked");
                Problem::new(Code::Internal, "the request could not be served").into_response()
            }),
        Err(problem) => problem.into_response(),
    };
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let mut rendered = problem.render(&id);
        keep_allow(response.headers(), rendered.headers_mut());
        response = rendered;
        let (status, code) = (problem.status().as_u16(), problem.code());
        if status >= 500 {
            tracing::warn!(request_id = id, %method, path, status, code, "not served");
        } else {
            tracing::debug!(request_id = id, %method, path, status, code, "refused");
        }
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    headers.insert(PROCESSING_MS, HeaderValue::from(took_ms));
    if app.shutdown.is_draining() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
