//! Case 21: however a job ends, its slot comes back, once.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tidegate_loadtest::gpu::{CutHow, Script};
use tidegate_tests::{Allow, Api, Direction, LONG, Options, Rig, SOON, Signal, job, until};

use crate::common::{LEASE, PASS, SLACK, SUCCEED, call, ran_just_once};

const JOBS: u64 = 500;
/// Jobs that are owed at once.
const TOGETHER: usize = 24;
const SLOTS: usize = 4;
/// What a worker hears of a settle that was taken.
const SETTLED: &[u8] = b"$7\r\nsettled\r\n";

/// How a job of the scenario ends, its workers' fate aside.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Success,
    Refused,
    ServerError,
    Cancelled,
    TimedOut,
    Garbage,
    Cut,
    ReaderGone,
}

impl Ending {
    fn of(n: u64) -> Self {
        match n * 7 % 11 {
            0 => Self::Refused,
            1 => Self::ServerError,
            2 => Self::Cancelled,
            3 => Self::TimedOut,
            4 => Self::Garbage,
            5 => Self::Cut,
            6 => Self::ReaderGone,
            _ => Self::Success,
        }
    }

    fn submission(self, tag: &str, n: u64) -> Value {
        let script = Script::tag(tag);
        let script = match self {
            Self::Success => script.sleep_ms(20 + n % 60),
            Self::Refused => script.status(400_u16),
            Self::ServerError => script.status(500_u16),
            Self::Cancelled => script.sleep_ms(20_000_u64),
            Self::TimedOut => script.sleep_ms(5_000_u64),
            Self::Garbage => script.raw(&b"\x00\xff data: {{{{\r\n\r\n}"[..]),
            Self::Cut => script.chunks(9).cut_chunks(5_u32).cut_how(CutHow::Reset),
            Self::ReaderGone => script.chunks(6).chunk_ms(20_u64),
        };
        let mut submission = job(script);
        if matches!(self, Self::TimedOut) {
            submission["timeout_ms"] = json!(300);
            submission["max_attempts"] = json!(1);
        }
        submission
    }

    fn statuses(self) -> &'static [&'static str] {
        match self {
            Self::Success | Self::ReaderGone => &["succeeded"],
            Self::Cancelled => &["cancelled"],
            _ => &["failed"],
        }
    }
}

/// Submits one, does to it what its ending asks for, and waits for its end.
async fn one(rig_api: &Api, n: u64) {
    let ending = Ending::of(n);
    let tag = format!("n{n}");
    let submission = ending.submission(&tag, n);
    let id = rig_api
        .submit_until_stored(&format!("key-{n}"), &submission)
        .await;
    match ending {
        Ending::Cancelled => {
            // Some while they wait, most while they run.
            tokio::time::sleep(Duration::from_millis(n % 5 * 150)).await;
            until(SOON, "the cancel is taken", async || {
                let reply = rig_api.cancel(&id).await;
                (reply.status == 200).then_some(())
            })
            .await;
        }
        Ending::ReaderGone => {
            let path = format!("/v1/jobs/{id}/events");
            let request = rig_api.request("GET", &path);
            // Gone after the first piece, or with the store's outage before it.
            if let Ok(response) = request.send().await {
                let mut pieces = response.bytes_stream();
                let _ = tokio::time::timeout(Duration::from_millis(300), pieces.next()).await;
            }
        }
        _ => {}
    }
    let status = until(LONG, "it ends", async || {
        let reply = rig_api
            .try_send(rig_api.request("GET", &format!("/v1/jobs/{id}?wait=5")))
            .await
            .ok()?;
        let shown = (reply.status == 200).then(|| reply.json())?;
        rig_api.note(&shown);
        tidegate_tests::terminal(&shown).then(|| shown["status"].as_str().map(str::to_owned))?
    })
    .await;
    let expected = ending.statuses();
    assert!(expected.contains(&&*status), "{ending:?} ended {status}");
}

