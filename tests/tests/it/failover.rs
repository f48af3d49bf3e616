//! Case 11: the store's primary is demoted under open connections, and what a server says that cannot serve.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, Fault, LONG, Of, Options, Replica, Rig, Rule, free_port, job, until};

use crate::common::{SLACK, call, outcomes, sequence};
use crate::load::{Load, Sent, accepted_after, nobody_hung_or_was_misled, refusals};

/// 20 jobs a second.
const EVERY: Duration = Duration::from_millis(50);
/// Between the demotion and the switch of the address.
const GAP: Duration = Duration::from_secs(5);
/// After the switch everything works within this time.
const WORKS: Duration = Duration::from_secs(5);
/// Jobs that run when it happens.
const RUNNING: usize = 20;

/// It was done in one attempt, and handed out twice at most: trouble of the store is no failure of the job.
fn was_spent_one_attempt(done: &Value) {
    assert_eq!(done["status"], "succeeded", "{done:#}");
    assert_eq!(done["attempts"], 1, "{done:#}");
    let outcomes = outcomes(done);
    let mut before = outcomes[..outcomes.len() - 1].iter();
    assert!(
        before.all(|outcome| outcome == "lost" || outcome == "release"),
        "{done:#}"
    );
}

/// Starts jobs that end one after the other, from soon to beyond the gap.
async fn running(rig: &Rig, name: &str, count: usize, step_ms: u64) -> Vec<(String, String)> {
    let mut jobs = Vec::new();
    for n in 0..count {
        let tag = format!("{name}{n}");
        let run_ms = 500 + step_ms * u64::try_from(n).unwrap();
        let first = Script::tag(&tag).sleep_ms(run_ms);
        let script = sequence(&[first, Script::tag(&tag), Script::tag(&tag)]);
        jobs.push((rig.api.submit(&job(script)).await, tag));
    }
    for (_, tag) in &jobs {
        call(rig, tag, 1).await;
    }
    jobs
}

async fn all_was_done(rig: &Rig, jobs: &[(String, String)], sent: &[Sent]) {
    for id in jobs
        .iter()
        .map(|(id, _)| id)
        .chain(sent.iter().map(|sent| &sent.id))
    {
        was_spent_one_attempt(&rig.api.ends(id, LONG).await);
    }
    for (_, tag) in jobs {
        assert!(
            rig.gpu.calls_tagged(tag).len() <= 2,
            "{tag} ran more than once again"
        );
    }
}

/// Every role is ready.
async fn everybody_is_ready(rig: &Rig, limit: Duration) {
    let ingress = rig.ingress.iter().map(|(process, _)| &process.url);
    let others = rig
        .workers
        .iter()
        .chain(&rig.reapers)
        .map(|process| &process.url);
    for url in ingress.chain(others) {
        until(limit, &format!("{url} is ready"), async || {
            let ready = rig.api.plain(&format!("{url}/readyz")).await;
            ready.is_ok_and(|reply| reply.status == 200).then_some(())
        })
        .await;
    }
}

