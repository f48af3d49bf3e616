//! What every role of Tidegate shares: settings, telemetry, shutdown and retry.

pub mod audit;
pub mod config;
pub mod doctor;
pub mod domain;
pub mod health;
pub mod local;
pub mod protocol;
pub mod retry;
pub mod shutdown;
pub mod store;
pub mod telemetry;
