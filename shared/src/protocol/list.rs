//! The typed face of `lua/list.lua`.

use std::collections::BTreeMap;

use super::call::{Call, Corrupt, Reply};
use super::script::{self, Script};
use super::{Step, unknown_tag};
use crate::domain::{Job, JobId, PoolName, State};

/// A page of jobs of one pool, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    /// The pool.
    pub pool: PoolName,
    /// Whose jobs; none: everybody's.
    pub tenant: Option<String>,
    /// Last job of the page before.
    pub after: Option<JobId>,
    /// Where an unfinished look left off; stands above `after`.
    pub cursor: Option<u64>,
    /// In that state alone.
    pub state: Option<State>,
    /// Dead letters alone; stands above `state`.
    pub dead: bool,
    /// Of that class alone.
    pub class: Option<String>,
    /// Most jobs returned.
    pub limit: u32,
    /// Most entries looked at, so that the script stays short.
    pub scan: u32,
}

/// What a look found.
#[derive(Clone, Debug, PartialEq)]
pub enum ListReply {
    /// A page, or the part of one that this look reached.
    Page {
        /// Newest first.
        jobs: Vec<Job>,
        /// Where to go on; none: that was the last.
        cursor: Option<u64>,
    },
    /// `after` is no job, or another tenant's.
    Unknown,
}

impl Step for List {
    type Reply = ListReply;
    const SCRIPT: &'static Script = &script::LIST;
    const READS: bool = true;

    fn pool(&self) -> &PoolName {
        &self.pool
    }

    fn bind(&self, _deadline_ms: u64) -> Call {
        let state = if self.dead {
            "dead"
        } else {
            self.state.map_or("", State::as_str)
        };
        let cursor = self.cursor.map(|c| c.to_string()).unwrap_or_default();
        let mut call = Call::new(Self::SCRIPT, &self.pool);
        call.arg("tenant", self.tenant.as_deref().unwrap_or(""))
            .arg("after", self.after.as_ref().map_or("", JobId::bare))
            .arg("cursor", cursor.as_str())
            .arg("state", state)
            .arg("class", self.class.as_deref().unwrap_or(""))
            .arg("limit", u64::from(self.limit))
            .arg("scan", u64::from(self.scan));
        call
    }

    fn decode(&self, tag: &str, reply: &mut Reply) -> Result<ListReply, Corrupt> {
        match tag {
            "unknown" => Ok(ListReply::Unknown),
            "page" => {
                let cursor = reply.maybe_number()?;
                let mut jobs = Vec::new();
                while let Some(mut one) = reply.list()? {
                    let mut fields: BTreeMap<String, String> = one.pairs()?;
                    let bare = fields.remove("id").unwrap_or_default();
                    let id = JobId::from_bare(&self.pool, &bare).map_err(|e| one.corrupt(e))?;
                    jobs.push(Job::from_fields(id, &fields).map_err(|e| one.corrupt(e))?);
                }
                Ok(ListReply::Page { jobs, cursor })
            }
            other => Err(unknown_tag(other, reply)),
        }
    }
}
