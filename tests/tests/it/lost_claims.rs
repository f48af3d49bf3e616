//! Case 8: a claim whose answer was lost, and workers that stop all the time, strand no job.

use std::time::Duration;

use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, Direction, Options, Rig, SOON, job};
use tokio::time::{Instant, sleep_until};

use crate::common::{DELIVERIES, LEASE, PASS, lapses_are_counted, outcomes};

const JOBS: u32 = 300;
const SPAN: Duration = Duration::from_secs(20);
const EVERY: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn lost_claims_cut_connections_and_stopping_workers_strand_no_job() {
    let options = Options {
        slots: 8,
        max_queued: 1_000,
        through_proxy: true,
        // A reset that meets two renewals in a row loses leases without a fault of the job.
        max_lost_leases: 10,
        weight: 3,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 4, 2).await;
    let start = Instant::now();
    let api = rig.api.clone();
    let submits = tokio::spawn(async move {
        for n in 0..JOBS {
            sleep_until(start + SPAN * n / JOBS).await;
            let submission = job(Script::tag(format!("n{n}")).sleep_ms(20_u64));
            // A cut store is a 503 to the caller, who sends again with the same key.
            api.submit_until_stored(&format!("key-{n}"), &submission)
                .await;
        }
    });
    let mut stopping = Vec::new();
    let mut turn = 0_u32;
    while start.elapsed() < SPAN {
        turn += 1;
        sleep_until(start + EVERY * turn).await;
        rig.proxy.lose_next(3, Direction::Reply, DELIVERIES);
        if turn.is_multiple_of(5) {
            rig.proxy.reset_all();
        }
        stopping.push(rig.stop_worker(0));
        rig.start_worker().await;
    }
    submits.await.unwrap();
    for at in stopping {
        let status = rig.gone[at].ended(SOON).await;
        assert!(
            status.success(),
            "{}: {status}\n{}",
            rig.gone[at].label,
            rig.gone[at].tail()
        );
    }
    let allow = Allow {
        peak_above_slots: 4,
        ..Allow::default()
    };
    let ended = rig.settle_check_allowing(allow).await;
    assert_eq!(
        ended.into_iter().collect::<Vec<_>>(),
        [("succeeded".to_owned(), 300)]
    );
    assert!(rig.proxy.lost() >= 20, "{} claims lost", rig.proxy.lost());

    let mut all_lost = 0;
    for id in rig.api.accepted() {
        let done = rig.api.get(&id).await;
        assert_eq!(done["attempts"], 1, "{done:#}");
        all_lost += outcomes(&done).iter().filter(|o| *o == "lost").count();
        // Beyond its turn a job waits a lease and two passes for each delivery that was lost.
        let lost = outcomes(&done).len() - 1;
        let took =
            done["finished_at_ms"].as_u64().unwrap() - done["created_at_ms"].as_u64().unwrap();
        let bound = (LEASE + PASS * 2) * u32::try_from(lost + 1).unwrap() + Duration::from_secs(2);
        assert!(Duration::from_millis(took) <= bound, "{took} ms: {done:#}");
    }
    lapses_are_counted(&rig, all_lost).await;
}
