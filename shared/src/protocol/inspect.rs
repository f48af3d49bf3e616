//! The typed face of `lua/inspect.lua`.

use std::collections::BTreeMap;

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::PoolName;

/// Raw facts of a piece of one index, for `doctor`.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspect {
    /// The pool.
    pub pool: PoolName,
    /// Name of the index: `jobs`, `leases`, `due`, `dead`, `ended`, `deadlines`, `ready:<p>`, `levels`, `tenant:<t>`,
    /// `owners`; or `job:<bare id>`, that job alone.
    pub index: String,
    /// Rank of the first entry.
    pub start: u64,
    /// Most entries.
    pub count: u32,
}

/// What is known of one entry of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Bare id of the job.
    pub id: String,
    /// Score in the index (of `owners`: the owner).
    pub score: String,
    /// Sets that the job is in.
    pub places: Vec<String>,
    /// The job that the record's owner owns, or empty.
    pub owned: String,
    /// The request is stored.
    pub has_envelope: bool,
    /// Of the record; -1: lives on, -2: there is none.
    pub ttl_ms: i64,
    /// The record.
    pub fields: BTreeMap<String, String>,
}

/// A piece of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectReply {
    /// The pool's time.
    pub now_ms: u64,
    /// Leases up to this are not live any more.
    pub lapsed_ms: u64,
    /// Entries of the whole index.
    pub size: u64,
    /// Of the piece.
    pub facts: Vec<Fact>,
}

impl Step for Inspect {
    type Reply = InspectReply;
    const SCRIPT: &'static Script = &script::INSPECT;
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        let mut call = Call::new(Self::SCRIPT, &self.pool);
        call.arg("index", self.index.as_str())
            .arg("start", self.start)
            .arg("count", u64::from(self.count));
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<InspectReply, Corrupt> {
        if tag != "facts" {
            return Err(unknown_tag(tag, reply));
        }
        let (lapsed_ms, size) = (reply.number()?, reply.number()?);
        let mut facts = Vec::new();
        while let Some(mut one) = reply.list()? {
            facts.push(Fact {
                id: one.text()?,
                score: one.text()?,
                places: one.text()?.split_whitespace().map(str::to_owned).collect(),
                owned: one.text()?,
                has_envelope: one.text()? == "1",
                ttl_ms: one.word()?,
                fields: one.pairs()?,
            });
        }
        Ok(InspectReply {
            now_ms: reply.now_ms(),
            lapsed_ms,
            size,
            facts,
        })
    }
}
