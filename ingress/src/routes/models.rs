//! Models, as OpenAI clients list them.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use serde::Serialize;

use super::{Answer, json};
use crate::extract::Anybody;
use crate::input::query::Query;
use crate::service::App;
use crate::wire::list::List;

#[derive(Serialize)]
struct ModelBody {
    id: String,
    object: &'static str,
    /// Not known: the interface wants a number.
    created: u64,
    owned_by: &'static str,
}

/// `GET /v1/models`: every model that a pool serves by its name. A pool that serves any adds none.
pub(super) async fn list(
    _: Anybody,
    State(app): State<Arc<App>>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::read(query.as_deref(), &[])?;
    let entries = app.definitions().await?;
    let models: BTreeSet<&String> = entries
        .iter()
        .flat_map(|entry| &entry.def.config.models)
        .filter(|model| *model != "*")
        .collect();
    let data: Vec<ModelBody> = models
        .into_iter()
        .map(|id| ModelBody {
            id: id.clone(),
            object: "model",
            created: 0,
            owned_by: "tidegate",
        })
        .collect();
    let last = data.last().map(|model| model.id.clone());
    Ok(json(&List::new(data, false, last)))
}
