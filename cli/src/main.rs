//! `tidegate`: every role and every operator's command in one program.

mod backend;
mod completions;
mod config_cmd;
mod demo;
mod dev;
mod dlq;
mod dlq_bulk;
mod dlq_filter;
mod doctor;
mod exit;
mod follow;
mod globals;
mod interrupt;
mod job;
mod job_submit;
mod key;
mod output;
mod page;
mod pool;
mod pretty;
mod role;
mod store;
mod text;
mod upstream;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use exit::Failure;
use globals::Globals;
use tidegate_shared::telemetry::Guard;

/// A durable, fenced queue in front of self-hosted GPU pools that speak the OpenAI API.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, propagate_version = true)]
#[command(
    after_help = "Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 not allowed, 5 refused or partly done, \
6 unreachable, 124 timed out, 130 interrupted."
)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the HTTP front.
    Ingress(role::Args),
    /// Run a worker, which calls the model servers.
    Worker(WorkerArgs),
    /// Run a reaper, which gives back what dead workers held.
    Reaper(role::Args),
    /// Run everything in one process, with a store of its own.
    Dev(dev::Args),
    /// Submit, read and cancel jobs.
    #[command(subcommand)]
    Job(job::Command),
    /// Look at dead letters; requeue or purge them.
    #[command(subcommand)]
    Dlq(dlq::Command),
    /// Look at pools, and steer them.
    #[command(subcommand)]
    Pool(pool::Command),
    /// Create, list and revoke API keys. Straight to the store.
    #[command(subcommand)]
    Key(key::Command),
    /// Check the server, the settings and the invariants. Straight to the store.
    Doctor(doctor::Args),
    /// Check a configuration file, or show the effective settings.
    #[command(subcommand)]
    Config(config_cmd::Command),
    /// Print a completion script for a shell.
    Completions(completions::Args),
}

/// `tidegate worker` runs the role, `tidegate worker list` looks at the running ones.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct WorkerArgs {
    #[command(flatten)]
    role: role::Args,
    #[command(subcommand)]
    command: Option<worker::Command>,
}

/// How long blocking threads may take at the end: one may hang on a terminal or a name server.
const RUNTIME_STOP: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help that nobody reads to the end is no error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("tidegate: cannot start: {error}"));
            return ExitCode::from(1);
        }
    };
    let mut telemetry = None;
    let done = runtime.block_on(run(cli, &mut telemetry));
    runtime.shutdown_timeout(RUNTIME_STOP);
    // Outside the runtime: sending the last spans blocks this thread.
    drop(telemetry);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let said = failure.to_string();
            if !said.is_empty() {
                output::note(&format!("tidegate: {said}"));
            }
            ExitCode::from(failure.code())
        }
    }
}

async fn run(cli: Cli, telemetry: &mut Option<Guard>) -> Result<(), Failure> {
    use tidegate_shared::config::Role;
    let Cli { globals, command } = cli;
    match command {
        Command::Ingress(args) => role::run(Role::Ingress, args, &globals, telemetry).await,
        Command::Worker(WorkerArgs {
            role,
            command: None,
        }) => role::run(Role::Worker, role, &globals, telemetry).await,
        Command::Reaper(args) => role::run(Role::Reaper, args, &globals, telemetry).await,
        Command::Dev(args) => dev::run(args, &globals, telemetry).await,
        Command::Completions(args) => {
            completions::run(&args, <Cli as clap::CommandFactory>::command())
        }
        Command::Config(command) => config_cmd::run(command, &globals),
        Command::Dlq(command) => dlq::run(command, &globals).await,
        Command::Job(command) => interrupt::client(&globals, job::run(command, &globals)).await,
        Command::Pool(command) => interrupt::client(&globals, pool::run(command, &globals)).await,
        Command::Worker(WorkerArgs {
            command: Some(command),
            ..
        }) => interrupt::client(&globals, worker::run(command, &globals)).await,
        Command::Doctor(args) => interrupt::client(&globals, doctor::run(args, &globals)).await,
        Command::Key(command) => interrupt::client(&globals, key::run(command, &globals)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_worker_is_a_role_or_a_noun() {
        let role = Cli::try_parse_from(["tidegate", "worker", "--listen", "127.0.0.1:0"]);
        assert!(matches!(
            role.expect("parses").command,
            Command::Worker(WorkerArgs { command: None, .. })
        ));
        let list = Cli::try_parse_from(["tidegate", "worker", "list", "-o", "json"]);
        assert!(matches!(
            list.expect("parses").command,
            Command::Worker(WorkerArgs {
                command: Some(_),
                ..
            })
        ));
    }
}
