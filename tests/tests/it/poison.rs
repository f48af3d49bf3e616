//! Case 9: a job that kills its workers is counted out; those beside it are not.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, LONG, Options, Rig, SOON, chat, job};

use crate::common::{call, outcomes, sequence, workers_of};

/// Kills the worker that has the job now, and starts another.
async fn kill_holder(rig: &mut Rig, id: &str) -> String {
    let shown = rig.cli(&["job", "get", id, "-o", "json"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let shown = shown.json();
    let shown = shown.as_array().map_or(&shown, |list| &list[0]);
    let holder = workers_of(shown).pop().unwrap();
    let workers = rig.cli(&["worker", "list", "-o", "json"]).await.json();
    let workers = workers.as_array().cloned().unwrap();
    let found = workers.iter().find(|w| w["id"] == *holder);
    let name = found.unwrap_or_else(|| panic!("{holder} in {workers:#?}"))["name"].clone();
    let at = rig.workers.iter().position(|w| name == *w.label).unwrap();
    rig.kill_worker(at);
    rig.start_worker().await;
    holder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_kills_its_workers_is_poison_and_its_neighbours_are_not() {
    let options = Options {
        concurrency: 4,
        slots: 12,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    let deadly = Script::tag("x").sleep_ms(20_000_u64);
    let script = sequence(&[
        deadly.clone(),
        deadly.clone(),
        deadly.clone(),
        deadly,
        Script::tag("x").text("fine"),
    ]);
    let submission = job(&script);
    let x = rig.api.submit(&submission).await;
    let api = rig.api.clone();
    let neighbours = tokio::spawn(async move {
        let mut ids = Vec::new();
        for n in 0..40 {
            ids.push(
                api.submit(&job(Script::tag(format!("n{n}")).sleep_ms(150_u64)))
                    .await,
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        ids
    });
    let mut dead = Vec::new();
    for n in 1..=3 {
        call(&rig, "x", n).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        dead.push(kill_holder(&mut rig, &x).await);
    }
    let done = rig.api.ends(&x, SOON).await;
    assert_eq!(
        (&done["status"], &done["dead"]),
        (&json!("failed"), &json!(true)),
        "{done:#}"
    );
    assert_eq!(done["error"]["code"], "poison", "{done:#}");
    assert_eq!(outcomes(&done), ["lost", "lost", "lost"], "{done:#}");
    assert_eq!(done["attempts"], 0, "{done:#}");

    let letter = rig.cli(&["dlq", "show", &x, "-o", "json"]).await.json();
    assert_eq!(letter["reason"], "poison", "{letter:#}");
    dead.sort();
    assert_eq!(letter["workers"], json!(dead), "{letter:#}");
    assert_eq!(request_body(&letter), chat(&script), "{letter:#}");
    for id in neighbours.await.unwrap() {
        let neighbour = rig.api.ends(&id, LONG).await;
        assert_eq!(neighbour["status"], "succeeded", "{neighbour:#}");
    }
    // The reapers report what the store counted while they watched.
    for at in 0..rig.reapers.len() {
        let base = rig.reapers[at].url.clone();
        tidegate_tests::until(SOON, "the metric counts it", async || {
            let poisoned = rig.metric(&base, "tidegate_poisoned_jobs_total").await;
            assert!(poisoned <= 1.0, "{poisoned}");
            (poisoned > 0.0).then_some(())
        })
        .await;
    }

    // A new life counts afresh: one more dead worker does not end it.
    rig.api.forget_terminal(&x);
    let requeued = rig.cli(&["dlq", "requeue", &x, "--yes"]).await;
    assert_eq!(requeued.code, Some(0), "{requeued:?}");
    call(&rig, "x", 4).await;
    kill_holder(&mut rig, &x).await;
    let done = rig.api.ends(&x, LONG).await;
    assert_eq!(done["status"], "succeeded", "{done:#}");
    assert_eq!(done["attempts"], 1, "{done:#}");
    assert_eq!(rig.api.answer(&x).await, "fine");
    let allow = Allow {
        peak_above_slots: 4,
        ..Allow::default()
    };
    rig.settle_check_allowing(allow).await;
}

/// The request of a dead letter, as it was submitted.
pub(crate) fn request_body(letter: &Value) -> Value {
    let request = &letter["request"];
    request.get("body").unwrap_or(request).clone()
}
