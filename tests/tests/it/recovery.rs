//! How soon everything goes on after a worker or the store was away. Times are the store's own, from the jobs' records.

use std::time::Duration;

use serde_json::Value;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, LONG, Options, Rig, job};

use crate::common::{
    LEASE, PASS, RENEW, call, on_a_calm_machine, outcomes, ran_just_once, sequence,
};

/// A machine that stands still for longer says nothing of a bound to a quarter of a second.
const STALL: Duration = Duration::from_millis(100);
/// A worker's death is seen within a lease, a pass and this.
const REQUEUE: Duration = Duration::from_millis(250);
/// After an outage everybody has a connection again within this time.
const RECONNECT: Duration = Duration::from_secs(1);

/// How the store is away.
#[derive(Clone, Copy, Debug)]
enum Away {
    Frozen,
    Killed,
}

impl Away {
    /// Takes the store away for so long.
    async fn take(self, rig: &mut Rig, outage: Duration) {
        match self {
            Self::Frozen => rig.freeze_store(),
            Self::Killed => rig.kill_store(),
        }
        tokio::time::sleep(outage).await;
        match self {
            Self::Frozen => rig.thaw_store(),
            Self::Killed => rig.start_store(),
        }
    }
}

/// The store's clock, in milliseconds.
async fn store_now_ms(rig: &Rig) -> u64 {
    let time = rig.redis(&["--raw", "TIME"]).await;
    let mut parts = time.lines().map(|part| part.trim().parse::<u64>().unwrap());
    parts.next().unwrap() * 1000 + parts.next().unwrap() / 1000
}

/// A job ran for so long by the model's script.
fn lasting(tag: &str, run_ms: u64) -> Script {
    Script::tag(tag).sleep_ms(run_ms).text(tag)
}

