//! Calling a model server that speaks the OpenAI HTTP interface.
//!
//! One call is one straight line: `request` writes what goes out (the caller's body, number for number, with streaming
//! switched on where the request allows it), `client` sends it, `call` reads the answer under the four time-outs,
//! `sse` cuts a stream into events, `assemble` puts those together into the body a plain call would have given, and
//! [`classify`] says which failures are final. Nothing is retried here: one call of [`Backend::call`] is one request.
//!
//! An answer counts as success only when it is known to be whole; the absence of an end is never read as the end.

mod assemble;
mod body;
mod call;
mod choose;
mod client;
mod come;
mod failure;
#[cfg(test)]
mod fuzz;
mod plain;
mod raw;
mod request;
mod rest;
mod sse;
mod types;
mod usage;

pub mod classify;
pub mod retry_after;
pub mod upstream;

pub(crate) use usage::tokens_of_bytes;

pub use choose::{Backends, Picked};
pub use client::{Backend, BackendError};
pub use types::{
    Answer, CallFailure, CallOutcome, CallRequest, Endpoint, FailureCode, Limits, Progress,
    Timeouts, UpstreamError, Usage,
};

#[cfg(test)]
mod tests;
