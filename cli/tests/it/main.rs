//! The command line over the real binary: what it prints where, and how it ends.

#![allow(clippy::unwrap_used)]

mod bulk;
mod dev;
mod jobs;
mod operators;
mod pipes;
mod rig;
mod roles;
mod settings;
mod usage;
