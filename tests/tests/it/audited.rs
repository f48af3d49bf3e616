//! What real processes did, told by the scripts themselves: the record of a rough run replays to the last key.

use std::sync::Arc;

use tidegate_loadtest::gpu::Script;
use tidegate_shared::audit::history::{Effects, Event, Phase, What, check};
use tidegate_shared::audit::{Counts, Replay, dump};
use tidegate_shared::config::{StoreConfig, StoreUrl};
use tidegate_shared::domain::{PoolName, State};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;
use tidegate_tests::{Allow, Options, Rig, job};

const JOBS: u32 = 80;
/// Entries read at once.
const PIECE: usize = 500;

/// Submits while workers die; cancels some jobs, reads along with others. Gives what the client saw.
async fn rough_run(rig: &mut Rig) -> Vec<Event> {
    let mut history = Vec::new();
    let mut note = |op: u64, phase: Phase, what: What| {
        let at_ms = history.len() as u64;
        history.push(Event {
            op,
            client: 1,
            at_ms,
            phase,
            what,
        });
    };
    let submit = |id| What::Submit { key_hash: None, id };
    for n in 0..JOBS {
        let script = match n % 8 {
            0 => Script::tag(format!("n{n}")).sleep_ms(600),
            1 => Script::tag(format!("n{n}")).status(503),
            _ => Script::tag(format!("n{n}")).sleep_ms(30),
        };
        note(u64::from(n), Phase::Invoke, submit(None));
        let id = rig.api.submit(&job(script)).await;
        note(u64::from(n), Phase::Ok, submit(Some(id.parse().unwrap())));
        match n % 8 {
            0 | 2 => {
                let cancel = |state| What::Cancel {
                    id: id.parse().unwrap(),
                    state,
                };
                let op = u64::from(JOBS + n);
                note(op, Phase::Invoke, cancel(None));
                let reply = rig.api.cancel(&id).await.json();
                let state: State = reply["status"].as_str().unwrap().parse().unwrap();
                note(op, Phase::Ok, cancel(Some(state)));
            }
            3 => {
                let along = rig.api.request("GET", &format!("/v1/jobs/{id}/events"));
                drop(along.send().await.unwrap());
            }
            _ => {}
        }
        if n % 20 == 19 {
            rig.kill_worker(0);
            rig.start_worker().await;
        }
    }
    history
}

/// Takes the whole record away, feeds it, and says what was in it.
async fn replayed(store: &Store, pool: &PoolName) -> (Replay, Effects) {
    let (mut replay, mut effects) = (Replay::new(pool.clone()), Effects::default());
    let mut last = 0;
    loop {
        let piece = store.audit(pool, last, PIECE).await.unwrap();
        let Some(newest) = piece.last() else { break };
        last = newest.number;
        for entry in &piece {
            effects.note(&replay.feed(entry).unwrap_or_else(|d| panic!("{d}")));
        }
        store.audit_drop(pool, last).await.unwrap();
    }
    replay.look().unwrap();
    (replay, effects)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_rough_run_replays_to_the_last_key() {
    let options = Options {
        slots: 8,
        max_queued: 500,
        durability: "audit = true".into(),
        max_lost_leases: 5,
        weight: 2,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 1, 3, 2).await;
    let history = rough_run(&mut rig).await;
    let allow = Allow {
        peak_above_slots: 24,
        ..Allow::default()
    };
    rig.settle_check_allowing(allow).await;
    // Nobody changes anything any more: the state that the record ends with is what is there.
    for process in rig.workers.iter_mut().chain(&mut rig.reapers) {
        process.kill();
    }

    let config = StoreConfig {
        url: StoreUrl::new(rig.store.url()),
        ..StoreConfig::default()
    };
    let store = Store::connect(&config, Arc::new(Metrics::new("test")))
        .await
        .unwrap();
    let pool: PoolName = "default".parse().unwrap();
    let (replay, effects) = replayed(&store, &pool).await;
    met_enough(replay.counts());
    let report = check(&history, &effects, replay.state(), false);
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.ok, history.len() as u64 / 2);

    let (mut kept, raw_now_ms) = store.dump(&pool).await.unwrap();
    let mut should = dump::of_reference(replay.state());
    // Workers take it outside any script.
    for side in [&mut kept, &mut should] {
        side.leave_out("marker");
    }
    assert_eq!(dump::difference(&kept, &should, raw_now_ms), None);
}

/// A run in which little happened would prove little.
fn met_enough(counts: &Counts) {
    assert_eq!(counts.accepted, u64::from(JOBS), "{counts:#?}");
    assert_eq!(counts.ended(), u64::from(JOBS), "{counts:#?}");
    assert_eq!(counts.stale_accepted, 0, "{counts:#?}");
    assert!(counts.lapsed > 0, "no worker died with a job: {counts:#?}");
    for step in [
        "renew", "settle", "claim", "cancel", "follow", "expire", "beat", "apply",
    ] {
        assert!(
            counts.steps.get(step).is_some_and(|times| *times > 0),
            "{step}: {counts:#?}"
        );
    }
    assert!(counts.terminals.len() >= 3, "{counts:#?}");
}
