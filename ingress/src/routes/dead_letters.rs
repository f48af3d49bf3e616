//! Dead letters, for operators.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use serde_json::json as object;
use uuid::Uuid;

use super::{Answer, jobs, json};
use crate::extract::{Admin, Operator, Segment};
use crate::input::headers;
use crate::input::query::Query;
use crate::service::{App, Filter, job_id};
use crate::wire::dead::DeadBody;
use crate::wire::list::List;

/// `GET /v1/dead-letters`, without their requests.
pub(super) async fn list(
    Operator(caller): Operator,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(
        query.as_deref(),
        &["pool", "class", "tenant", "limit", "after"],
    )?;
    let filter = Filter {
        dead: true,
        ..jobs::filter(&caller, &query)?
    };
    let page = app.page(&filter).await?;
    let last = page.jobs.last().map(|job| job.id.to_string());
    let data: Vec<DeadBody> = page.jobs.into_iter().map(DeadBody::new).collect();
    Ok(json(&List::new(data, page.has_more, last)))
}

/// `GET /v1/dead-letters/{id}`, with its request.
pub(super) async fn read(
    Operator(caller): Operator,
    Segment(id): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    Ok(json(&app.letter(&job_id(&id)?, caller.sees()).await?))
}

/// `POST /v1/dead-letters/{id}/requeue`. With an `Idempotency-Key` the same requeue sent again is the same one.
pub(super) async fn requeue(
    _: Admin,
    Segment(id): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    let operation =
        headers::idempotency_key(&headers)?.unwrap_or_else(|| Uuid::new_v4().to_string());
    let view = app.requeue(&job_id(&id)?, &operation).await?;
    Ok(json(&app.shown(&view).await?))
}

/// `POST /v1/dead-letters/{id}/purge`
pub(super) async fn purge(
    _: Admin,
    Segment(id): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    let id = job_id(&id)?;
    app.purge(&id).await?;
    Ok(json(
        &object!({"id": id, "object": "dead_letter.deleted", "deleted": true}),
    ))
}
