//! Short numbers stand for ids inside the model; the steps get real ones.

use tidegate_shared::domain::{JobId, Owner, PoolName, WorkerId};

/// Of a job: at most two in any configuration.
pub(super) type Job = usize;
/// Of an owner: counted in the order of minting, so that no two are the same, as 128 random bits are not.
pub(super) type OwnerNo = u8;

/// The pool of the model.
pub(super) fn pool() -> PoolName {
    "model".parse().expect("a valid name")
}

/// A job's id.
pub(super) fn job_id(job: Job) -> JobId {
    JobId::from_bare(&pool(), &bare(job)).expect("26 letters")
}

/// A job's id as the sets have it.
pub(super) fn bare(job: Job) -> String {
    format!("{job:0>26}")
}

/// The job of a bare id.
pub(super) fn job_of(bare: &str) -> Job {
    bare.parse().expect("made by `bare`")
}

/// An owner.
pub(super) fn owner(no: OwnerNo) -> Owner {
    Owner::parse(&format!("{no:0>26}")).expect("26 letters")
}

/// The number of an owner as a record has it; none for an empty one.
pub(super) fn owner_no(text: &str) -> Option<OwnerNo> {
    text.parse().ok()
}

/// A worker's id: another one in each life of its process.
pub(super) fn worker_id(worker: usize, life: u8) -> WorkerId {
    WorkerId::parse(&format!("w_{:0>16}", worker * 100 + usize::from(life))).expect("16 letters")
}
