//! Case 7: a configured name is a label. Identity is of a process life.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, LONG, Options, Rig, SOON, job};

use crate::common::{
    LEASE, PASS, SLACK, call, call_ended, outcomes, ran_just_once, sequence, workers_of,
};

const NAME: (&str, &str) = ("TIDEGATE_WORKER__NAME", "replica");
const ONE: (&str, &str) = ("TIDEGATE_WORKER__CONCURRENCY", "1");

async fn listed(rig: &Rig) -> Vec<Value> {
    let listed = rig.cli(&["worker", "list", "-o", "json"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    listed.json().as_array().cloned().unwrap()
}

fn ids(workers: &[Value]) -> BTreeSet<String> {
    workers
        .iter()
        .map(|w| w["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_one_name_neither_hide_a_death_nor_take_from_each_other() {
    let mut rig = Rig::start(Options::default(), 1, 0, 1).await;
    rig.start_worker_with(&[NAME, ONE]).await;
    let script = sequence(&[Script::tag("x").hold(), Script::tag("x").text("again")]);
    let x = rig.api.submit(&job(script)).await;
    call(&rig, "x", 1).await;
    rig.start_worker_with(&[NAME]).await;
    let y = rig
        .api
        .submit(&job(Script::tag("y").hold().text("mine")))
        .await;
    call(&rig, "y", 1).await;

    let both = listed(&rig).await;
    assert_eq!(ids(&both).len(), 2, "{both:#?}");
    assert!(both.iter().all(|w| w["name"] == "replica"), "{both:#?}");

    // Killed, and back at once under its name.
    rig.kill_worker(0);
    rig.start_worker_with(&[NAME, ONE]).await;
    let killed = call_ended(&rig, "x", 1, SOON).await;
    let again = call(&rig, "x", 2).await;
    let took = Duration::from_millis(again.arrived_ms - killed.closed_ms.unwrap());
    assert!(took <= LEASE + PASS + SLACK, "{took:?}");
    let done = rig.api.ends(&x, SOON).await;
    assert_eq!(outcomes(&done), ["lost", "succeed"], "{done:#}");

    // Ten more lives of that name come and go while the survivor works on.
    for _ in 0..10 {
        rig.kill_worker(1);
        rig.start_worker_with(&[NAME, ONE]).await;
    }
    assert_eq!(rig.gpu.calls_tagged("y").len(), 1);
    rig.gpu.release("y");
    ran_just_once(&rig.api.ends(&y, SOON).await);
    assert_eq!(rig.gpu.calls_tagged("x").len(), 2);

    // The dead leave the list, the living stay.
    let left = tidegate_tests::until(LONG, "the dead leave the list", async || {
        let workers = listed(&rig).await;
        (workers.len() == 2).then_some(workers)
    })
    .await;
    assert!(
        ids(&left).contains(&workers_of(&rig.api.get(&y).await)[0]),
        "{left:#?}"
    );
    let allow = Allow {
        peak_above_slots: 1,
        ..Allow::default()
    };
    rig.settle_check_allowing(allow).await;
}
