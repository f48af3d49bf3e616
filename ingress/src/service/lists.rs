//! Walks over jobs: pool by pool in the order of their names, newest first in each, so that a walk by cursor meets every
//! job that was there throughout exactly once.

use tidegate_shared::domain::{Job, JobId, PoolName, State};
use tidegate_shared::protocol::{List, ListReply};
use tidegate_shared::store::StoreError;

use super::App;
use crate::error::{Code, Problem};

/// Entries one look at the store goes over: it holds the store for well under a millisecond a hundred.
const SCAN: u32 = 500;

/// Which jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) pool: Option<PoolName>,
    pub(crate) tenant: Option<String>,
    pub(crate) state: Option<State>,
    pub(crate) class: Option<String>,
    /// Dead letters alone.
    pub(crate) dead: bool,
    /// Last job of the page before.
    pub(crate) after: Option<JobId>,
    /// Most jobs.
    pub(crate) limit: usize,
}

/// A page of jobs.
pub(crate) struct Page {
    pub(crate) jobs: Vec<Job>,
    pub(crate) has_more: bool,
}

impl App {
    /// A page; it is never empty while there is more.
    pub(crate) async fn page(&self, filter: &Filter) -> Result<Page, Problem> {
        let entries = self.catalog.all().await?;
        let mut pools: Vec<&PoolName> = entries.iter().map(|entry| &entry.name).collect();
        if let Some(only) = &filter.pool {
            pools.retain(|&pool| pool == only);
            if pools.is_empty() {
                return Err(Problem::field(
                    Code::NotFound,
                    "pool",
                    format!("names no pool: {only}"),
                ));
            }
        }
        if let Some(after) = &filter.after {
            if !pools.contains(&after.pool()) {
                return Err(bad_cursor());
            }
            pools.retain(|&pool| pool >= after.pool());
        }
        // One more than asked for tells whether there is more.
        let want = filter.limit + 1;
        let mut jobs = Vec::new();
        for pool in pools {
            self.collect(pool, filter, want, &mut jobs).await?;
            if jobs.len() >= want {
                break;
            }
        }
        let has_more = jobs.len() >= want;
        jobs.truncate(filter.limit);
        Ok(Page { jobs, has_more })
    }

    /// Adds a pool's jobs, until `want` are there.
    async fn collect(
        &self,
        pool: &PoolName,
        filter: &Filter,
        want: usize,
        jobs: &mut Vec<Job>,
    ) -> Result<(), Problem> {
        let mut step = List {
            pool: pool.clone(),
            tenant: filter.tenant.clone(),
            after: filter.after.clone().filter(|after| after.pool() == pool),
            cursor: None,
            state: filter.state,
            dead: filter.dead,
            class: filter.class.clone(),
            limit: 0,
            scan: SCAN,
        };
        loop {
            step.limit = u32::try_from(want - jobs.len()).unwrap_or(u32::MAX);
            let reply = match self.store.list(&step).await {
                // The pool went away between two looks: so did its jobs.
                Err(StoreError::NoPool(_)) => return Ok(()),
                reply => reply?,
            };
            let ListReply::Page {
                jobs: found,
                cursor,
            } = reply
            else {
                return Err(bad_cursor());
            };
            jobs.extend(found);
            if jobs.len() >= want || cursor.is_none() {
                return Ok(());
            }
            step.cursor = cursor;
        }
    }
}

fn bad_cursor() -> Problem {
    Problem::field(
        Code::InvalidValue,
        "after",
        "must be the id of a job of this list; start again without it",
    )
}
