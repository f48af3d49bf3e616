//! Requests judged before they cost anything: headers, bytes, JSON, then meaning. All but [`body`] is pure.

pub(crate) mod body;
pub(crate) mod fields;
#[cfg(test)]
mod fuzz;
pub(crate) mod headers;
pub(crate) mod openai;
pub(crate) mod query;
pub(crate) mod scan;
pub(crate) mod submission;
