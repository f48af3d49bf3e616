//! The typed face of `lua/pause.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::PoolName;

/// Stop or resume claims of a pool, or its submits.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// The pool.
    pub pool: PoolName,
    /// No claims; none: as it is.
    pub paused: Option<bool>,
    /// No submits; none: as it is.
    pub draining: Option<bool>,
}

fn word(switch: Option<bool>) -> &'static str {
    match switch {
        Some(true) => "1",
        Some(false) => "0",
        None => "",
    }
}

impl Step for Pause {
    type Reply = ();
    const SCRIPT: &'static Script = &script::PAUSE;
    // It has no deadline: an operator's switch that comes late is still what was asked.
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, &self.pool);
        call.arg("paused", word(self.paused))
            .arg("draining", word(self.draining));
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<(), Corrupt> {
        if tag == "done" {
            Ok(())
        } else {
            Err(unknown_tag(tag, reply))
        }
    }
}
