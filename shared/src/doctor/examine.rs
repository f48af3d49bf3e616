//! Gathers the facts, a bounded piece at a time.

use std::collections::BTreeSet;

use super::invariant::{Against, Tally};
use super::job::{self, Moment};
use super::{Finding, pool, sample, server};
use crate::config::Config;
use crate::domain::PoolName;
use crate::protocol::{Fact, Inspect, InspectReply, SnapshotReply};
use crate::store::{PoolDef, Store, StoreError};

/// Entries of an index read at once: a few milliseconds of the server at most.
const PAGE: u32 = 100;
/// Ended jobs read twice.
const TWICE: usize = 100;
/// Tenants whose index is walked; a pool may have more.
const TENANTS: usize = 1_000;
/// Indexes of jobs; the lines follow.
const INDEXES: [&str; 7] = [
    "jobs",
    "leases",
    "due",
    "dead",
    "ended",
    "deadlines",
    "owners",
];
/// Looks that must agree where one script cannot see the whole.
const LOOKS: u32 = 3;
/// Priorities, each with a line.
const PRIORITIES: u8 = 10;

/// Examines the store, and the settings of `config` against it. Reads alone, and safe beside live work.
pub async fn examine(store: &Store, config: Option<&Config>) -> Vec<Finding> {
    let server = match store.server().await {
        Ok(server) => server,
        Err(error) => return vec![unreachable(&error)],
    };
    let (asked, wanted) = config.map_or((store.durability(), store.replicas()), |config| {
        (config.store.durability, config.store.replicas)
    });
    let mut found = server::judge(&server, asked, wanted);
    found.push(match store.ready().await {
        Ok(()) => Finding::pass("redis.scripts", "a script runs"),
        Err(error) => Finding::fail(
            "redis.scripts",
            error.to_string(),
            "allow EVAL, EVALSHA and what the scripts use",
        ),
    });
    let mut tally = Tally::default();
    match pools(store, config, &mut tally).await {
        Ok(more) => found.extend(more),
        Err(error) => {
            found.push(unreachable(&error));
            return found;
        }
    }
    found.push(match sample::ttls(store, &mut tally).await {
        Ok(finding) => finding,
        Err(error) => unreachable(&error),
    });
    found.extend(tally.findings());
    found
}

fn unreachable(error: &StoreError) -> Finding {
    Finding::fail(
        "redis.reachable",
        error.to_string(),
        "check store.url and that the server runs",
    )
}

/// Every pool of the directory, and every one of the file.
async fn pools(
    store: &Store,
    config: Option<&Config>,
    tally: &mut Tally,
) -> Result<Vec<Finding>, StoreError> {
    let mut found = Vec::new();
    let known = store.pools().await?;
    for name in config.into_iter().flat_map(|config| config.pools.keys()) {
        if !known.iter().any(|pool| pool.as_str() == name) {
            let text = "the file has this pool and the store does not";
            let fix = "start a role with this file, or `tidegate pool apply` it";
            found.push(Finding::warn(format!("pools.{name}.settings"), text, fix));
        }
    }
    for pool in &known {
        let def = match store.pool(pool).await {
            Ok(Some(def)) => def,
            Ok(None) => {
                found.push(unusable(
                    pool,
                    "the directory has this pool and it has no settings",
                ));
                continue;
            }
            Err(StoreError::Corrupt(what)) => {
                found.push(unusable(pool, &what));
                continue;
            }
            Err(error) => return Err(error),
        };
        let counts = store.snapshot(pool).await?;
        let file = config.and_then(|config| config.pools.get(pool.as_str()));
        found.extend(super::pool::settings(pool, &def, &counts, file));
        Walk { store, pool, tally }.all(&def, &counts).await?;
    }
    if known.is_empty() {
        found.push(Finding::warn(
            "pools",
            "there is no pool",
            "`tidegate pool apply` one",
        ));
    }
    Ok(found)
}

fn unusable(pool: &PoolName, what: &str) -> Finding {
    Finding::fail(
        format!("pools.{pool}.settings"),
        what,
        format!("`tidegate pool apply` {pool} again"),
    )
}

/// A walk over all indexes of one pool.
struct Walk<'a> {
    store: &'a Store,
    pool: &'a PoolName,
    tally: &'a mut Tally,
}

/// What a walk over all jobs gathered.
#[derive(Default)]
struct Gathered {
    owed_bytes: u64,
    tenants: BTreeSet<String>,
    ended: Vec<Fact>,
}

