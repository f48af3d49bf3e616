//! The typed face of `lua/pieces.lua`.

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{JobId, PoolName};

/// Read what was published of a job's stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Pieces {
    /// The job.
    pub id: JobId,
    /// Id of the last piece seen; none: from the first that is kept.
    pub after: Option<String>,
    /// Most pieces returned.
    pub count: u64,
}

/// A piece of a job's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `<fence>-<n>`: rises over deliveries.
    pub id: String,
    /// As the worker published it.
    pub data: Vec<u8>,
}

impl Step for Pieces {
    type Reply = Vec<Event>;
    const SCRIPT: &'static Script = &script::PIECES;
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        self.id.pool()
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, self.pool());
        call.arg("id", self.id.bare())
            .arg("after", self.after.as_deref().unwrap_or(""))
            .arg("count", self.count);
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<Vec<Event>, Corrupt> {
        if tag != "pieces" {
            return Err(unknown_tag(tag, reply));
        }
        let mut events = Vec::new();
        while let Some(mut piece) = reply.list()? {
            events.push(Event {
                id: piece.text()?,
                data: piece.bytes()?,
            });
        }
        Ok(events)
    }
}
