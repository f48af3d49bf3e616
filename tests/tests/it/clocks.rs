//! Case 14: clocks that disagree, and clocks that step.
//!
//! All times of a job come from one clock, the store's; how long something takes is measured on monotonic clocks. So a
//! role's wall clock may say what it likes, and the store's may step.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_loadtest::gpu::{Call, Script};
use tidegate_tests::{Allow, Clock, LONG, Options, Rig, SOON, Signal, job, until};

use crate::common::{LEASE, PASS, RENEW, SLACK, call, outcomes, ran_just_once, sequence};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// A process's environment as the rig takes it.
fn env(clock: &Clock) -> Vec<(&'static str, String)> {
    clock.env().into_iter().collect()
}

fn refs<'a>(env: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    env.iter().map(|(name, value)| (*name, &**value)).collect()
}

/// A rig whose roles disagree about the time by up to an hour; the store's clock is right. One worker, ten minutes late.
async fn of_clocks_that_disagree(options: Options) -> (Rig, Vec<Clock>) {
    let mut rig = Rig::start(options, 0, 0, 0).await;
    let ahead = Clock::shifted(10 * MINUTE_MS);
    let behind = Clock::shifted(-10 * MINUTE_MS);
    let reaper = Clock::shifted(HOUR_MS);
    rig.start_ingress_with(&refs(&env(&ahead))).await;
    rig.start_ingress().await;
    rig.start_reaper_with(&refs(&env(&reaper))).await;
    rig.start_worker_with(&refs(&env(&behind))).await;
    (rig, vec![ahead, behind, reaper])
}

/// How long after `since` the first call of `tag` arrived.
async fn arrived(rig: &Rig, tag: &str, since: Instant) -> Duration {
    call(rig, tag, 1).await;
    since.elapsed()
}

fn at(job: &Value, field: &str) -> i64 {
    job[field]
        .as_i64()
        .unwrap_or_else(|| panic!("{field} in {job:#}"))
}

/// Every instant of a record is the store's: in order, and no further from the harness's clock than the test takes.
fn instants_are_the_stores(job: &Value, started_ms: i64) {
    let [created, began, ended] =
        ["created_at_ms", "started_at_ms", "finished_at_ms"].map(|f| at(job, f));
    assert!(created <= began && began <= ended, "{job:#}");
    let now_ms = wall_ms();
    for instant in [created, began, ended] {
        let inside = started_ms - 2_000 <= instant && instant <= now_ms + 2_000;
        assert!(inside, "{instant} not in {started_ms}..{now_ms}: {job:#}");
    }
}

fn wall_ms() -> i64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_whose_clocks_disagree_keep_every_time() {
    let options = Options {
        slots: 1,
        pool: "result_retention_ms = 3000\nrecord_retention_ms = 60000".into(),
        ..Options::default()
    };
    let began_ms = wall_ms();
    let (mut rig, clocks) = of_clocks_that_disagree(options).await;
    // The one slot is taken by a run of several leases, on the worker whose clock is late.
    let long = rig
        .api
        .submit(&job(Script::tag("long").sleep_ms(4_000_u64)))
        .await;
    call(&rig, "long", 1).await;
    let ahead = Clock::shifted(10 * MINUTE_MS);
    rig.start_worker_with(&refs(&env(&ahead))).await;

    let submitted = Instant::now();
    let overdue = with(&job(Script::tag("overdue")), "deadline_ms", 1_500);
    let overdue = rig.api.submit(&overdue).await;
    let delayed = with(&job(Script::tag("delayed")), "delay_ms", 6_000);
    let delayed = rig.api.submit(&delayed).await;
    let mut line = Vec::new();
    for n in 0..6 {
        line.push(rig.api.submit(&job(Script::tag(format!("line{n}")))).await);
    }

    let expired = rig.api.ends(&overdue, SOON).await;
    let took = submitted.elapsed();
    assert_eq!(expired["status"], "expired", "{expired:#}");
    let due = Duration::from_millis(1_500);
    assert!(due <= took && took <= due + PASS + SLACK, "{took:?}");

    let after = arrived(&rig, "delayed", submitted).await;
    let due = Duration::from_secs(6);
    assert!(due <= after && after <= due + PASS + SLACK, "{after:?}");

    for id in line.iter().chain([&long, &delayed]) {
        let done = rig.api.ends(id, LONG).await;
        ran_just_once(&done);
        instants_are_the_stores(&done, began_ms);
    }
    let arrivals: Vec<Call> = rig.gpu.calls();
    let order: Vec<&str> = arrivals.iter().filter_map(|c| c.tag.as_deref()).collect();
    let expected = "long line0 line1 line2 line3 line4 line5 delayed";
    assert_eq!(order.join(" "), expected);

    // A result goes when it is due by the store's clock.
    let done = rig.api.get(&delayed).await;
    until(LONG, "the result goes", async || {
        (rig.api.get(&delayed).await["result_expired"] == true).then_some(())
    })
    .await;
    let kept_ms = wall_ms() - at(&done, "finished_at_ms");
    assert!((2_900..10_000).contains(&kept_ms), "{kept_ms}");
    drop(clocks);
    no_waiting_time_is_negative(&rig).await;
    rig.settle_check().await;
}

/// `job` with one more member.
fn with(job: &Value, name: &str, value: u64) -> Value {
    let mut job = job.clone();
    job[name] = json!(value);
    job
}

