//! How things stand once every fault is over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::QUIET;
use super::client::Clients;
use super::history::Shown;
use super::nemesis::Nemesis;
use super::record::{Deed, Observed, Process};
use crate::{Proc, Rig};

/// Pause before the pool is looked at again.
const LOOK: Duration = Duration::from_millis(100);
/// Jobs of one page of a list: the most there are.
const PAGE: usize = 100;
/// A page is asked for so often before the list counts as not to be had.
const TRIES: u32 = 20;
/// A process that was told to stop ends by then: its drain is 5 s.
const STOPPED: Duration = Duration::from_secs(20);
/// Lines that count something, and what they are counted as.
const LINES: [(&str, &str); 3] = [
    (
        "the lease could not be renewed in time",
        "closed by its own clock",
    ),
    ("lease lost: the verdict was not taken", "verdict refused"),
    ("this worker leaves", "closed by a planned stop"),
];

/// How many keys of each kind the pool has, then those without an end. A kind is what stands behind the pool's prefix, up
/// to the next colon.
const CENSUS: &str = r"
local kinds, lasting, cursor = {}, {}, '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', KEYS[1] .. ':*', 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local kind = string.match(string.sub(key, #KEYS[1] + 2), '^[^:]*')
    kinds[kind] = (kinds[kind] or 0) + 1
    if redis.call('PTTL', key) == -1 then lasting[#lasting + 1] = key end
  end
until cursor == '0'
local out = {}
for kind, count in pairs(kinds) do out[#out + 1] = kind .. ' ' .. count end
out[#out + 1] = ''
for _, key in ipairs(lasting) do out[#out + 1] = key end
return out
";

/// Waits until nothing is owed, then looks at everything.
pub(super) async fn observe(
    mut nemesis: Nemesis<'_>,
    broken: Vec<String>,
) -> (Observed, Vec<Deed>) {
    let mut seen = Observed {
        broken_clients: broken,
        ..Observed::default()
    };
    let start = Instant::now();
    if let Err(pool) = quiet(nemesis.rig).await {
        seen.stuck = format!("the pool is not quiet {QUIET:?} after the last fault: {pool}");
    }
    seen.settle_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    for _ in 0..2 {
        match list(nemesis.clients).await {
            Ok(jobs) => seen.lists.push(jobs),
            Err(what) => seen.stuck = what,
        }
    }
    let rig = &mut *nemesis.rig;
    seen.pool = rig.pool().await;
    seen.doctor = rig.store_cli(&["doctor", "-o", "json"]).await.json();
    census(rig, &mut seen).await;
    seen.model_calls = rig.gpu.calls().last().map_or(0, |call| call.seq);
    seen.model_peak = rig.gpu.peak() as u64;
    for process in &mut rig.gone {
        if let Err(what) = stopped(process).await {
            seen.stuck = what;
        }
    }
    nemesis.tend().await;
    nemesis.count_errors().await;
    seen.proxy = nemesis.met();
    seen.overlap = nemesis.overlap;
    seen.errors = std::mem::take(&mut nemesis.errors);
    processes(nemesis.rig, &mut seen);
    seen.processes
        .extend(nemesis.ended.iter().map(|how| Process {
            label: how.split(' ').next().unwrap_or_default().into(),
            peak_kb: 0,
            panic: String::new(),
            ended: how.clone(),
        }));
    (seen, nemesis.deeds)
}

/// Waits until nothing waits, runs or is held; gives the pool as it stands where it does not come to that.
async fn quiet(rig: &Rig) -> Result<(), Value> {
    let start = Instant::now();
    loop {
        let pool = rig.pool().await;
        let quiet = [
            "slots_used",
            "queued",
            "scheduled",
            "running",
            "held_tokens",
        ]
        .iter()
        .all(|name| pool[*name].as_u64().unwrap_or(0) == 0);
        if quiet {
            return Ok(());
        }
        if start.elapsed() > QUIET {
            return Err(pool);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Every job, page by page, as an operator sees it.
async fn list(clients: &Clients) -> Result<BTreeMap<String, Option<Shown>>, String> {
    let mut jobs = BTreeMap::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/jobs?limit={PAGE}{after}");
        let mut page = None;
        for _ in 0..TRIES {
            page = clients
                .operator_get(&path)
                .await
                .filter(|reply| reply.status == 200);
            if page.is_some() {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        let page = page
            .ok_or_else(|| format!("`{path}` is not answered"))?
            .json();
        for job in page["data"].as_array().into_iter().flatten() {
            let id = job["id"].as_str().unwrap_or_default().to_owned();
            jobs.insert(id, Shown::of(job));
        }
        if page["has_more"] != true {
            return Ok(jobs);
        }
        after = format!("&after={}", page["last_id"].as_str().unwrap_or_default());
    }
}

async fn census(rig: &Rig, seen: &mut Observed) {
    let pool = "default".parse().expect("a pool's name");
    let base = tidegate_shared::protocol::base(&pool);
    let reply = rig.redis(&["--raw", "EVAL", CENSUS, "1", &base]).await;
    let mut lines = reply.lines();
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        if let Some((kind, count)) = line.rsplit_once(' ') {
            seen.keys.insert(kind.into(), count.parse().unwrap_or(0));
        }
    }
    seen.lasting = lines.map(str::to_owned).collect();
}

async fn stopped(process: &mut Proc) -> Result<(), String> {
    let start = Instant::now();
    while process.exit().is_none() {
        if start.elapsed() > STOPPED {
            return Err(format!(
                "{} does not stop:\n{}",
                process.label,
                process.tail()
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

fn processes(rig: &mut Rig, seen: &mut Observed) {
    let mut said: BTreeMap<String, u64> = BTreeMap::new();
    let mut look = |process: &Proc| {
        for (words, counted_as) in LINES {
            *said.entry(counted_as.into()).or_default() += process.lines_with(words) as u64;
        }
        Process {
            label: process.label.clone(),
            peak_kb: peak_kb(process.pid()),
            panic: process.panic_line().unwrap_or_default(),
            ended: String::new(),
        }
    };
    let gone: Vec<Process> = rig.gone.iter().map(&mut look).collect();
    seen.processes = gone;
    for process in rig.processes() {
        seen.processes.push(look(process));
    }
    seen.said = said;
}

/// Most resident memory of a process so far, from proc(5).
fn peak_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|kb| kb.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}
