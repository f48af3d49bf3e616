//! Case 13: what an acknowledged job survives, for each durability on one server.
//!
//! What a killed server wrote stays with the kernel, but under `everysec` it writes late while its disk is slow. A power loss is made by cutting its append-only file
//! back to the last sync that was completed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::Value;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, LONG, Options, Reply, Rig, SOON, Signal, Synced, job, until};

use crate::common::{SLACK, call, call_ended, outcomes, sequence, workers_of};

/// Submits of one scenario.
const JOBS: u32 = 500;
/// Those of them that come long before the store dies, where that matters.
const EARLY: u32 = 480;
/// Submits on their way at once.
const AT_ONCE: usize = 8;
/// What `relaxed` may lose: what was acknowledged in the last two seconds.
const WINDOW: Duration = Duration::from_secs(2);

/// How much longer a sync takes on a disk that does not keep up with one each second.
const SLOW_SYNC: Duration = Duration::from_millis(1_200);

/// A job that was acknowledged, under its idempotency key.
struct Acked {
    key: String,
    id: String,
    at: Instant,
}

/// Submits under a key. The answer does not enter the ledger: the job may be lost.
async fn submit(rig: &Rig, key: &str) -> Reply {
    let request = rig.api.request("POST", "/v1/jobs").json(&job(key));
    rig.api.send(request.header("idempotency-key", key)).await
}

