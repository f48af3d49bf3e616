//! A worker that is gone or frozen: its lease ends, another worker gets the job, and whatever the first says or said
//! changes nothing of its successor's.

use std::time::{Duration, Instant};

use tidegate_shared::domain::Verdict;
use tidegate_tests::{HeldDelivery as Held, LONG, SOON, until};

use super::caller::Answer;
use super::cells::{Moment, Outcome};
use super::run::{Bad, Run};
use super::view::{self, View};

/// Pause of the harness's worker between two claims that bring nothing: a lease that ends is noticed at once.
const LOOK: Duration = Duration::from_millis(20);

impl Run<'_> {
    pub(super) async fn kill_worker(&mut self) -> Result<Outcome, Bad> {
        self.caller.kill().await;
        let before_successor = !self.second_order || self.cell.moment != Moment::Sent;
        if before_successor {
            self.let_go().await;
        }
        let ran = self.looks_like(&self.calm.after, "").await.is_ok();
        let successors = self.successors().await?;
        let guarded = self.guarded().await;
        self.let_go().await;
        self.unchanged(&guarded, "by the dead worker").await?;
        self.close(&successors).await?;
        Ok(self.how_it_went(ran).await)
    }

    pub(super) async fn freeze_worker(&mut self) -> Result<Outcome, Bad> {
        self.caller.freeze(true).await;
        let over_ms = self.scene.now_ms().await + self.lease_ms().await;
        let mut successors = self.successors().await?;
        until(LONG, "the lease is over", async || {
            (self.scene.now_ms().await > over_ms).then_some(())
        })
        .await;
        // What was renewed at the last moment ends later.
        successors.extend(self.successors_beside(successors.len()).await?);
        let guarded = self.guarded().await;
        self.thaw().await;
        if self.caller.waits() {
            self.sent_again = matches!(self.caller.answer().await, Answer::Trouble(_));
        }
        // The step itself once more, then everything else that a worker may say of its delivery.
        let ask = self.scene.ask.clone();
        for ask in std::iter::once(ask).chain(self.stale_writes()) {
            let said = self.told(&ask).await?;
            let word = said.split(' ').next().unwrap_or_default();
            if !["lost", "duplicate", "none"].contains(&word) || said.contains("next") {
                return Err(Bad::Wrong(format!("{ask:?} of a stale worker: `{said}`")));
            }
        }
        self.unchanged(&guarded, "by the stale worker").await?;
        self.close(&successors).await?;
        Ok(self.how_it_went(self.cell.moment.has_run()).await)
    }

    async fn lease_ms(&self) -> u64 {
        let def = self.scene.store.pool(&self.scene.pool).await.unwrap();
        def.expect("it has its settings").config.lease_ms
    }

    /// Sends `ask` until it is answered.
    async fn told(&mut self, ask: &tidegate_tests::Ask) -> Result<String, Bad> {
        let mut last = String::new();
        for _ in 0..5 {
            self.caller.tell(ask).await;
            match self.caller.answer().await {
                Answer::Said(said) => return Ok(said),
                Answer::Trouble(what) => last = what,
            }
        }
        Err(Bad::Wrong(format!("{ask:?}: {last}")))
    }

    async fn successors(&self) -> Result<Vec<Held>, Bad> {
        self.successors_beside(0).await
    }

    /// A reaper and a worker of the harness go on until all that runs is the worker's and nothing waits. Gives what it took.
    async fn successors_beside(&self, running: usize) -> Result<Vec<Held>, Bad> {
        let mut taken = Vec::new();
        let started = Instant::now();
        loop {
            self.scene.reap().await;
            while let Some(held) = self.scene.claim().await {
                self.scene.keeps(held.clone());
                taken.push(held);
            }
            let pool = self.scene.store.snapshot(&self.scene.pool).await.unwrap();
            let ours = (running + taken.len()) as u64;
            if pool.slots_used == ours && pool.queued + pool.scheduled == 0 {
                return Ok(taken);
            }
            if started.elapsed() > SOON {
                let what = format!("no other worker got all jobs: {taken:?}, {pool:?}");
                return Err(Bad::Wrong(what));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn guarded(&self) -> View {
        view::exact(&self.scene.store, &self.scene.jobs).await
    }

    async fn unchanged(&self, guarded: &View, by: &str) -> Result<(), Bad> {
        match view::difference(guarded, &self.guarded().await).as_str() {
            "" => Ok(()),
            what => Err(Bad::Wrong(format!("changed {by}:{what}"))),
        }
    }

    async fn close(&self, successors: &[Held]) -> Result<(), Bad> {
        for held in successors {
            let settle = held.settle(Verdict::Succeed, None);
            let reply = self.scene.store.settle(&settle).await.unwrap();
            if reply.tag != tidegate_shared::protocol::SettleTag::Settled {
                return Err(Bad::Wrong(format!("the successor's settle: {reply:?}")));
            }
        }
        Ok(())
    }

    /// From the record: a lease that ended was another's from then on; a step that ran before that ran once.
    async fn how_it_went(&self, ran: bool) -> Outcome {
        let pool = self.scene.store.snapshot(&self.scene.pool).await.unwrap();
        if pool.lapsed > 0 {
            Outcome::TakenOver
        } else if ran {
            self.outcome()
        } else {
            Outcome::NotDone
        }
    }
}