/// Goes on until it is told to stop: a worker killed, one frozen past its lease, one stopped; settles and their replies
/// lost; once, half way, the store is killed and started again.
async fn faults(rig: &mut Rig, until_done: &mut tokio::task::JoinHandle<()>) -> usize {
    let mut count = 0;
    while !until_done.is_finished() {
        count += 1;
        rig.proxy.lose_next(1, Direction::Request, SUCCEED);
        rig.proxy.lose_next(1, Direction::Reply, SETTLED);
        match count % 4 {
            0 => {
                rig.kill_worker(0);
                rig.start_worker().await;
            }
            1 => {
                rig.workers[0].signal(Signal::Stop);
                tokio::time::sleep(LEASE + PASS).await;
                rig.workers[0].signal(Signal::Cont);
            }
            2 => {
                rig.stop_worker(1);
                rig.start_worker().await;
            }
            _ => rig.proxy.reset_all(),
        }
        if count == 5 {
            rig.store.kill();
            tokio::time::sleep(Duration::from_millis(300)).await;
            rig.store.restart().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    count
}

async fn slots_used(rig: &Rig) -> u64 {
    rig.pool().await["slots_used"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_endings_of_every_kind_leave_no_slot_behind() {
    let options = Options {
        slots: u32::try_from(SLOTS).unwrap(),
        max_queued: 200,
        through_proxy: true,
        // Workers die all the time here, and no job is at fault.
        max_lost_leases: 50,
        weight: 3,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    let api = rig.api.clone();
    let mut all = tokio::spawn(async move {
        futures_util::stream::iter(0..JOBS)
            .for_each_concurrent(TOGETHER, |n| {
                let api = api.clone();
                async move { one(&api, n).await }
            })
            .await;
    });
    let count = faults(&mut rig, &mut all).await;
    all.await.unwrap();
    let ended = Instant::now();
    assert!(
        count > 5,
        "{count} faults: the store's restart was among them"
    );

    until(LONG, "no slot is used", async || {
        (slots_used(&rig).await == 0).then_some(())
    })
    .await;
    let took = ended.elapsed();
    assert!(took <= LEASE + PASS * 2 + SLACK, "{took:?}");

    four_run_together_and_no_more(&mut rig).await;
    let allow = Allow {
        // Calls of killed and frozen workers, from before the log began anew: none.
        peak_above_slots: 0,
        ..Allow::default()
    };
    rig.settle_check_allowing(allow).await;
}

async fn four_run_together_and_no_more(rig: &mut Rig) {
    until(LONG, "the model is idle", async || {
        (rig.gpu.running() == 0).then_some(())
    })
    .await;
    rig.gpu.reset_log();
    let mut sleepers = Vec::new();
    for n in 0..SLOTS * 3 {
        let script = Script::tag(format!("sleeper{n}")).sleep_ms(400_u64);
        sleepers.push(rig.api.submit(&job(script)).await);
    }
    for id in &sleepers {
        ran_just_once(&rig.api.ends(id, LONG).await);
    }
    assert_eq!(rig.gpu.peak(), SLOTS);
}

/// The pool gets another number of slots while it works.
async fn resize(rig: &Rig, slots: usize) {
    let path = "/v1/pools/default";
    let shown = rig.operator.send(rig.operator.request("GET", path)).await;
    let mut pool = shown.json();
    pool["slots"] = json!(slots);
    let request = rig.operator.request("PUT", path).json(&pool);
    let reply = rig.operator.send(request).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_shrinks_and_grows_under_load_ends_at_its_size() {
    // The model server is larger than any size of the pool.
    let options = Options {
        gpu: tidegate_loadtest::gpu::Config {
            slots: 32,
            ..Default::default()
        },
        weight: 2,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    // Ten leases long: its slot stays its own all along.
    let long = job(Script::tag("long").chunks(100).chunk_ms(200_u64));
    let long = rig.api.submit(&long).await;
    call(&rig, "long", 1).await;
    let mut n = 0;
    for (slots, jobs) in [(4, 12), (2, 12), (6, 24), (1, 0), (3, 12)] {
        resize(&rig, slots).await;
        // What runs is not touched: a smaller size is reached as it ends.
        until(LONG, "the size is reached", async || {
            (slots_used(&rig).await <= slots as u64).then_some(())
        })
        .await;
        let other = slots - 1;
        let before = n;
        let mut ids = Vec::new();
        for _ in 0..jobs {
            n += 1;
            let script = Script::tag(format!("n{n}")).sleep_ms(250_u64);
            ids.push(rig.api.submit(&job(script)).await);
        }
        for id in &ids {
            ran_just_once(&rig.api.ends(id, LONG).await);
        }
        let calls = rig.gpu.calls();
        let peak = calls
            .iter()
            .filter(|c| (before + 1..=n).any(|n| c.tag.as_deref() == Some(&format!("n{n}"))))
            .map(|c| c.concurrency_at_arrival)
            .max()
            .unwrap_or(1);
        assert_eq!(peak, if jobs == 0 { 1 } else { other + 1 }, "of {slots}");
    }
    let done = rig.api.ends(&long, LONG).await;
    ran_just_once(&done);
    assert_eq!(rig.gpu.calls_tagged("long").len(), 1);
    resize(&rig, 4).await;
    rig.options.slots = 6;
    rig.settle_check().await;
}
