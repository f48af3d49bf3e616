//! `tidegate worker list`.

use serde_json::Value;

use crate::backend::{Backend, Request, query};
use crate::exit::Failure;
use crate::globals::Globals;
use crate::output::{Column, column, wide};
use crate::{page, text};

/// Commands of the noun `worker`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the workers that are here.
    List(ListArgs),
}

/// Which workers are listed.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Those that serve this pool.
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
}

const COLUMNS: &[Column] = &[
    column("ID", |worker| text::cell(&worker["id"])),
    column("NAME", |worker| text::cell(&worker["name"])),
    column("POOLS", |worker| text::cell(&worker["pools"])),
    column("RUNNING", |worker| text::cell(&worker["running"])),
    column("CONCURRENCY", |worker| text::cell(&worker["concurrency"])),
    column("STATE", state),
    column("STARTED", |worker| text::time(&worker["started_at_ms"])),
    wide("SEEN", |worker| text::time(&worker["seen_at_ms"])),
    wide("VERSION", |worker| text::cell(&worker["version"])),
    wide("JOBS", |worker| text::cell(&worker["job_ids"])),
];

fn state(worker: &Value) -> String {
    if worker["draining"] == true {
        "draining"
    } else {
        "open"
    }
    .into()
}

/// Runs a command of the noun `worker`.
pub(crate) async fn run(command: Command, globals: &Globals) -> Result<(), Failure> {
    let Command::List(args) = command;
    let backend = Backend::open(globals).await?;
    page::print_whole(globals, COLUMNS, async || {
        let path = query("/v1/workers", &[("pool", args.pool.clone())]);
        let list = backend.json(Request::get(path)).await?;
        Ok(list["data"].as_array().cloned().unwrap_or_default())
    })
    .await
}