/// Calls whose owners are about to stop them run beside their successors'.
fn overlapping(running: usize) -> Allow {
    Allow {
        peak_above_slots: running,
        ..Allow::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_demoted_under_open_connections_costs_no_job_and_no_attempt() {
    let port = free_port();
    let options = Options {
        slots: 40,
        max_queued: 2_000,
        through_proxy: true,
        store_settings: vec![("port".into(), port.to_string())],
        weight: 3,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    let replica = Replica::follow(port, &[]).await;
    let jobs = running(&rig, "j", RUNNING, 300).await;
    let load = Load::start(&rig.api, "a", EVERY, 50);
    tokio::time::sleep(Duration::from_millis(500)).await;

    rig.fail_over(&replica).await;
    tokio::time::sleep(GAP).await;
    let calls = rig.gpu.calls().len();
    rig.proxy.lead_to(replica.upstream());
    let switched = Instant::now();
    until(WORKS, "the model is called", async || {
        (rig.gpu.calls().len() > calls).then_some(())
    })
    .await;
    everybody_is_ready(&rig, WORKS).await;
    let works = switched.elapsed();
    assert!(works <= WORKS, "{works:?}");
    let listed = rig.cli(&["job", "list", "-o", "json"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let sent = load.stop().await;
    let accepted = accepted_after(&sent, switched);
    let refused = refusals(&sent);
    eprintln!(
        "after the switch: a job accepted {accepted:?}, all work {works:?}; {refused} refusals of {} submissions",
        sent.len()
    );
    assert!(accepted <= WORKS, "{accepted:?}");
    assert!(refused > 0, "the gap was seen by nobody");
    nobody_hung_or_was_misled(&sent, &["store_unavailable"]);
    all_was_done(&rig, &jobs, &sent).await;
    // Only now does the old primary go, and with it what may still be connected to it.
    rig.store = replica.server;
    rig.settle_check_allowing(overlapping(RUNNING)).await;
}

/// What servers say that cannot serve, as Redis 7 words it.
const SAID: [&str; 8] = [
    "LOADING Redis is loading the dataset in memory",
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN The cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS Not enough good replicas to write.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
];

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_server_says_that_cannot_serve_is_no_failure_of_a_job() {
    let options = Options {
        slots: 16,
        max_queued: 1_000,
        max_lost_leases: 1,
        through_proxy: true,
        weight: 2,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 2, 2).await;
    for (n, said) in SAID.into_iter().enumerate() {
        let name: &'static str = ["a", "b", "c", "d", "e", "f", "g", "h"][n];
        let jobs = running(&rig, &format!("{name}-run"), 4, 400).await;
        let load = Load::start(&rig.api, name, EVERY, 20);
        let hits = rig
            .proxy
            .inject(Rule::request(Of::Anything).always(), Fault::error(said));
        // First for longer than a lease and than a submission is tried for, then for less.
        let long = n < 4;
        let trouble_ms = if long { 2_600 } else { 1_200 };
        tokio::time::sleep(Duration::from_millis(trouble_ms)).await;
        rig.proxy.heal();
        let healed = Instant::now();
        everybody_is_ready(&rig, WORKS).await;
        let sent = load.stop().await;
        let refused = refusals(&sent);
        eprintln!(
            "{said:.12}: {} commands refused, {refused} refusals of {} submissions, ready after {:?}",
            hits.count(),
            sent.len(),
            healed.elapsed()
        );
        assert!(
            hits.count() > 0 && (refused > 0 || !long),
            "{said}: seen by nobody"
        );
        nobody_hung_or_was_misled(&sent, &["store_unavailable"]);
        all_was_done(&rig, &jobs, &sent).await;
    }
    rig.settle_check_allowing(overlapping(4)).await;
}

/// The server itself is in trouble, each way for a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_in_trouble_is_used_again_when_the_trouble_ends() {
    let options = Options {
        slots: 16,
        max_queued: 1_000,
        max_lost_leases: 1,
        weight: 2,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 2, 2).await;
    let trouble = Duration::from_millis(1_200);
    for name in [
        "read-only",
        "no-master",
        "no-replicas",
        "busy",
        "paused",
        "clients-killed",
        "watchers-killed",
    ] {
        let jobs = running(&rig, name, 4, 400).await;
        let load = Load::start(&rig.api, name, EVERY, 20);
        tokio::time::sleep(Duration::from_millis(200)).await;
        match name {
            "read-only" | "no-master" => {
                rig.orphan_store(name == "read-only").await;
                tokio::time::sleep(trouble).await;
                rig.promote_store().await;
            }
            "no-replicas" => {
                rig.require_replicas(1).await;
                tokio::time::sleep(trouble).await;
                rig.require_replicas(0).await;
            }
            "busy" => {
                let _spinning = rig.spin_store(1_200).await;
                tokio::time::sleep(trouble).await;
            }
            "paused" => {
                rig.pause_writes(300).await;
                tokio::time::sleep(trouble).await;
            }
            kind => {
                let kind = if kind == "clients-killed" {
                    "normal"
                } else {
                    "pubsub"
                };
                for _ in 0..6 {
                    rig.kill_clients(kind).await;
                    tokio::time::sleep(trouble / 6).await;
                }
            }
        }
        let over = Instant::now();
        everybody_is_ready(&rig, WORKS + SLACK).await;
        let ready = over.elapsed();
        let sent = load.stop().await;
        let refused = refusals(&sent);
        let answers = sent.iter().flat_map(|sent| &sent.answers);
        let slowest = answers.map(|answer| answer.took).max().unwrap_or_default();
        eprintln!("slowest answer {slowest:?}");
        eprintln!(
            "{name}: {refused} refusals of {} submissions, ready after {ready:?}",
            sent.len()
        );
        // Writes that cannot be taken wait and are tried again; most are taken within their time.
        let seen = refused > 0 || slowest >= Duration::from_millis(250);
        assert!(seen || name.ends_with("killed"), "{name}: seen by nobody");
        nobody_hung_or_was_misled(&sent, &["store_unavailable"]);
        all_was_done(&rig, &jobs, &sent).await;
    }
    rig.settle_check_allowing(overlapping(4)).await;
}
