//! A page of anything.

use serde::Serialize;

/// `{object, data, has_more, last_id}`; the next page starts `after=<last_id>`.
#[derive(Debug, Serialize)]
pub(crate) struct List<T> {
    object: &'static str,
    data: Vec<T>,
    has_more: bool,
    last_id: Option<String>,
}

impl<T: Serialize> List<T> {
    /// A page; `last_id` is the id of its last element.
    pub(crate) fn new(data: Vec<T>, has_more: bool, last_id: Option<String>) -> Self {
        Self {
            object: "list",
            data,
            has_more,
            last_id,
        }
    }
}
