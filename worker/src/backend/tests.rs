//! Calls against a real socket whose other end says exactly what the test wants, when it wants.
#![allow(clippy::unwrap_used)]

mod answers;
mod clocks;
mod cuts;
mod refusals;
mod rig;
