//! What every role of Tidegate shares: settings, telemetry, shutdown and retry.

pub mod config;
pub mod retry;
pub mod shutdown;
pub mod telemetry;
