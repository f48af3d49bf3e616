//! Case 10: the server's script cache is lost, and nobody needs to know.

use std::time::{Duration, Instant};

use tidegate_tests::{LONG, Options, Replica, Rig, SOON, free_port, until};

use crate::common::{SLACK, ran_just_once};
use crate::load::{Load, Sent, accepted_after, nobody_hung_or_was_misled, refusals};

/// 50 jobs a second.
const EVERY: Duration = Duration::from_millis(20);
/// A store that can be used again is used within this time.
const RESUMES: Duration = Duration::from_secs(1);

fn options() -> Options {
    Options {
        slots: 32,
        max_queued: 2_000,
        weight: 2,
        ..Options::default()
    }
}

/// Each ran once, in one attempt.
async fn all_ran_just_once(rig: &Rig, sent: &[Sent]) {
    for one in sent {
        ran_just_once(&rig.api.ends(&one.id, LONG).await);
        assert_eq!(rig.gpu.calls_tagged(&one.tag).len(), 1, "{}", one.tag);
    }
}

/// Waits until every role walks the real path again.
async fn everybody_is_ready(rig: &Rig) {
    for url in role_urls(rig) {
        until(SOON, &format!("{url} is ready"), async || {
            let ready = rig.api.plain(&format!("{url}/readyz")).await;
            ready.is_ok_and(|reply| reply.status == 200).then_some(())
        })
        .await;
    }
}

fn role_urls(rig: &Rig) -> Vec<String> {
    let ingress = rig.ingress.iter().map(|(process, _)| process.url.clone());
    let others = rig.workers.iter().chain(&rig.reapers);
    ingress
        .chain(others.map(|process| process.url.clone()))
        .collect()
}

/// Roles and commands work, from this moment on within the second.
async fn resumes(rig: &Rig, usable: Instant) {
    let calls = rig.gpu.calls().len();
    until(SOON, "the model is called", async || {
        (rig.gpu.calls().len() > calls).then_some(())
    })
    .await;
    let called = usable.elapsed();
    everybody_is_ready(rig).await;
    let ready = usable.elapsed();
    eprintln!("after {called:?} a model was called, after {ready:?} every role was ready");
    assert!(called <= RESUMES + SLACK, "{called:?}");
    assert!(ready <= RESUMES + SLACK, "{ready:?}");
    let listed = rig.cli(&["job", "list", "-o", "json"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_flushed_ten_times_under_load_are_missed_by_nobody() {
    let mut rig = Rig::start(options(), 2, 3, 2).await;
    let load = Load::start(&rig.api, "f", EVERY, 50);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        rig.flush_scripts().await;
        let shown = rig
            .store_cli(&["pool", "show", "default", "-o", "json"])
            .await;
        assert_eq!(shown.code, Some(0), "{shown:?}");
        rig.flush_scripts().await;
        let listed = rig.cli(&["job", "list", "-o", "json"]).await;
        assert_eq!(listed.code, Some(0), "{listed:?}");
    }
    let sent = load.stop().await;
    assert_eq!(refusals(&sent), 0, "of {} submissions", sent.len());
    everybody_is_ready(&rig).await;
    all_ran_just_once(&rig, &sent).await;
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_store_without_scripts_is_used_within_a_second() {
    let mut rig = Rig::start(options(), 2, 3, 2).await;
    let load = Load::start(&rig.api, "r", EVERY, 50);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        rig.kill_store();
        tokio::time::sleep(Duration::from_millis(300)).await;
        rig.start_store();
        let usable = Instant::now();
        resumes(&rig, usable).await;
    }
    let usable = Instant::now();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let sent = load.stop().await;
    assert!(accepted_after(&sent, usable) <= RESUMES);
    nobody_hung_or_was_misled(&sent, &["store_unavailable"]);
    all_ran_just_once(&rig, &sent).await;
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_scripts_takes_over_within_a_second() {
    let port = free_port();
    let options = Options {
        through_proxy: true,
        store_settings: vec![("port".into(), port.to_string())],
        ..options()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    let replica = Replica::follow(port, &[]).await;
    let load = Load::start(&rig.api, "o", EVERY, 50);
    tokio::time::sleep(Duration::from_millis(700)).await;
    rig.fail_over(&replica).await;
    rig.proxy.lead_to(replica.upstream());
    let usable = Instant::now();
    resumes(&rig, usable).await;
    let sent = load.stop().await;
    let accepted = accepted_after(&sent, usable);
    eprintln!("a job was accepted after {accepted:?}");
    assert!(accepted <= RESUMES + SLACK, "{accepted:?}");
    nobody_hung_or_was_misled(&sent, &["store_unavailable"]);
    rig.store = replica.server;
    all_ran_just_once(&rig, &sent).await;
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_script_may_run_every_role_is_unready_and_says_why() {
    let mut rig = Rig::start(Options::default(), 1, 1, 1).await;
    everybody_is_ready(&rig).await;
    rig.deny_scripts(true).await;
    for url in role_urls(&rig) {
        let ready = rig.api.plain(&format!("{url}/readyz")).await.unwrap();
        assert_eq!(ready.status, 503, "{url}: {}", ready.text());
        assert!(ready.text().contains("denied"), "{url}: {}", ready.text());
        let alive = rig.api.plain(&format!("{url}/livez")).await.unwrap();
        assert_eq!(alive.status, 200, "{url}");
    }
    let refused = rig.api.post(&tidegate_tests::job("no")).await;
    assert_eq!(
        (refused.status, &*refused.code()),
        (503, "store_unavailable")
    );
    let shown = rig.store_cli(&["pool", "show", "default"]).await;
    assert_ne!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stderr.contains("denied"), "{shown:?}");

    rig.deny_scripts(false).await;
    everybody_is_ready(&rig).await;
    let id = rig.api.submit(&tidegate_tests::job("yes")).await;
    ran_just_once(&rig.api.ends(&id, SOON).await);
    rig.settle_check().await;
}
