//! `tidegate pool`: GPU capacity as operators see and steer it.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tidegate_shared::config::PoolsFile;

use crate::backend::{Backend, Request, encode};
use crate::exit::Failure;
use crate::globals::Globals;
use crate::output::{self, Column, Printer, column, note, wide};
use crate::{page, text};

/// Commands of `pool`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List pools with their counts.
    List,
    /// Print one pool with its settings.
    Show(One),
    /// Give the pools of a file their settings.
    Apply(ApplyArgs),
    /// Hand out no more jobs; what runs goes on.
    Pause(One),
    /// Hand out and take in jobs again.
    Resume(One),
    /// Take in no more jobs; what is owed is done.
    Drain(One),
    /// Print what is owed, as an autoscaler reads it.
    Demand(One),
}

/// One pool by its name.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Name of the pool.
    #[arg(value_name = "POOL")]
    pool: String,
}

/// What is applied.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// A configuration file; its [pools.*] are applied.
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Only say what would change.
    #[arg(long)]
    dry_run: bool,
}

const COLUMNS: &[Column] = &[
    column("POOL", |pool| text::cell(&pool["id"])),
    column("STATE", state),
    column("SLOTS", |pool| {
        format!(
            "{}/{}",
            text::cell(&pool["slots_used"]),
            text::cell(&pool["slots"])
        )
    }),
    column("QUEUED", |pool| text::cell(&pool["queued"])),
    column("SCHEDULED", |pool| text::cell(&pool["scheduled"])),
    column("RUNNING", |pool| text::cell(&pool["running"])),
    column("DEAD", |pool| text::cell(&pool["dead"])),
    column("WORKERS", |pool| text::cell(&pool["workers"])),
    column("OLDEST", |pool| {
        pool["oldest_age_ms"]
            .as_u64()
            .map_or_else(|| "-".into(), text::span_ms)
    }),
    wide("VERSION", |pool| text::cell(&pool["version"])),
    wide("MODELS", |pool| text::cell(&pool["models"])),
    wide("BACKENDS", |pool| text::cell(&pool["backends"])),
];

fn state(pool: &Value) -> String {
    match (pool["paused"] == true, pool["draining"] == true) {
        (true, true) => "paused, draining",
        (true, false) => "paused",
        (false, true) => "draining",
        (false, false) => "open",
    }
    .into()
}

fn path(pool: &str) -> String {
    format!("/v1/pools/{}", encode(pool))
}

/// Runs a command of `pool`.
pub(crate) async fn run(command: Command, globals: &Globals) -> Result<(), Failure> {
    let backend = Backend::open(globals).await?;
    let switch = async |pool: &str, verb: &str| {
        let pool = backend
            .json(Request::post(format!("{}/{verb}", path(pool))))
            .await?;
        Printer::new(globals.output, COLUMNS).one(&pool)
    };
    match command {
        Command::List => {
            page::print_whole(globals, COLUMNS, async || {
                let list = backend.json(Request::get("/v1/pools")).await?;
                Ok(list["data"].as_array().cloned().unwrap_or_default())
            })
            .await
        }
        Command::Show(One { pool }) => output::detail(
            globals.output,
            &backend.json(Request::get(path(&pool))).await?,
        ),
        Command::Demand(One { pool }) => {
            let demand = backend
                .json(Request::get(format!("{}/demand", path(&pool))))
                .await?;
            output::detail(globals.output, &demand)
        }
        Command::Apply(args) => apply(&backend, &args, globals).await,
        Command::Pause(One { pool }) => switch(&pool, "pause").await,
        Command::Resume(One { pool }) => switch(&pool, "resume").await,
        Command::Drain(One { pool }) => switch(&pool, "drain").await,
    }
}

/// What an apply does to one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Create,
    Update,
    None,
}

/// What would change, by the settings alone.
fn change(now: Option<&Value>, wanted: &Value) -> Change {
    let Some(now) = now else {
        return Change::Create;
    };
    let same = wanted
        .as_object()
        .into_iter()
        .flatten()
        .all(|(name, value)| now.get(name) == Some(value));
    if same { Change::None } else { Change::Update }
}

async fn apply(backend: &Backend, args: &ApplyArgs, globals: &Globals) -> Result<(), Failure> {
    let file = PoolsFile::load(&args.file)?;
    let mut applied = Vec::new();
    for (name, pool) in &file.pools {
        let wanted = serde_json::to_value(pool).expect("settings always serialise");
        let now = match backend.json(Request::get(path(name))).await {
            Ok(now) => Some(now),
            Err(Failure::NotFound(_)) => None,
            Err(failure) => return Err(failure),
        };
        let change = change(now.as_ref(), &wanted);
        let word = match change {
            Change::Create => "created",
            Change::Update => "updated",
            Change::None => "unchanged",
        };
        let mut version = now
            .as_ref()
            .map_or(Value::Null, |now| now["version"].clone());
        if !args.dry_run {
            let put = Request::put(path(name)).json(wanted.to_string().into_bytes());
            version = backend.json(put).await?["version"].clone();
        }
        applied
            .push(json!({"id": name, "change": word, "version": version, "dry_run": args.dry_run}));
    }
    if args.dry_run {
        note("dry run: nothing was changed");
    }
    const APPLIED: &[Column] = &[
        column("POOL", |row| text::cell(&row["id"])),
        column("CHANGE", |row| text::cell(&row["change"])),
        column("VERSION", |row| text::cell(&row["version"])),
    ];
    Printer::new(globals.output, APPLIED).list(&applied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_decide_whether_a_pool_changes() {
        let now = json!({"id": "a", "slots": 2, "queued": 7});
        assert_eq!(change(None, &json!({"slots": 2})), Change::Create);
        assert_eq!(change(Some(&now), &json!({"slots": 2})), Change::None);
        assert_eq!(change(Some(&now), &json!({"slots": 3})), Change::Update);
        assert_eq!(change(Some(&now), &json!({"lease_ms": 3})), Change::Update);
    }
}
