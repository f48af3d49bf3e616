//! The main promise: whatever dies, every accepted job ends, once.

use std::time::Duration;

use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, Layout, Options, Rig, job};
use tokio::time::{Instant, sleep_until};

use crate::common::{lapses_are_counted, outcomes};

const JOBS: u32 = 1_000;
const KILLS: u32 = 30;
const SECOND: Duration = Duration::from_secs(1);

/// Jobs are short, 20 to 40 ms: a job that died with three workers would be poison by the rule, and must be so unlikely
/// by chance that it never shows.
fn script(n: u32) -> Script {
    Script::tag(format!("n{n}")).sleep_ms(u64::from(20 + n % 21))
}

/// A thousand jobs within half a minute, in which a worker is killed every second; in the middle `failover`.
async fn a_thousand_jobs(options: Options, failover: bool) -> Rig {
    let options = Options {
        slots: 16,
        max_queued: 2_000,
        concurrency: 3,
        weight: 3,
        ..options
    };
    let mut rig = Rig::start(options, 2, 3, 2).await;
    let start = Instant::now();
    let api = rig.api.clone();
    let submits = tokio::spawn(async move {
        for n in 0..JOBS {
            sleep_until(start + (SECOND * KILLS) * n / JOBS).await;
            if failover {
                let key = format!("n{n}");
                api.submit_until_stored(&key, &job(script(n))).await;
            } else {
                api.submit(&job(script(n))).await;
            }
        }
    });
    for kill in 1..=KILLS {
        // Not in step with the submissions.
        sleep_until(start + SECOND * kill + Duration::from_millis(u64::from(kill * 37 % 100)))
            .await;
        if failover && kill == KILLS / 2 {
            rig.lose_primary().await;
        }
        let victim = usize::try_from(kill).unwrap() % rig.workers.len();
        rig.kill_worker(victim);
        rig.start_worker().await;
    }
    submits.await.unwrap();
    rig
}

/// Every job ended once, with success, and nothing is left. Gives how many deliveries were lost.
async fn all_succeeded(rig: &mut Rig) -> usize {
    let allow = Allow {
        peak_above_slots: 16,
        ..Allow::default()
    };
    let ended = rig.settle_check_allowing(allow).await;
    assert_eq!(
        ended.into_iter().collect::<Vec<_>>(),
        [("succeeded".to_owned(), 1_000)]
    );
    let mut lost = 0;
    for id in rig.api.accepted() {
        let done = rig.api.get(&id).await;
        let outcomes = outcomes(&done);
        let (last, before) = outcomes.split_last().unwrap();
        assert_eq!(last, "succeed", "{done:#}");
        assert!(before.iter().all(|o| o == "lost"), "{done:#}");
        assert_eq!(done["attempts"], 1, "{done:#}");
        lost += before.len();
    }
    assert!(lost > 0, "no kill met a running job: nothing was tried");
    assert_eq!(rig.pool().await["dead"], 0);
    lost
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_survive_a_worker_killed_every_second() {
    let options = Options {
        layout: Layout::asked(),
        ..Options::default()
    };
    let mut rig = a_thousand_jobs(options, false).await;
    let lost = all_succeeded(&mut rig).await;
    lapses_are_counted(&rig, lost).await;
}

/// By agreement, so that the heir has every write: what a cluster itself may lose is no matter of ours.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_survive_killed_workers_and_a_failover_of_a_cluster() {
    let options = Options {
        layout: Layout::Cluster,
        ..Options::default()
    };
    let mut rig = a_thousand_jobs(options, true).await;
    all_succeeded(&mut rig).await;
}

/// The primary is killed. What was shown is held by both replicas: Sentinel goes by what it last heard of them, and may
/// promote the one that has less.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_survive_killed_workers_and_a_killed_primary_behind_sentinel() {
    let options = Options {
        layout: Layout::Sentinel,
        durability: "durability = \"replicated\"\nreplicas = 2".into(),
        ..Options::default()
    };
    let mut rig = a_thousand_jobs(options, true).await;
    all_succeeded(&mut rig).await;
}
