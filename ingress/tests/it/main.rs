//! The ingress over a real store and real sockets.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod connections;
mod events;
mod idempotency;
mod jobs;
mod lists;
mod operators;
mod refusals;
mod rig;
