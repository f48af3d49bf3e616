//! The worker: leases jobs, calls the model, publishes one terminal.

pub mod backend;