/// Submits jobs of these numbers, one each `pace`, and gives what was acknowledged. All of it must be.
async fn acknowledged(rig: &Rig, jobs: Range<u32>, pace: Duration) -> Vec<Acked> {
    let began = tokio::time::Instant::now();
    let first = jobs.start;
    futures_util::stream::iter(jobs)
        .then(async |n| {
            tokio::time::sleep_until(began + pace * (n - first)).await;
            format!("job-{n}")
        })
        .map(async |key: String| {
            let reply = submit(rig, &key).await;
            assert_eq!(reply.status, 202, "{}", reply.text());
            let id = reply.json()["id"].as_str().unwrap().to_owned();
            let at = Instant::now();
            Acked { key, id, at }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

/// The store comes back from its disk. Every role finds it by itself.
async fn comes_back(rig: &mut Rig) {
    rig.store.restart().unwrap();
    for (process, url) in &rig.ingress {
        let ready = format!("{url}/readyz");
        until(SOON, &format!("{} is ready", process.label), async || {
            let reply = rig.api.plain(&ready).await.ok()?;
            (reply.status == 200).then_some(())
        })
        .await;
    }
}

/// Those that are gone. A job that is there enters the ledger; one that is not reads as unknown, at once.
async fn lost<'a>(rig: &Rig, acked: &'a [Acked]) -> Vec<&'a Acked> {
    let mut lost = Vec::new();
    for acked in acked {
        let request = rig.api.request("GET", &format!("/v1/jobs/{}", acked.id));
        let (asked, reply) = (Instant::now(), rig.api.send(request).await);
        match reply.status {
            200 => rig.api.note(&reply.json()),
            404 => lost.push(acked),
            other => panic!("{other}: {}", reply.text()),
        }
        assert!(asked.elapsed() < SLACK, "{:?}", asked.elapsed());
    }
    lost
}

/// What is left is all that is owed, what was lost can be submitted again under its key, and all of it ends.
async fn goes_on(rig: &mut Rig, acked: &[Acked], lost: &[&Acked], allow: Allow) {
    let left = acked.len() - lost.len();
    let pool = rig.pool().await;
    assert_eq!(
        (&pool["queued"], &pool["slots_used"]),
        (&left.into(), &0.into()),
        "{pool:#}"
    );
    for acked in lost {
        let again = submit(rig, &acked.key).await;
        assert_eq!(
            (again.status, again.header("idempotency-replayed")),
            (202, "")
        );
        rig.api.note(&again.json());
    }
    // And what is there is found under its key.
    let kept = acked
        .iter()
        .find(|acked| !lost.iter().any(|lost| lost.id == acked.id));
    if let Some(kept) = kept {
        let again = submit(rig, &kept.key).await;
        assert_eq!(again.header("idempotency-replayed"), "true");
        assert_eq!(again.json()["id"], kept.id);
    }
    rig.start_worker().await;
    let ended = rig.settle_check_allowing(allow).await;
    assert_eq!(
        ended,
        BTreeMap::from([("succeeded".to_owned(), acked.len())])
    );
}

fn options(durability: &str, appendfsync: &str, synced: Option<&Synced>) -> Options {
    let env = synced.map(Synced::env).into_iter().flatten();
    Options {
        slots: 16,
        max_queued: 2 * JOBS,
        store_env: env.map(|(name, value)| (name.into(), value)).collect(),
        store_settings: vec![("appendfsync".into(), appendfsync.into())],
        durability: format!("durability = \"{durability}\""),
        ..Options::default()
    }
}

/// `doctor` is not told here what was asked, so it holds the store to `strict`.
fn weaker_than_strict() -> Allow {
    Allow {
        findings: vec!["redis.persistence"],
        ..Allow::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_store_takes_no_acknowledged_job_in_strict_mode() {
    let mut rig = Rig::start(options("strict", "always", None), 1, 0, 1).await;
    let says = ["durability asked: strict", "a crash and a power loss"];
    rig.ingress[0].0.says(SOON, &says).await;
    let acked = acknowledged(&rig, 0..JOBS, Duration::ZERO).await;
    rig.store.kill();
    comes_back(&mut rig).await;
    let lost = lost(&rig, &acked).await;
    eprintln!("strict, killed: {} of {JOBS} acknowledged lost", lost.len());
    assert_eq!(lost.len(), 0);
    goes_on(&mut rig, &acked, &lost, Allow::default()).await;
}

/// Under `everysec` the server does not even write while an earlier sync is under way, for up to two seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_store_takes_the_last_two_seconds_at_most_in_relaxed_mode() {
    let synced = Synced::new();
    let mut rig = Rig::start(options("relaxed", "everysec", Some(&synced)), 1, 0, 1).await;
    let says = ["durability asked: relaxed", "the last 2 seconds"];
    rig.ingress[0].0.says(SOON, &says).await;
    synced.slow(SLOW_SYNC);
    let acked = late_ones_too(&rig, &synced).await;
    rig.store.kill();
    let killed = Instant::now();
    synced.slow(Duration::ZERO);
    comes_back(&mut rig).await;
    let lost = lost(&rig, &acked).await;
    lately(&acked, &lost, killed, "relaxed, killed");
    goes_on(&mut rig, &acked, &lost, weaker_than_strict()).await;
}

/// Submits most jobs over twice the time of what may be lost, and the last ones just after a sync, so that these are lost
/// for certain: the next one is over a second away at the soonest.
async fn late_ones_too(rig: &Rig, synced: &Synced) -> Vec<Acked> {
    let mut acked = acknowledged(rig, 0..EARLY, 2 * WINDOW / EARLY).await;
    let syncs = synced.count();
    let synced_again = async || (synced.count() > syncs).then_some(());
    until(SOON, "the store syncs", synced_again).await;
    acked.extend(acknowledged(rig, EARLY..JOBS, Duration::ZERO).await);
    acked
}

/// Something was lost, which shows that the store did lose what it had; and only what was acknowledged lately.
fn lately(acked: &[Acked], lost: &[&Acked], killed: Instant, how: &str) {
    let oldest = lost.iter().map(|acked| killed - acked.at).max();
    eprintln!(
        "{how}: {} of {} acknowledged lost, the oldest {oldest:?} before",
        lost.len(),
        acked.len()
    );
    assert!(
        !lost.is_empty() && lost.len() < acked.len(),
        "{} lost",
        lost.len()
    );
    assert!(oldest < Some(WINDOW), "{oldest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_loss_takes_no_acknowledged_job_in_strict_mode() {
    let synced = Synced::new();
    let mut rig = Rig::start(options("strict", "always", Some(&synced)), 1, 0, 1).await;
    let acked = acknowledged(&rig, 0..JOBS, Duration::ZERO).await;
    rig.store.kill();
    let bytes = synced.lose_power(rig.store.dir());
    comes_back(&mut rig).await;
    let lost = lost(&rig, &acked).await;
    eprintln!(
        "strict, power lost ({bytes} bytes): {} of {JOBS} acknowledged lost",
        lost.len()
    );
    assert_eq!(lost.len(), 0);
    goes_on(&mut rig, &acked, &lost, Allow::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_loss_takes_the_last_two_seconds_at_most_in_relaxed_mode() {
    let synced = Synced::new();
    let mut rig = Rig::start(options("relaxed", "everysec", Some(&synced)), 1, 0, 1).await;
    let acked = late_ones_too(&rig, &synced).await;
    rig.store.kill();
    let killed = Instant::now();
    let bytes = synced.lose_power(rig.store.dir());
    comes_back(&mut rig).await;
    let lost = lost(&rig, &acked).await;
    let how = format!("relaxed, power lost ({bytes} bytes)");
    lately(&acked, &lost, killed, &how);
    goes_on(&mut rig, &acked, &lost, weaker_than_strict()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_persistence_is_warned_of_and_loses_everything() {
    let options = Options {
        store_settings: vec![("appendonly".into(), "no".into())],
        ..options("strict", "always", None)
    };
    let mut rig = Rig::start(options, 1, 0, 1).await;
    let line = rig.ingress[0]
        .0
        .says(SOON, &["do NOT survive a crash"])
        .await;
    assert!(line.contains("WARN"), "{line}");
    let acked = acknowledged(&rig, 0..JOBS, Duration::ZERO).await;
    rig.store.kill();
    rig.store.restart().unwrap();
    // Keys and pools lived in the store, too: an ingress that takes anyone applies its pools anew.
    rig.stop_ingress(0);
    rig.start_ingress_with(&[("TIDEGATE_INGRESS__AUTH", "open")])
        .await;
    let lost = lost(&rig, &acked).await;
    eprintln!(
        "no persistence, killed: {} of {JOBS} acknowledged lost",
        lost.len()
    );
    assert_eq!(lost.len(), acked.len());
    goes_on(&mut rig, &acked[..10], &lost[..10], weaker_than_strict()).await;
}

/// The append-only files of a store, to be put back later.
struct Moment(Vec<(std::path::PathBuf, Vec<u8>)>);

impl Moment {
    fn of(rig: &Rig) -> Self {
        let dir = std::fs::read_dir(rig.store.dir().join("appendonlydir")).unwrap();
        let paths = dir.map(|file| file.unwrap().path());
        Self(
            paths
                .map(|path| (path.clone(), std::fs::read(path).unwrap()))
                .collect(),
        )
    }

    fn put_back(&self) {
        for (path, bytes) in &self.0 {
            std::fs::write(path, bytes).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_rolled_back_to_before_its_claim_runs_again_and_its_old_worker_publishes_nothing() {
    let mut rig = Rig::start(Options::default(), 1, 0, 1).await;
    let script = sequence(&[
        Script::tag("j").hold().text("A"),
        Script::tag("j").text("B"),
    ]);
    let id = rig.api.submit(&job(script)).await;
    let before = Moment::of(&rig);
    rig.start_worker().await;
    call(&rig, "j", 1).await;
    let first = rig.api.get(&id).await;
    assert_eq!(first["status"], "running", "{first:#}");
    // The old worker knows nothing of what happens to the store, and its answer comes last.
    rig.workers[0].signal(Signal::Stop);
    rig.store.kill();
    before.put_back();
    comes_back(&mut rig).await;
    let back = rig.api.get(&id).await;
    assert_eq!(
        (&back["status"], &back["attempts"]),
        (&"queued".into(), &0.into()),
        "{back:#}"
    );

    rig.start_worker().await;
    let done = rig.api.ends(&id, LONG).await;
    assert_eq!(rig.api.answer(&id).await, "B");
    let old = workers_of(&first).remove(0);
    assert_ne!(workers_of(&done), [old], "{done:#}");
    rig.gpu.release("j");
    rig.workers[0].signal(Signal::Cont);
    call_ended(&rig, "j", 1, SLACK).await;
    rig.workers[0].says(SOON, &["lease", "lost"]).await;
    let after: Value = rig.api.get(&id).await;
    assert_eq!(after, done);
    assert_eq!(outcomes(&after), ["succeed"], "{after:#}");
    assert_eq!(rig.api.answer(&id).await, "B");
    let allow = Allow {
        peak_above_slots: 1,
        ..Allow::default()
    };
    rig.settle_check_allowing(allow).await;
}
