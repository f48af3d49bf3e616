//! `tidegate-loadtest`: one subcommand per tool, each in its own module.

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a measurement: each task is awaited where it is started, and a table nobody reads may end it"
)]
mod bench;
mod gpu_cmd;

use clap::{Parser, Subcommand};

/// Load and test tools for Tidegate.
#[derive(Debug, Parser)]
#[command(name = "tidegate-loadtest", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the simulated GPU server until SIGTERM or SIGINT.
    Gpu(gpu_cmd::Args),
    /// Measure the store beside the bare-script floor of the same server.
    Bench(bench::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Gpu(args) => gpu_cmd::run(args).await,
        Command::Bench(args) => bench::run(args).await,
    }
}
