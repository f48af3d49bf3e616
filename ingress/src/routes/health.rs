//! Whether the process lives and can work, and its metrics. None of it asks for a key.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::json as object;
use tidegate_shared::health::NotReady;
use tidegate_shared::telemetry::metrics::CONTENT_TYPE as METRICS_TYPE;

use super::{Answer, json};
use crate::error::{Code, Problem};
use crate::service::App;

/// Routes that every listener has.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/livez", get(alive))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
}

async fn alive() -> Response {
    json(&object!({"status": "ok"}))
}

/// Ready: not draining, and a real script runs in the store.
async fn ready(State(app): State<Arc<App>>) -> Answer {
    match app.health.ready().await {
        Ok(()) => Ok(json(&object!({"status": "ok"}))),
        Err(NotReady::Draining) => Err(Problem::new(
            Code::Draining,
            "this process is draining; use another one",
        )),
        Err(NotReady::Store(error)) => Err(error.into()),
    }
}

/// `GET /metrics`
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    ([(CONTENT_TYPE, METRICS_TYPE)], app.health.scrape().await).into_response()
}
