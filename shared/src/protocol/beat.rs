//! The typed face of `lua/beat.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{PoolName, WorkerId};

/// A worker says that it is here, or that it leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    /// A pool that it serves.
    pub pool: PoolName,
    /// Its process life.
    pub worker: WorkerId,
    /// It leaves.
    pub gone: bool,
    /// JSON, as shown to operators.
    pub info: String,
}

impl Step for Beat {
    type Reply = ();
    const SCRIPT: &'static Script = &script::BEAT;
    // It has no deadline: a late word of a worker only shows it a little longer.
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, &self.pool);
        call.arg("worker", self.worker.as_str())
            .arg("gone", self.gone)
            .arg("info", self.info.as_str());
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<(), Corrupt> {
        if tag == "beaten" {
            Ok(())
        } else {
            Err(unknown_tag(tag, reply))
        }
    }
}
