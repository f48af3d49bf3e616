//! Pools, for operators.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use tidegate_shared::config::names;
use tidegate_shared::domain::PoolName;

use super::{Answer, json};
use crate::error::{Code, Problem};
use crate::extract::{Admin, Operator, Segment};
use crate::input::query::Query;
use crate::input::scan::scan;
use crate::service::{App, Switch, not_found};
use crate::wire::list::List;
use crate::wire::pool::READ_ONLY;

fn name(text: &str) -> Result<PoolName, Problem> {
    text.parse().map_err(|_| not_found())
}

/// `GET /v1/pools`
pub(super) async fn list(
    _: Operator,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    let pools = app.pools().await?;
    let last = pools.last().map(|pool| pool.id().to_owned());
    Ok(json(&List::new(pools, false, last)))
}

/// `GET /v1/pools/{pool}`
pub(super) async fn read(
    _: Operator,
    Segment(pool): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    Ok(json(&app.pool(&name(&pool)?).await?))
}

/// `PUT /v1/pools/{pool}`: its settings; what is left out has its default. Members that are no settings and come back
/// from an answer are ignored.
pub(super) async fn apply(
    _: Admin,
    Segment(pool): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    if let Err(right) = names::pool_name(&pool) {
        return Err(Problem::field(
            Code::InvalidValue,
            "pool",
            format!("is named in the path and must be {right}"),
        ));
    }
    let pool = name(&pool)?;
    let max_depth = app.max_depth;
    let settings = app
        .reader
        .read(&headers, body, move |bytes| settings(bytes, max_depth))
        .await?;
    let new = app.apply(&pool, &settings).await?;
    let mut response = json(&app.pool(&pool).await?);
    if new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

fn settings(bytes: &[u8], max_depth: u32) -> Result<Map<String, Value>, Problem> {
    scan(bytes, max_depth, None)?;
    let Ok(Value::Object(mut settings)) = serde_json::from_slice(bytes) else {
        return Err(Problem::new(
            Code::InvalidValue,
            "the body must be a JSON object of the pool's settings",
        ));
    };
    settings.retain(|name, _| !READ_ONLY.contains(&name.as_str()));
    Ok(settings)
}

async fn switch(app: &App, pool: &str, query: Option<&str>, switch: Switch) -> Answer {
    Query::read(query, &[])?;
    let pool = name(pool)?;
    app.switch(&pool, switch).await?;
    Ok(json(&app.pool(&pool).await?))
}

/// `POST /v1/pools/{pool}/pause`
pub(super) async fn pause(
    _: Admin,
    Segment(pool): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    switch(&app, &pool, query.as_deref(), Switch::Pause).await
}

/// `POST /v1/pools/{pool}/resume`
pub(super) async fn resume(
    _: Admin,
    Segment(pool): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    switch(&app, &pool, query.as_deref(), Switch::Resume).await
}

/// `POST /v1/pools/{pool}/drain`
pub(super) async fn drain(
    _: Admin,
    Segment(pool): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    switch(&app, &pool, query.as_deref(), Switch::Drain).await
}

/// `GET /v1/pools/{pool}/demand`
pub(super) async fn demand(
    _: Operator,
    Segment(pool): Segment,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    Ok(json(&app.demand(&name(&pool)?).await?))
}
