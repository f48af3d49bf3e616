//! Case 5: a worker that was frozen past its lease wakes up, and can publish nothing.

use std::time::Duration;

use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, Direction, LONG, Options, Rig, SOON, Signal, job};

use crate::common::{
    DELIVERIES, LEASE, PASS, RENEW, SLACK, SUCCEED, call, call_ended, outcomes, sequence,
    workers_of,
};

const FROZEN: Allow = Allow {
    peak_above_slots: 1,
    findings: Vec::new(),
};

/// The woken worker works on.
async fn takes_new_work(rig: &mut Rig, woken: &str, others: &[usize]) {
    for at in others {
        rig.kill_worker(*at);
    }
    let id = rig
        .api
        .submit(&job(Script::tag("after").text("after")))
        .await;
    let done = rig.api.ends(&id, LONG).await;
    assert_eq!(workers_of(&done).last().unwrap(), woken, "{done:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_worker_wakes_after_another_finished_its_job_and_changes_nothing() {
    let mut rig = Rig::start(Options::default(), 2, 1, 2).await;
    let script = sequence(&[
        Script::tag("j").hold().text("A"),
        Script::tag("j").text("B"),
    ]);
    let id = rig.api.submit(&job(script)).await;
    call(&rig, "j", 1).await;
    let first = rig.api.get(&id).await;
    rig.workers[0].signal(Signal::Stop);
    rig.start_worker().await;

    let done = rig.api.ends(&id, LONG).await;
    let result = rig.api.result(&id).await;
    assert_eq!(rig.api.answer(&id).await, "B");
    rig.gpu.release("j");
    rig.workers[0].signal(Signal::Cont);

    call_ended(&rig, "j", 1, RENEW + SLACK).await;
    rig.workers[0].says(SOON, &["lease", "lost"]).await;
    let after = rig.api.get(&id).await;
    assert_eq!(after, done);
    assert_eq!(rig.api.result(&id).await, result);
    // A lost lease is no attempt: the one is B's.
    assert_eq!(after["attempts"], 1, "{after:#}");
    assert_eq!(outcomes(&after), ["lost", "succeed"], "{after:#}");
    let woken = workers_of(&first).remove(0);
    assert_eq!(workers_of(&after)[0], woken);
    takes_new_work(&mut rig, &woken, &[1]).await;
    rig.settle_check_allowing(FROZEN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_worker_wakes_while_another_runs_its_job_and_takes_nothing_from_it() {
    let mut rig = Rig::start(Options::default(), 2, 1, 2).await;
    let second = Script::tag("j").sleep_ms(6_000).text("B");
    let script = sequence(&[Script::tag("j").hold().text("A"), second]);
    let id = rig.api.submit(&job(script)).await;
    call(&rig, "j", 1).await;
    rig.workers[0].signal(Signal::Stop);
    rig.start_worker().await;
    call(&rig, "j", 2).await;
    let second = rig.api.get(&id).await;
    let woken = workers_of(&second)[0].clone();
    rig.workers[0].signal(Signal::Cont);

    // It wakes without an answer: by its own clock its lease is over, and it closes the call.
    let closed = call_ended(&rig, "j", 1, RENEW + SLACK).await;
    assert!(closed.closed_by_caller, "{closed:?}");
    rig.workers[0].says(SOON, &["lease", "lost"]).await;
    let still = rig.api.get(&id).await;
    assert_eq!(still["status"], "running", "{still:#}");
    assert_eq!(still["deliveries"], second["deliveries"]);

    let done = rig.api.ends(&id, LONG).await;
    assert_eq!(rig.api.answer(&id).await, "B");
    assert_eq!(done["attempts"], 1, "{done:#}");
    assert_eq!(outcomes(&done), ["lost", "succeed"], "{done:#}");
    assert_eq!(rig.gpu.calls_tagged("j").len(), 2);
    takes_new_work(&mut rig, &woken, &[1]).await;
    rig.settle_check_allowing(FROZEN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_frozen_between_the_models_answer_and_its_publication_publishes_nothing() {
    let mut rig = Rig::start(Options::default(), 2, 0, 2).await;
    rig.start_proxied_worker().await;
    let mut held = rig.proxy.hold_next(Direction::Request, SUCCEED);
    let script = sequence(&[Script::tag("j").text("A"), Script::tag("j").text("B")]);
    let id = rig.api.submit(&job(script)).await;
    held.caught(SOON).await;
    let first = rig.api.get(&id).await;
    assert_eq!(first["status"], "running", "{first:#}");
    rig.workers[0].signal(Signal::Stop);
    rig.start_worker().await;

    let done = rig.api.ends(&id, LONG).await;
    assert_eq!(rig.api.answer(&id).await, "B");
    // The frozen worker's verdict reaches the store only now.
    held.release();
    rig.workers[0].signal(Signal::Cont);
    rig.workers[0].says(SOON, &["lease", "lost"]).await;
    assert_eq!(rig.api.get(&id).await, done);
    assert_eq!(rig.api.answer(&id).await, "B");
    assert_eq!(outcomes(&done), ["lost", "succeed"], "{done:#}");
    takes_new_work(&mut rig, &workers_of(&first)[0], &[1]).await;
    rig.settle_check_allowing(FROZEN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_frozen_before_it_learns_of_its_delivery_never_calls_the_model_for_it() {
    let mut rig = Rig::start(Options::default(), 2, 0, 2).await;
    rig.start_proxied_worker().await;
    let mut held = rig.proxy.hold_next(Direction::Reply, DELIVERIES);
    let id = rig.api.submit(&job(Script::tag("j").text("once"))).await;
    held.caught(SOON).await;
    rig.workers[0].signal(Signal::Stop);
    let first = rig.api.get(&id).await;
    assert_eq!(first["status"], "running", "{first:#}");
    rig.start_worker().await;
    let done = rig.api.ends(&id, LEASE + PASS + PASS + LONG).await;
    assert_eq!(outcomes(&done), ["lost", "succeed"], "{done:#}");

    held.release();
    rig.workers[0].signal(Signal::Cont);
    takes_new_work(&mut rig, &workers_of(&first)[0], &[1]).await;
    assert_eq!(rig.gpu.calls_tagged("j").len(), 1);
    assert_eq!(rig.api.get(&id).await, done);
    rig.settle_check_allowing(FROZEN).await;
}

/// The time after which a lost job must run again elsewhere is the lease and one pass.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_workers_job_runs_again_within_a_lease_and_a_pass() {
    let mut rig = Rig::start(Options::default(), 1, 1, 1).await;
    let script = sequence(&[Script::tag("j").hold(), Script::tag("j").text("again")]);
    let id = rig.api.submit(&job(script)).await;
    call(&rig, "j", 1).await;
    rig.start_worker().await;
    rig.kill_worker(0);
    let killed = call_ended(&rig, "j", 1, SOON).await;
    let again = call(&rig, "j", 2).await;
    let took = Duration::from_millis(again.arrived_ms - killed.closed_ms.unwrap());
    assert!(took <= LEASE + PASS + SLACK, "{took:?}");
    let done = rig.api.ends(&id, SOON).await;
    assert_eq!(outcomes(&done), ["lost", "succeed"], "{done:#}");
    rig.settle_check_allowing(FROZEN).await;
}
