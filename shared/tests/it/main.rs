//! Tests of the store's steps against a real server.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod audited;
mod audited_store;
mod direct;
mod doctor;
mod echo;
mod fuzz;
mod late;
mod mixer;
mod model;
mod mutation;
mod program;
mod reference;
mod rig;
mod run;
mod seen;