impl Walk<'_> {
    async fn all(&mut self, def: &PoolDef, before: &SnapshotReply) -> Result<(), StoreError> {
        let mut gathered = Gathered::default();
        for index in INDEXES {
            self.index(index, &mut gathered).await?;
        }
        self.lines(&mut gathered).await?;
        for tenant in std::mem::take(&mut gathered.tenants) {
            self.index(&format!("tenant:{tenant}"), &mut gathered)
                .await?;
        }
        for earlier in &gathered.ended {
            if let Some(now) = self.one(&earlier.id).await?
                && let Some(against) = job::twice(earlier, &now)
            {
                self.note(&earlier.id, against);
            }
        }
        let after = self.store.snapshot(self.pool).await?;
        // A bound is passed only where it was passed twice.
        let twice = pool::counts(before, &def.config);
        for against in pool::counts(&after, &def.config) {
            if twice
                .iter()
                .any(|earlier| earlier.invariant == against.invariant)
            {
                self.tally.note(&format!("pool {}", self.pool), against);
            }
        }
        if let Some(against) = pool::bytes(before, &after, gathered.owed_bytes) {
            self.tally.note(&format!("pool {}", self.pool), against);
        }
        Ok(())
    }

    /// Each line of waiting jobs, and whether claims look at it.
    async fn lines(&mut self, gathered: &mut Gathered) -> Result<(), StoreError> {
        for priority in 0..PRIORITIES {
            let line = format!("ready:{priority}");
            self.index(&line, gathered).await?;
            if let Some(against) = self.hidden(priority, &line).await? {
                self.tally.note(&format!("pool {}", self.pool), against);
            }
        }
        Ok(())
    }

    /// A line that no claim looks at. Line and levels are two looks, between which a claim may empty the one and drop the
    /// other: it is hidden only where it is so each time.
    async fn hidden(&self, priority: u8, line: &str) -> Result<Option<Against>, StoreError> {
        let mut against = None;
        for _ in 0..LOOKS {
            let waiting = self.page(line, 0, 1).await?.size;
            let levels = self.page("levels", 0, PAGE).await?;
            let is_level = levels
                .facts
                .iter()
                .any(|fact| fact.id == priority.to_string());
            against = pool::level(priority, waiting, is_level);
            if against.is_none() {
                break;
            }
        }
        Ok(against)
    }

    async fn page(&self, index: &str, start: u64, count: u32) -> Result<InspectReply, StoreError> {
        let step = Inspect {
            pool: self.pool.clone(),
            index: index.to_owned(),
            start,
            count,
        };
        self.store.inspect(&step).await
    }

    /// One job, wherever it is.
    async fn one(&self, id: &str) -> Result<Option<Fact>, StoreError> {
        let reply = self.page(&format!("job:{id}"), 0, 1).await?;
        Ok(reply.facts.into_iter().next())
    }

    async fn index(&mut self, index: &str, gathered: &mut Gathered) -> Result<(), StoreError> {
        let mut start = 0;
        loop {
            let page = self.page(index, start, PAGE).await?;
            for fact in &page.facts {
                self.entry(index, start, fact, moment(&page)).await?;
                if index == "jobs" {
                    gathered.take(fact);
                }
            }
            if index == "jobs" {
                self.tally.look(page.facts.len() as u64);
            }
            start += u64::from(PAGE);
            // The owners come all at once.
            if start >= page.size || page.facts.is_empty() || index == "owners" {
                return Ok(());
            }
        }
    }

    /// Judges one entry, and looks again before anything is told.
    async fn entry(
        &mut self,
        index: &str,
        start: u64,
        fact: &Fact,
        at: Moment,
    ) -> Result<(), StoreError> {
        let judge = |fact: &Fact, at: Moment| {
            let mut found = job::entry(self.pool, index, fact, at);
            if index == "jobs" && job::has_record(fact) {
                found.extend(job::record(self.pool, fact));
            }
            found
        };
        if judge(fact, at).is_empty() {
            return Ok(());
        }
        let again = self.page(index, start, PAGE).await?;
        let Some(now) = again
            .facts
            .iter()
            .find(|now| now.id == fact.id && now.score == fact.score)
        else {
            return Ok(()); // it moved on
        };
        for against in judge(now, moment(&again)) {
            self.note(&fact.id, against);
        }
        Ok(())
    }

    fn note(&mut self, id: &str, against: Against) {
        let about = format!("job_{}_{id}", self.pool);
        self.tally.note(&about, against);
    }
}

impl Gathered {
    fn take(&mut self, fact: &Fact) {
        let text = |name: &str| fact.fields.get(name).map_or("", String::as_str);
        if self.tenants.len() < TENANTS && !text("tenant").is_empty() {
            self.tenants.insert(text("tenant").to_owned());
        }
        let ended = text("ended_at");
        if ended.is_empty() {
            self.owed_bytes += text("bytes").parse::<u64>().unwrap_or(0);
        } else if self.ended.len() < TWICE {
            self.ended.push(fact.clone());
        }
    }
}

fn moment(page: &InspectReply) -> Moment {
    Moment {
        now_ms: page.now_ms,
        lapsed_ms: page.lapsed_ms,
    }
}
