//! The typed face of `lua/lineage.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::PoolName;

/// Ask which history of writes a pool's server goes on with.
#[derive(Clone, Debug, PartialEq)]
pub struct Lineage {
    /// The pool.
    pub pool: PoolName,
}

impl Step for Lineage {
    /// Its name; another one means that writes may have been lost.
    type Reply = String;
    const SCRIPT: &'static Script = &script::LINEAGE;
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        Call::new(Self::SCRIPT, &self.pool)
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<String, Corrupt> {
        match tag {
            "lineage" => reply.text(),
            other => Err(unknown_tag(other, reply)),
        }
    }
}