async fn no_waiting_time_is_negative(rig: &Rig) {
    for worker in &rig.workers {
        for name in [
            "tidegate_job_wait_seconds_sum",
            "tidegate_job_run_seconds_sum",
        ] {
            let sum = rig.metric(&worker.url, name).await;
            assert!(
                (0.0..120.0).contains(&sum),
                "{name} {sum} of {}",
                worker.label
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_worker_whose_clock_was_wrong_is_found_in_time() {
    let options = Options {
        slots: 1,
        ..Options::default()
    };
    let (mut rig, _clocks) = of_clocks_that_disagree(options).await;
    let script = sequence(&[Script::tag("j").hold(), Script::tag("j").text("again")]);
    let id = rig.api.submit(&job(script)).await;
    call(&rig, "j", 1).await;
    let ahead = Clock::shifted(10 * MINUTE_MS);
    rig.start_worker_with(&refs(&env(&ahead))).await;
    // It is renewed over several leases, and nobody takes it.
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(rig.gpu.calls_tagged("j").len(), 1);
    rig.kill_worker(0);
    let killed = Instant::now();
    call(&rig, "j", 2).await;
    let took = killed.elapsed();
    assert!(
        LEASE - RENEW - SLACK <= took && took <= LEASE + PASS + SLACK,
        "{took:?}"
    );
    let done = rig.api.ends(&id, SOON).await;
    assert_eq!(outcomes(&done), ["lost", "succeed"]);
    let allow = Allow {
        peak_above_slots: 1,
        ..Allow::default()
    };
    rig.settle_check_allowing(allow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_clock_that_steps_by_hours_changes_nothing_of_its_runs() {
    let mut rig = Rig::start(Options::default(), 1, 0, 2).await;
    let clock = Clock::shifted(0);
    rig.start_worker_with(&refs(&env(&clock))).await;
    let run = rig
        .api
        .submit(&job(Script::tag("run").chunks(30).chunk_ms(200_u64)))
        .await;
    let timed = job(sequence(&[
        Script::tag("timed").hold(),
        Script::tag("timed").text("in time"),
    ]));
    let timed = rig.api.submit(&with(&timed, "timeout_ms", 4_000)).await;
    let started = Instant::now();
    call(&rig, "run", 1).await;
    call(&rig, "timed", 1).await;
    // Idle workers would take what lapses.
    rig.start_worker().await;
    for shift in [-HOUR_MS, HOUR_MS, 0, 24 * HOUR_MS, -HOUR_MS] {
        tokio::time::sleep(Duration::from_millis(700)).await;
        clock.shift(shift);
    }
    // The time-out of a run is a length of time, not an instant.
    call(&rig, "timed", 2).await;
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(4), "{took:?}");
    ran_just_once(&rig.api.ends(&run, LONG).await);
    let done = rig.api.ends(&timed, SOON).await;
    assert_eq!(done["status"], "succeeded", "{done:#}");
    assert_eq!(outcomes(&done), ["retry", "succeed"], "{done:#}");
    no_waiting_time_is_negative(&rig).await;
    rig.settle_check().await;
}

/// The store's own clock goes back by two minutes and ahead by one: the pool's time goes on, leases that live go on, and
/// what is delayed comes no earlier than after its delay.
#[tokio::test(flavor = "multi_thread")]
async fn the_stores_clock_may_step_both_ways_while_jobs_run_and_wait() {
    let clock = Clock::shifted(0);
    let options = Options {
        store_env: clock
            .env()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    let mut runs = Vec::new();
    for n in 0..3 {
        let script = Script::tag(format!("run{n}")).sleep_ms(9_000_u64);
        runs.push(rig.api.submit(&job(script)).await);
        call(&rig, &format!("run{n}"), 1).await;
    }
    let started = Instant::now();
    let delayed = with(&job(Script::tag("delayed")), "delay_ms", 5_000);
    let delayed = rig.api.submit(&delayed).await;
    let before = rig.api.get(&delayed).await;

    clock.shift(-2 * MINUTE_MS);
    // An idle slot is found by new work at once, although the server's own waits go by its clock.
    let submitted = Instant::now();
    let id = rig.api.submit(&job(Script::tag("quick"))).await;
    let quick = rig.api.ends(&id, SOON).await;
    assert!(submitted.elapsed() < SLACK, "{:?}", submitted.elapsed());
    assert!(at(&quick, "created_at_ms") >= at(&before, "created_at_ms"));

    let after = arrived(&rig, "delayed", started).await;
    let due = Duration::from_secs(5);
    assert!(due <= after && after <= due + PASS + SLACK, "{after:?}");

    // Ahead by far more than a lease: every owner lives, and gets the time to say so.
    clock.shift(MINUTE_MS);
    for id in &runs {
        ran_just_once(&rig.api.ends(id, LONG).await);
    }
    clock.shift(0);
    let script = sequence(&[
        Script::tag("last").hold(),
        Script::tag("last").text("again"),
    ]);
    let last = rig.api.submit(&job(script)).await;
    call(&rig, "last", 1).await;
    // Back again the reclaim of a lost lease still works: whoever has it is frozen, another takes it.
    for worker in &mut rig.workers {
        worker.signal(Signal::Stop);
    }
    rig.start_worker().await;
    let done = rig.api.ends(&last, LONG).await;
    assert_eq!(outcomes(&done), ["lost", "succeed"]);
    for worker in &mut rig.workers {
        worker.signal(Signal::Cont);
    }
    let allow = Allow {
        peak_above_slots: 1,
        ..Allow::default()
    };
    rig.settle_check_allowing(allow).await;
}
