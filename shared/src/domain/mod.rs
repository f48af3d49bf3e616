//! The words of Tidegate as types, and its rules as pure functions. Nothing here does I/O.

mod envelope;
mod ids;
mod job;
pub mod step;

pub use envelope::{Endpoint, Envelope};
pub use ids::{BadId, Fence, JobId, Owner, PoolName, WorkerId};
pub use job::{
    DeadReason, DeliveryRecord, Job, JobError, PendingReason, State, UnknownWord, Usage, Verdict,
};
