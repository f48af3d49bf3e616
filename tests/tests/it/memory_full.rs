//! Case 12: the store's memory, or its disk, is full. What was begun is finished, and nothing is half made.

use std::time::Duration;

use serde_json::json;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, FILLABLE, LONG, Options, Reply, Rig, SOON, job, until};

use crate::common::{call, ran_just_once};

/// Jobs that run when the memory is full.
const RUNNING: usize = 20;
/// Once there is memory, everything accepted ends within this time.
const ENDS: Duration = Duration::from_secs(30);
/// Memory that is left before the flood.
const SPARE: u64 = 3_000_000;

fn a_store_that_cannot(reply: &Reply) {
    let text = reply.text();
    assert!(matches!(reply.status, 429 | 503), "{text}");
    let seconds: u64 = reply.header("retry-after").parse().unwrap_or(0);
    assert!(seconds >= 1, "no Retry-After: {text}");
}

/// Submits prompts of 100 KB until one is refused; gives the ids of the accepted and the refusal.
async fn flood(rig: &Rig, name: &str) -> (Vec<String>, Reply) {
    let prompt = "word ".repeat(20_000);
    let mut ids = Vec::new();
    for n in 0..300 {
        let script = Script::tag(format!("{name}{n}"));
        let reply = rig.api.post(&job(format!("{prompt}{script}"))).await;
        if reply.status != 202 {
            return (ids, reply);
        }
        ids.push(reply.json()["id"].as_str().unwrap().to_owned());
    }
    panic!("nothing was refused after {} prompts", ids.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_memory_sheds_work_and_finishes_what_it_has() {
    let options = Options {
        slots: u32::try_from(RUNNING).unwrap(),
        max_queued: 1_000,
        weight: 2,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    let mut letters = Vec::new();
    for n in 0..2 {
        let mut dying = job(Script::tag(format!("dead{n}")).status(500_u16));
        dying["max_attempts"] = json!(1);
        letters.push(rig.api.submit(&dying).await);
    }
    for id in &letters {
        assert_eq!(rig.api.ends(id, SOON).await["dead"], true);
    }
    let mut running = Vec::new();
    for n in 0..RUNNING {
        let tag = format!("r{n}");
        let script = Script::tag(&tag).hold().bytes(20_000_u64);
        running.push((rig.api.submit(&job(script)).await, tag));
    }
    for (_, tag) in &running {
        call(&rig, tag, 1).await;
    }

    rig.fill_memory(SPARE).await;
    let (flooded, refusal) = flood(&rig, "flood").await;
    a_store_that_cannot(&refusal);
    assert!(!flooded.is_empty(), "the flood was refused at once");
    // What is in hand is renewed, cancelled, listed and purged without memory.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let cancelled = rig.api.cancel(&flooded[0]).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    let listed = rig.cli(&["dlq", "list", "-o", "json"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for id in &letters {
        assert!(listed.stdout.contains(id.as_str()), "{listed:?}");
    }
    let purged = rig.cli(&["dlq", "purge", &letters[0], "--yes"]).await;
    assert_eq!(purged.code, Some(0), "{purged:?}");
    let listed = rig.cli(&["dlq", "list", "-o", "json"]).await;
    assert!(!listed.stdout.contains(&letters[0]), "{listed:?}");

    // What that gave back is taken again; then the calls end, and their results are stored, though each adds.
    let (more, refusal) = flood(&rig, "more").await;
    a_store_that_cannot(&refusal);
    let full = rig.redis(&["SET", "one", &"x".repeat(100_000)]).await;
    assert!(full.contains("OOM"), "{full}");
    for (_, tag) in &running {
        rig.gpu.release(tag);
    }
    for (id, tag) in &running {
        ran_just_once(&rig.api.ends(id, LONG).await);
        assert_eq!(rig.gpu.calls_tagged(tag).len(), 1, "{tag}");
        assert_eq!(rig.api.answer(id).await.len(), 20_000);
    }
    rig.free_memory().await;
    for id in flooded[1..].iter().chain(&more) {
        ran_just_once(&rig.api.ends(id, ENDS).await);
    }
    // The purged letter's record is gone; everything else ended.
    rig.api.forget(&letters[0]);
    rig.settle_check().await;
}

/// The disk is full: under `everysec` the server refuses writes and heals, under `always` it ends and is started again.
async fn without_disk(sync: &str) {
    let options = Options {
        store_wrap: FILLABLE.map(str::to_owned).to_vec(),
        store_settings: vec![("appendfsync".into(), sync.into())],
        durability: "durability = \"relaxed\"".into(),
        max_lost_leases: 1,
        weight: 2,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 2, 1).await;
    let mut running = Vec::new();
    for n in 0..4 {
        let tag = format!("r{n}");
        let script = Script::tag(&tag).sleep_ms(500 + 700 * n).text("well");
        running.push(rig.api.submit(&job(script)).await);
        call(&rig, &tag, 1).await;
    }
    rig.limit_disk(Some(0)).await;
    let keyed = job(Script::tag("keyed"));
    let refused = until(SOON, "a submission is refused", async || {
        let request = rig.api.request("POST", "/v1/jobs").json(&keyed);
        let reply = rig.api.send(request.header("idempotency-key", "k")).await;
        (reply.status != 202 && reply.status != 200).then_some(reply)
    })
    .await;
    a_store_that_cannot(&refused);
    tokio::time::sleep(Duration::from_millis(500)).await;
    match sync {
        "always" => rig.start_store(),
        _ => rig.limit_disk(None).await,
    }
    let id = rig.api.submit_until_stored("k", &keyed).await;
    running.push(id);
    for id in &running {
        let done = rig.api.ends(id, LONG).await;
        assert_eq!(
            (&done["status"], &done["attempts"]),
            (&json!("succeeded"), &json!(1)),
            "{done:#}"
        );
    }
    rig.settle_check_allowing(Allow {
        peak_above_slots: 4,
        findings: vec!["redis.persistence"],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_writes_and_costs_no_job() {
    without_disk("everysec").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_ends_because_its_disk_is_full_costs_no_job() {
    without_disk("always").await;
}
