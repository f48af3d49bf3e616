//! The worker: leases jobs, calls the model, publishes one terminal.
//!
//! For each pool a claimer ([`Worker`] starts it) asks the store for as many deliveries as there is room for, and an
//! executor works on each in one straight line: decode the request, pick a model server, make the call, judge its
//! outcome, settle. Renewals run on tasks and a connection of their own, so no amount of work delays them; the call
//! stops by the worker's own clock before its lease ends. Hints of the store (a cancel, a reader, a deadline) are
//! answered at once, and none of them is needed: the next renewal brings the same news.

pub mod backend;

mod beat;
mod capacity;
mod chunks;
mod claimer;
mod executor;
mod lease;
mod live;
mod model_call;
mod pool;
mod problem;
mod publisher;
mod renewer;
mod settler;
mod spans;
mod verdict;
mod worker;

pub use worker::{Worker, WorkerError};
