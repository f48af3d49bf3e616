//! Bounds of a client command: Ctrl-C and `--timeout`.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::exit::Failure;
use crate::globals::Globals;

/// When a command is to stop early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    limit: Option<Duration>,
    start: Instant,
}

impl Stop {
    /// From now on, within `--timeout`.
    pub(crate) fn new(globals: &Globals) -> Self {
        Self {
            limit: globals.timeout,
            start: Instant::now(),
        }
    }

    /// Returns at Ctrl-C, and when the time is up.
    pub(crate) async fn asked(self) -> Failure {
        let over = async {
            match self.limit {
                Some(limit) => {
                    tokio::time::sleep_until(self.start + limit).await;
                    let seconds = limit.as_secs_f64();
                    Failure::TimedOut(format!("not over after {seconds} s (--timeout)"))
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            failure = over => failure,
            pressed = tokio::signal::ctrl_c() => match pressed {
                Ok(()) => Failure::Interrupted("interrupted".into()),
                Err(error) => Failure::Error(format!("cannot listen for Ctrl-C: {error}")),
            },
        }
    }
}

/// Runs a client command until it is over or is to stop.
pub(crate) async fn client(
    globals: &Globals,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let stop = Stop::new(globals);
    tokio::select! {
        done = command => done,
        failure = stop.asked() => Err(failure),
    }
}
