//! Workers, for operators.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use serde_json::Value;
use tidegate_shared::config::names;

use super::{Answer, json};
use crate::extract::Operator;
use crate::input::query::Query;
use crate::service::App;
use crate::wire::list::List;

/// Most workers of a page, and how many without asking: a fleet, as a rule.
const PAGE: u64 = 1000;

/// `GET /v1/workers`, by id.
pub(super) async fn list(
    _: Operator,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    let query = Query::read(query.as_deref(), &["pool", "limit", "after"])?;
    let pool = query.parsed("pool", |text| match names::pool_name(text) {
        Ok(()) => text.parse().map_err(|_| "a pool's name".to_owned()),
        Err(right) => Err(right.to_owned()),
    })?;
    let limit =
        usize::try_from(query.integer("limit", 1, PAGE)?.unwrap_or(PAGE)).unwrap_or(usize::MAX);
    let mut all = app.workers(pool.as_ref()).await?.into_iter();
    let after = query.get("after").unwrap_or_default().to_owned();
    let mut data: Vec<(String, Value)> = all
        .by_ref()
        .skip_while(|(id, _)| *id <= after && !after.is_empty())
        .take(limit)
        .collect();
    let has_more = all.next().is_some();
    let last = data.last().map(|(id, _)| id.clone());
    let data: Vec<Value> = data.drain(..).map(|(_, worker)| worker).collect();
    Ok(json(&List::new(data, has_more, last)))
}
