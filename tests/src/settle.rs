//! What must hold at the end of every scenario, whatever happened in it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::Value;

use crate::rig::Rig;
use crate::wait::until;

/// Jobs looked at together.
const TOGETHER: usize = 16;
/// The slots of a process that died come back within a lease and two passes; the rest is for a busy machine.
const QUIET: Duration = Duration::from_secs(20);

/// What a scenario is allowed that others are not.
#[derive(Clone, Debug, Default)]
pub struct Allow {
    /// Calls above the slots that the model server may have seen: those of killed or frozen workers, which go on until
    /// their connection ends.
    pub peak_above_slots: usize,
    /// Findings of `doctor` that the scenario itself causes, by id.
    pub findings: Vec<&'static str>,
}

impl Rig {
    /// The settle check without exceptions.
    ///
    /// # Panics
    /// When anything does not hold.
    pub async fn settle_check(&mut self) -> BTreeMap<String, usize> {
        self.settle_check_allowing(Allow::default()).await
    }

    /// Waits until no accepted job is owed, then checks (a) to (f) of the rig. Gives how many jobs ended in which status.
    ///
    /// # Panics
    /// When anything does not hold.
    pub async fn settle_check_allowing(&mut self, allow: Allow) -> BTreeMap<String, usize> {
        for process in self.processes() {
            process.must_run();
        }
        let (ended, dead) = self.everything_ends().await;
        self.pool_is_empty(dead).await;
        // A terminal seen once is compared at each further look: this is the second for all.
        let again = self.everything_ends().await;
        assert_eq!((&ended, dead), (&again.0, again.1), "terminals changed");

        let peak = self.gpu.peak();
        let slots = self.options.slots as usize;
        assert!(
            peak <= slots + allow.peak_above_slots,
            "the model server saw {peak} calls at once over {slots} slots"
        );
        self.keys_are_bounded(ended.values().sum()).await;
        for process in self.processes() {
            process.must_run();
            process.must_not_have_panicked();
        }
        for process in &self.gone {
            process.must_not_have_panicked();
        }
        self.doctor_is_content(&allow).await;
        ended
    }

    async fn doctor_is_content(&self, allow: &Allow) {
        let doctor = self.store_cli(&["doctor", "-o", "json"]).await;
        let report = doctor.json();
        let findings = report["findings"].as_array().cloned().unwrap_or_default();
        assert!(
            !findings.is_empty(),
            "doctor found nothing to say: {report}"
        );
        let bad: Vec<&Value> = findings
            .iter()
            .filter(|f| f["status"] != "pass")
            .filter(|f| !allow.findings.iter().any(|id| f["id"] == *id))
            .collect();
        assert!(bad.is_empty(), "doctor: {bad:#?}");
        if allow.findings.is_empty() {
            assert_eq!((&report["ok"], doctor.code), (&Value::Bool(true), Some(0)));
        }
    }

    /// (a), (b): every accepted job is in one terminal. Gives their number by status, and how many are dead letters.
    async fn everything_ends(&self) -> (BTreeMap<String, usize>, usize) {
        let api = &self.api;
        let jobs: Vec<Value> = futures_util::stream::iter(api.accepted())
            .map(async |id: String| api.ends(&id, crate::LONG).await)
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        let mut ended = BTreeMap::new();
        let mut dead = 0;
        for job in &jobs {
            let status = job["status"].as_str().unwrap_or_default().to_owned();
            *ended.entry(status).or_default() += 1;
            dead += usize::from(job["dead"] == true);
        }
        (ended, dead)
    }

    /// (c): nothing waits, runs or is held.
    async fn pool_is_empty(&self, dead: usize) {
        until(QUIET, "the pool is quiet", async || {
            let pool = self.pool().await;
            let quiet = [
                "slots_used",
                "queued",
                "scheduled",
                "running",
                "held_tokens",
            ]
            .iter()
            .all(|name| pool[*name].as_u64().unwrap_or(0) == 0);
            (quiet && pool["dead"] == dead).then_some(())
        })
        .await;
    }

    /// (d), besides what `doctor` says: a key without an end is one of the pool's own, or lives and dies with a job.
    async fn keys_are_bounded(&mut self, jobs: usize) {
        let (mut of_jobs, mut lasting) = (0, Vec::new());
        for node in self.redis_at() {
            let mut client = std::process::Command::new("redis-cli");
            client.args(node).args(["--raw", "EVAL", COUNT_KEYS, "0"]);
            let reply = crate::commands::run(client).await;
            assert_eq!(reply.code, Some(0), "{reply:?}");
            let mut lines = reply.stdout.lines().map(str::to_owned);
            let count = lines.next().and_then(|n| n.parse::<usize>().ok());
            of_jobs += count.unwrap_or_else(|| panic!("no count: {reply:?}"));
            lasting.extend(lines.filter(|key| !key.is_empty()));
        }
        assert_eq!(of_jobs, jobs, "records of jobs beside the accepted");
        assert!(
            lasting.len() <= LASTING_MAX,
            "keys without an end: {lasting:#?}"
        );
    }
}

/// Keys without a TTL in a quiet store: the pool's own sets and state, and the directory's.
const LASTING_MAX: usize = 40;

/// How many records of jobs there are, then the keys without a TTL.
const COUNT_KEYS: &str = r"
local jobs, lasting, cursor = 0, {}, '0'
repeat
  local page = redis.call('SCAN', cursor, 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    if string.find(key, ':job:', 1, true) then jobs = jobs + 1 end
    if redis.call('PTTL', key) == -1 then lasting[#lasting + 1] = key end
  end
until cursor == '0'
table.insert(lasting, 1, tostring(jobs))
return lasting
";
