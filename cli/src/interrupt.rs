//! Bounds of a client command: Ctrl-C and `--timeout`.

use std::future::Future;

use crate::exit::Failure;
use crate::globals::Globals;

/// Runs a client command until it is over, Ctrl-C or the time is up.
pub(crate) async fn client(
    globals: &Globals,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    bounded(globals, async {
        tokio::select! {
            done = command => done,
            failure = interrupted() => Err(failure),
        }
    })
    .await
}

/// Runs a command that looks for Ctrl-C itself, until it is over or the time is up.
pub(crate) async fn bounded(
    globals: &Globals,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let Some(limit) = globals.timeout else {
        return command.await;
    };
    tokio::time::timeout(limit, command)
        .await
        .unwrap_or_else(|_| {
            Err(Failure::TimedOut(format!(
                "not over after {} s (--timeout)",
                limit.as_secs_f64()
            )))
        })
}

/// Returns at Ctrl-C.
pub(crate) async fn interrupted() -> Failure {
    match tokio::signal::ctrl_c().await {
        Ok(()) => Failure::Interrupted("interrupted".into()),
        Err(error) => Failure::Error(format!("cannot listen for Ctrl-C: {error}")),
    }
}
