//! The HTTP front: takes jobs in, tells what became of them, and serves operators. It keeps no state of its own: any
//! number of ingresses over one store answer alike.
//!
//! `input` judges requests (pure), `service` asks the store, `wire` shapes answers, `routes` ties the three together.

mod auth;
mod connection;
mod error;
mod events;
mod extract;
mod input;
mod routes;
mod serve;
mod service;
mod wire;

pub use serve::{Ingress, routes};
