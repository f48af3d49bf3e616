//! Stopping in two stages, and tasks that are never orphans.
//!
//! The first signal starts the *drain*: no new work, what runs may finish. The second signal, or the end of the drain's
//! time, is the *abort*: leave now. An abort always implies a drain.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A cloneable handle on the process's two stages of stopping; all clones share one state.
#[derive(Clone, Debug)]
pub struct Shutdown {
    drain: CancellationToken,
    abort: CancellationToken,
}

impl Shutdown {
    /// A handle that only its own methods move: for tests, and for a role inside another process.
    pub fn manual() -> Self {
        Self {
            drain: CancellationToken::new(),
            abort: CancellationToken::new(),
        }
    }

    /// A handle driven by SIGTERM and SIGINT: the first drains, the second aborts.
    ///
    /// The signals are taken over when this returns, not when the task behind it first runs, so an early signal is not
    /// lost. That task ends with the second signal or with [`Shutdown::abort`]; `tasks` tracks it.
    ///
    /// # Errors
    /// When the process may not install a signal handler.
    pub fn on_signals(tasks: &Tasks) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = Self::manual();
        let stages = shutdown.clone();
        tasks.spawn(async move {
            loop {
                let name = tokio::select! {
                    Some(()) = terminate.recv() => "SIGTERM",
                    Some(()) = interrupt.recv() => "SIGINT",
                    () = stages.aborted() => return,
                    else => return,
                };
                if stages.is_draining() {
                    tracing::warn!(signal = name, "second signal: leaving now");
                    stages.abort();
                    return;
                }
                tracing::info!(signal = name, "draining; a second signal leaves at once");
                stages.start_drain();
            }
        });
        Ok(shutdown)
    }

    /// Starts the drain; again is no different.
    pub fn start_drain(&self) {
        self.drain.cancel();
    }

    /// Leaves now; starts the drain too, so that whoever waits for either wakes.
    pub fn abort(&self) {
        self.drain.cancel();
        self.abort.cancel();
    }

    /// Whether the drain has started.
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Whether everything is to be left now.
    pub fn is_aborted(&self) -> bool {
        self.abort.is_cancelled()
    }

    /// Returns once the drain has started, at once if it already has.
    pub async fn draining(&self) {
        self.drain.cancelled().await;
    }

    /// Returns once everything is to be left, at once if that is so already.
    pub async fn aborted(&self) {
        self.abort.cancelled().await;
    }

    /// Returns `limit` after the drain has started, or at an abort: the time at which a drain gives up. `limit` is the
    /// role's `drain_ms`. Does not abort by itself.
    pub async fn drain_over(&self, limit: Duration) {
        self.draining().await;
        tokio::select! {
            () = tokio::time::sleep(limit) => {}
            () = self.aborted() => {}
        }
    }
}

/// Every task of a role: spawned here, and waited for here.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
}

/// Tasks that did not end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{left} tasks did not end in time")]
pub struct TasksLeft {
    /// How many still ran.
    pub left: usize,
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `task` on the current runtime and keeps track of it.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(task)
    }

    /// How many tasks run now.
    pub fn len(&self) -> usize {
        self.tracker.len()
    }

    /// Whether no task runs now.
    pub fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }

    /// Waits until every task has ended, for at most `limit`. Tasks may still be spawned meanwhile and are waited for
    /// too.
    ///
    /// # Errors
    /// [`TasksLeft`] when some still run at the limit; they go on running.
    pub async fn close_and_wait(&self, limit: Duration) -> Result<(), TasksLeft> {
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait())
            .await
            .map_err(|_| TasksLeft {
                left: self.tracker.len(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_drain_wakes_every_clone_and_aborts_none() {
        let shutdown = Shutdown::manual();
        let waiter = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.draining().await }
        });
        assert!(!shutdown.is_draining());
        shutdown.start_drain();
        waiter.await.expect("the waiter ends");
        assert!(shutdown.is_draining());
        assert!(!shutdown.is_aborted());
    }

    #[tokio::test]
    async fn an_abort_is_a_drain_too() {
        let shutdown = Shutdown::manual();
        shutdown.abort();
        shutdown.draining().await;
        shutdown.aborted().await;
    }

    #[tokio::test]
    async fn a_drain_is_over_at_its_limit_or_at_an_abort() {
        let shutdown = Shutdown::manual();
        shutdown.start_drain();
        shutdown.drain_over(Duration::ZERO).await;
        assert!(!shutdown.is_aborted(), "giving up is the caller's decision");
        let waiter = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.drain_over(LONG).await }
        });
        shutdown.abort();
        tokio::time::timeout(LONG / 2, waiter)
            .await
            .expect("an abort ends the wait")
            .expect("no panic");
    }

    #[tokio::test]
    async fn closing_waits_for_every_task_and_counts_those_left_over() {
        let tasks = Tasks::new();
        let shutdown = Shutdown::manual();
        for _ in 0..2 {
            let shutdown = shutdown.clone();
            tasks.spawn(async move { shutdown.draining().await });
        }
        assert_eq!(
            tasks.close_and_wait(Duration::ZERO).await,
            Err(TasksLeft { left: 2 })
        );
        shutdown.start_drain();
        assert_eq!(tasks.close_and_wait(LONG).await, Ok(()));
        assert!(tasks.is_empty());
    }

    #[tokio::test]
    async fn the_task_behind_the_signals_ends_with_an_abort() {
        let tasks = Tasks::new();
        let shutdown = Shutdown::on_signals(&tasks).expect("handlers install");
        assert_eq!(tasks.len(), 1);
        shutdown.abort();
        assert_eq!(tasks.close_and_wait(LONG).await, Ok(()));
    }

    #[tokio::test]
    async fn the_first_signal_drains_and_the_second_leaves() {
        let tasks = Tasks::new();
        let shutdown = Shutdown::on_signals(&tasks).expect("handlers install");
        let signal = |name: &str| {
            let line = format!("kill -{name} {}", std::process::id());
            let status = std::process::Command::new("sh")
                .args(["-c", &line])
                .status();
            assert!(status.expect("sh runs").success());
        };
        signal("TERM");
        tokio::time::timeout(LONG, shutdown.draining())
            .await
            .expect("SIGTERM drains");
        assert!(!shutdown.is_aborted());
        signal("INT");
        tokio::time::timeout(LONG, shutdown.aborted())
            .await
            .expect("SIGINT after it leaves");
        assert_eq!(tasks.close_and_wait(LONG).await, Ok(()));
    }
}
