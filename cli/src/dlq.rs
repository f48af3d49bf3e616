//! `tidegate dlq`: dead letters, for the person who decides about them.

use clap::Args;
use serde_json::Value;

use crate::backend::{Backend, Request, encode};
use crate::exit::Failure;
use crate::globals::Globals;
use crate::output::{self, Column, column, wide};
use crate::page::{self, PageArgs};
use crate::{dlq_bulk, interrupt, text};

/// Commands of `dlq`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List dead letters, newest first.
    List(ListArgs),
    /// Print one dead letter with its request.
    Show(One),
    /// Give dead letters a new life.
    Requeue(dlq_bulk::Args),
    /// Remove dead letters for good.
    Purge(dlq_bulk::Args),
}

/// Which dead letters are listed.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Of this pool.
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// In this status; a dead letter is always `failed`.
    #[arg(long, value_name = "STATUS", value_parser = ["failed"])]
    status: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

/// One dead letter by its id.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Id of the dead letter.
    #[arg(value_name = "ID")]
    id: String,
}

const COLUMNS: &[Column] = &[
    column("ID", |job| text::cell(&job["id"])),
    column("REASON", |job| text::cell(&job["reason"])),
    column("ERROR", |job| text::cell(&job["error"]["code"])),
    column("POOL", |job| text::cell(&job["pool"])),
    column("MODEL", |job| text::cell(&job["model"])),
    wide("TENANT", |job| text::cell(&job["tenant"])),
    column("ATTEMPTS", |job| text::cell(&job["attempts"])),
    column("DIED", |job| text::time(&job["died_at_ms"])),
    wide("WORKERS", |job| text::cell(&job["workers"])),
    wide("MESSAGE", |job| text::cell(&job["error"]["message"])),
];

/// List of the dead letters.
pub(crate) const PATH: &str = "/v1/dead-letters";

/// Path of a dead letter.
pub(crate) fn path(id: &str) -> String {
    format!("{PATH}/{}", encode(id))
}

/// Runs a command of `dlq`. Those that act say how far they came, so they look themselves when to stop.
pub(crate) async fn run(command: Command, globals: &Globals) -> Result<(), Failure> {
    match command {
        Command::List(args) => {
            let filters = vec![("pool", args.pool), ("tenant", args.tenant)];
            let list = page::print(globals, COLUMNS, PATH, filters, &args.page);
            interrupt::client(globals, list).await
        }
        Command::Show(One { id }) => interrupt::client(globals, show(&id, globals)).await,
        Command::Requeue(args) => dlq_bulk::run(dlq_bulk::Action::Requeue, args, globals).await,
        Command::Purge(args) => dlq_bulk::run(dlq_bulk::Action::Purge, args, globals).await,
    }
}

async fn show(id: &str, globals: &Globals) -> Result<(), Failure> {
    let backend = Backend::open(globals).await?;
    let (letter, text) = backend.exact(Request::get(path(id))).await?;
    output::exact(globals.output, &letter, &text)
}

/// One dead letter as a value of the API, for the filter.
pub(crate) type Letter = Value;
