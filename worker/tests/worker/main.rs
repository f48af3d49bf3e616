//! The worker over a real store and a simulated GPU server.

#![allow(clippy::unwrap_used)]

mod drain;
mod events;
mod jobs;
mod leases;
mod proxy;
mod rig;
