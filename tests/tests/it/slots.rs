//! The slots of a pool bound what its model servers see, however many workers there are.

use std::time::Duration;

use tidegate_loadtest::gpu::Script;
use tidegate_tests::{LONG, Options, Rig, job};

use crate::common::ran_just_once;

const JOBS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn many_idle_workers_together_use_every_slot_and_none_more() {
    let mut rig = Rig::start(Options::default(), 2, 4, 1).await;
    let mut ids = Vec::new();
    for n in 0..JOBS {
        let script = Script::tag(format!("n{n}")).sleep_ms(150_u64);
        ids.push(rig.api.submit(&job(script)).await);
    }
    for id in &ids {
        ran_just_once(&rig.api.ends(id, LONG).await);
    }
    assert_eq!(rig.gpu.peak(), 4);
    // A slot is handed on at once: the whole takes little more than the model needs.
    let calls = rig.gpu.calls();
    let first = calls.iter().map(|c| c.arrived_ms).min().unwrap();
    let last = calls.iter().filter_map(|c| c.finished_ms).max().unwrap();
    let took = Duration::from_millis(last - first);
    let needed = Duration::from_millis(150) * u32::try_from(JOBS / 4).unwrap();
    assert!(took < needed * 2, "{took:?} for {needed:?} of work");
    rig.settle_check().await;
}