async fn short_outages(away: Away) {
    let options = Options {
        slots: 19,
        weight: 4,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    // A killed server must be started and connected to again, which takes its part of lease − renewal. Restarts in a row
    // use up the connections that a process may make at once; renewals have theirs all the same.
    let outages_ms: &[u64] = match away {
        Away::Frozen => &[250, 500, 800, 1_100],
        Away::Killed => &[250, 500, 700],
    };
    let mut jobs = Vec::new();
    // One ends every half a second: while the store is there, while it is away, at the moment of either change.
    for n in 0..19 {
        let tag = format!("s{n}");
        let id = rig.api.submit(&job(lasting(&tag, 400 + 500 * n))).await;
        jobs.push((id, tag));
    }
    for (_, tag) in &jobs {
        call(&rig, tag, 1).await;
    }
    for outage_ms in outages_ms {
        away.take(&mut rig, Duration::from_millis(*outage_ms)).await;
        tokio::time::sleep(RENEW + RENEW).await;
    }
    for (id, tag) in &jobs {
        ran_just_once(&rig.api.ends(id, LONG).await);
        assert_eq!(rig.gpu.calls_tagged(tag).len(), 1, "{tag}");
    }
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_frozen_for_less_than_a_lease_less_a_renewal_repeats_no_call() {
    on_a_calm_machine(STALL, || short_outages(Away::Frozen)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_killed_for_less_than_a_lease_less_a_renewal_repeats_no_call() {
    on_a_calm_machine(STALL, || short_outages(Away::Killed)).await;
}

async fn long_outages(away: Away) {
    let options = Options {
        slots: 8,
        // One blamed loss would make a job poison.
        max_lost_leases: 1,
        weight: 4,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    for (round, outage_ms) in [2_500, 4_000].into_iter().enumerate() {
        let mut jobs = Vec::new();
        // Half of them end while the store is away.
        for n in 0..8 {
            let tag = format!("l{round}-{n}");
            let again = lasting(&tag, 200);
            let script = sequence(&[lasting(&tag, 800 + 600 * n), again]);
            jobs.push((rig.api.submit(&job(script)).await, tag));
        }
        for (_, tag) in &jobs {
            call(&rig, tag, 1).await;
        }
        let from_ms = store_now_ms(&rig).await;
        let outage = Duration::from_millis(outage_ms);
        away.take(&mut rig, outage).await;
        let until_ms = store_now_ms(&rig).await;

        let mut last = Duration::ZERO;
        for (id, tag) in &jobs {
            let done = rig.api.ends(id, LONG).await;
            assert_eq!(done["status"], "succeeded", "{done:#}");
            // Away is no attempt: the one is the answer's.
            assert_eq!(done["attempts"], 1, "{done:#}");
            let outcomes = outcomes(&done);
            assert!(
                outcomes.len() <= 2 && outcomes.last().unwrap() == "succeed",
                "{done:#}"
            );
            assert!(rig.gpu.calls_tagged(tag).len() <= 2, "{tag}");
            let finished_ms = done["finished_at_ms"].as_u64().unwrap();
            last = last.max(Duration::from_millis(finished_ms.saturating_sub(from_ms)));
        }
        // The outage as the store's clock saw it: on a busy machine it lasts longer than it was asked to.
        let outage = Duration::from_millis(until_ms - from_ms);
        eprintln!("{away:?} for {outage:?}: all was done {last:?} after its beginning");
        let work = Duration::from_millis(200);
        assert!(
            last <= outage + RECONNECT + LEASE + PASS + work,
            "{last:?} after {outage:?}"
        );
    }
    rig.settle_check_allowing(Allow {
        // Calls of owners who are about to stop them run beside their successors'.
        peak_above_slots: 8,
        ..Allow::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_store_was_frozen_for_longer_all_is_done_a_lease_and_a_pass_later() {
    on_a_calm_machine(STALL, || long_outages(Away::Frozen)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_store_was_killed_for_longer_all_is_done_a_lease_and_a_pass_later() {
    on_a_calm_machine(STALL, || long_outages(Away::Killed)).await;
}

/// Workers killed together, at moments of their own.
const KILLED: usize = 5;
const ROUNDS: usize = 5;

async fn killed_workers() {
    let options = Options {
        slots: 64,
        concurrency: 1,
        // Deaths are no fault of the jobs here.
        max_lost_leases: 10,
        weight: 4,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 1, 0, 2).await;
    let mut took_ms = Vec::new();
    for round in 0..ROUNDS {
        for _ in 0..KILLED {
            rig.start_worker().await;
        }
        let mut jobs = Vec::new();
        for n in 0..KILLED {
            let tag = format!("k{round}-{n}");
            let script = sequence(&[Script::tag(&tag).hold(), Script::tag(&tag).text("again")]);
            jobs.push((rig.api.submit(&job(script)).await, tag));
        }
        for (_, tag) in &jobs {
            call(&rig, tag, 1).await;
        }
        let listed = rig.cli(&["worker", "list", "-o", "json"]).await.json();
        let mut killed_ms = Vec::new();
        for n in 0..KILLED {
            // Somewhere between two renewals.
            tokio::time::sleep(RENEW * u32::try_from(n + round).unwrap() / 7).await;
            // Before the kill: what is measured is never less than what it took.
            let id = id_of(&listed, &rig.workers[0].label);
            killed_ms.push((id, store_now_ms(&rig).await));
            rig.kill_worker(0);
        }
        // Their successors finish the jobs.
        for _ in 0..KILLED {
            rig.start_worker().await;
        }
        for (id, _) in &jobs {
            let done = rig.api.ends(id, LONG).await;
            assert_eq!(outcomes(&done), ["lost", "succeed"], "{done:#}");
            assert_eq!(done["attempts"], 1, "{done:#}");
            took_ms.push(requeued_ms(&done) - killed_at(&killed_ms, &done));
        }
        while !rig.workers.is_empty() {
            rig.stop_worker(0);
        }
    }
    took_ms.sort_unstable();
    let at = |part: usize| took_ms[(took_ms.len() - 1) * part / 100];
    eprintln!(
        "{} workers killed; requeued after ms: least {}, median {}, p90 {}, p99 {}, most {}",
        took_ms.len(),
        at(0),
        at(50),
        at(90),
        at(99),
        at(100)
    );
    assert!(took_ms.len() >= 20);
    let bound = LEASE + PASS + REQUEUE;
    assert!(u128::from(at(100)) <= bound.as_millis(), "{took_ms:?}");
    // A lease is not taken away early: a renewal was at most an interval old at the kill.
    assert!(
        u128::from(at(0)) >= (LEASE - RENEW - RENEW).as_millis(),
        "{took_ms:?}"
    );
    rig.settle_check_allowing(Allow {
        peak_above_slots: KILLED,
        ..Allow::default()
    })
    .await;
}

/// When the lost delivery ended, in ms of the store's clock.
fn requeued_ms(job: &Value) -> u64 {
    job["deliveries"][0]["ended_at_ms"].as_u64().unwrap()
}

/// Id of the worker with this name.
fn id_of(listed: &Value, name: &str) -> String {
    let mut workers = listed.as_array().unwrap().iter();
    let named = workers.find(|worker| worker["name"] == name);
    named.unwrap_or_else(|| panic!("{name} in {listed:#}"))["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// When the worker of the lost delivery was killed.
fn killed_at(killed: &[(String, u64)], job: &Value) -> u64 {
    let worker = job["deliveries"][0]["worker"].as_str().unwrap();
    let of = |(id, _): &&(String, u64)| id == worker;
    let found = killed.iter().find(of);
    found.unwrap_or_else(|| panic!("{worker} in {killed:?}")).1
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_killed_workers_is_seen_within_a_lease_and_a_pass() {
    on_a_calm_machine(STALL, killed_workers).await;
}
