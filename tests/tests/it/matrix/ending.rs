//! The end of every cell, whatever happened in it: all jobs end, nothing is held, and the record of everything that the
//! store did agrees with the reference.

use tidegate_shared::audit::{Counts, Replay};
use tidegate_shared::doctor::{self, Status};
use tidegate_shared::domain::{PoolName, State, Verdict};
use tidegate_shared::protocol::{Pause, Read, ReadReply, SettleTag};
use tidegate_shared::store::Store;
use tidegate_tests::{HeldDelivery as Held, LONG, until};

use super::run::{Bad, Run};
use super::scene::Scene;
use super::view;

/// Entries of one cell's record: a sign of life each 50 ms, and a few dozen steps.
pub(super) const ENTRIES: usize = 20_000;

/// Ends the cell.
pub(super) async fn end(run: &mut Run<'_>) -> Result<Counts, Bad> {
    let Scene { store, pool, .. } = &run.scene;
    let resume = Pause {
        pool: pool.clone(),
        paused: Some(false),
        draining: None,
    };
    store.pause(&resume).await.unwrap();
    everything_ends(&run.scene).await?;
    let counts = store.snapshot(pool).await.unwrap();
    let held = [
        ("slots", counts.slots_used),
        ("waiting", counts.queued + counts.scheduled),
        ("bytes", counts.owed_bytes),
        ("owed", counts.jobs - counts.ended - counts.dead),
    ];
    if let Some(what) = held.iter().find(|(_, n)| *n != 0) {
        return Err(Bad::Wrong(format!("held at the end: {what:?}")));
    }
    each_job_ended(&run.scene).await?;
    doctor_is_content(store).await?;
    replayed(store, pool).await
}

/// Deliveries end by whoever has them; a reaper and a worker go on until nothing is owed.
async fn everything_ends(scene: &Scene) -> Result<(), Bad> {
    for id in &scene.jobs {
        let Some(fact) = view::fact(&scene.store, id).await else {
            continue;
        };
        let field = |name: &str| fact.fields.get(name).cloned().unwrap_or_default();
        if field("state") == "running" {
            close(
                scene,
                &Held {
                    id: id.clone(),
                    fence: field("fence").parse().unwrap(),
                    owner: field("owner"),
                },
            )
            .await?;
        }
    }
    until(LONG, "nothing is owed", async || {
        scene.reap().await;
        if let Some(held) = scene.claim().await {
            close(scene, &held).await.unwrap();
        }
        let pool = scene.store.snapshot(&scene.pool).await.unwrap();
        (pool.jobs == pool.ended + pool.dead).then_some(())
    })
    .await;
    Ok(())
}

async fn close(scene: &Scene, held: &Held) -> Result<(), Bad> {
    let settle = held.settle(Verdict::Succeed, None);
    let reply = scene.store.settle(&settle).await.unwrap();
    match reply.tag {
        SettleTag::Settled | SettleTag::Cancelled => Ok(()),
        other => Err(Bad::Wrong(format!("its last settle is {other:?}"))),
    }
}

/// Each job has one terminal, and an answer where it says so; a purged one is gone.
async fn each_job_ended(scene: &Scene) -> Result<(), Bad> {
    for id in &scene.jobs {
        let read = Read {
            id: id.clone(),
            tenant: None,
        };
        let ReadReply::Job { job, .. } = scene.store.read(&read).await.unwrap() else {
            continue; // the replay knows whether it was purged
        };
        let result = scene.store.result(id).await.unwrap();
        let has_answer = result.as_deref() == Some(tidegate_tests::RESULT);
        if !job.state.is_terminal() || has_answer != (job.state == State::Succeeded) {
            let what = format!("{id} is {}, its answer {result:?}", job.state);
            return Err(Bad::Wrong(what));
        }
    }
    Ok(())
}

async fn doctor_is_content(store: &Store) -> Result<(), Bad> {
    let findings = doctor::examine(store, None).await;
    assert!(!findings.is_empty(), "doctor looked at nothing");
    let bad: Vec<_> = findings
        .iter()
        .filter(|finding| finding.status != Status::Pass)
        .collect();
    if bad.is_empty() {
        Ok(())
    } else {
        Err(Bad::Wrong(format!("doctor: {bad:#?}")))
    }
}

/// The record through the reference, and what must be true of any record.
async fn replayed(store: &Store, pool: &PoolName) -> Result<Counts, Bad> {
    let mut replay = Replay::new(pool.clone());
    for entry in store.audit(pool, 0, ENTRIES).await.unwrap() {
        replay
            .feed(&entry)
            .map_err(|divergence| Bad::Wrong(divergence.to_string()))?;
    }
    replay.look().map_err(Bad::Wrong)?;
    let counts = replay.counts();
    let once = counts.accepted + counts.requeued == counts.ended();
    if !once || counts.stale_accepted != 0 || counts.owners_again != 0 {
        return Err(Bad::Wrong(format!("the record: {counts:#?}")));
    }
    Ok(counts.clone())
}
