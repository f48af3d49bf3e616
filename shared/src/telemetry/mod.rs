//! What a process tells about itself: logs, traces and metrics, with every name in one place.

mod init;
mod labels;
pub mod metrics;
pub mod names;
#[cfg(test)]
mod tests;
pub mod trace;

pub use init::{DEFAULT_FILTER, Guard, init};
pub use metrics::{ClassGauges, Metrics, PoolGauges};
