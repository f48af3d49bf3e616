//! What answers look like: the shapes of the API, built from the domain and nothing else.

pub(crate) mod dead;
pub(crate) mod job;
pub(crate) mod list;
pub(crate) mod pool;
