//! `tidegate dlq requeue|purge`: one dead letter after the other, each step guarded by the store, so that whatever changed
//! since the look is skipped and never done twice.

use std::time::Duration;

use serde_json::json;
use tokio::time::MissedTickBehavior;

use crate::backend::{Backend, Request};
use crate::dlq::{PATH, path};
use crate::dlq_filter::Filter;
use crate::exit::Failure;
use crate::globals::Globals;
use crate::interrupt::Stop;
use crate::key;
use crate::output::{self, Format, confirm, note};
use crate::page::Pages;
use crate::text::visible;

/// Most dead letters of one command: their ids are kept in memory (some 60 bytes each).
const MAX_LETTERS: u64 = 1_000_000;
/// Failures that are told one by one; the rest is counted.
const TOLD_FAILURES: u64 = 10;

/// What is done to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A new life.
    Requeue,
    /// Gone for good.
    Purge,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::Purge => "purge",
        }
    }
}

/// Which dead letters, and how.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("selector").required(true).args(["ids", "filter", "all"]))]
pub(crate) struct Args {
    /// Ids of dead letters.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Those for which every term holds: pool=, error=, reason=, tenant=, model=, class=, age>1h, age<7d.
    #[arg(long, value_name = "TERMS", value_parser = Filter::parse)]
    filter: Option<Filter>,
    /// All there are.
    #[arg(long)]
    all: bool,
    /// Of this pool.
    #[arg(long, value_name = "POOL", conflicts_with = "ids")]
    pool: Option<String>,
    /// Only count them.
    #[arg(long)]
    dry_run: bool,
    /// At most so many a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// At most so many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_LETTERS))]
    max: Option<u64>,
    /// Why; it is kept with what was done.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do not ask.
    #[arg(long, short = 'y')]
    yes: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    matched: u64,
    done: u64,
    /// Not dead any more, or gone.
    skipped: u64,
    failed: u64,
}

/// Runs the command.
pub(crate) async fn run(action: Action, args: Args, globals: &Globals) -> Result<(), Failure> {
    let stop = Stop::new(globals);
    let selected = async {
        let backend = Backend::open(globals).await?;
        let ids = select(&backend, &args).await?;
        Ok::<_, Failure>((backend, ids))
    };
    let (backend, ids) = tokio::select! {
        selected = selected => selected?,
        failure = stop.asked() => return Err(failure),
    };
    let mut counts = Counts {
        matched: ids.len() as u64,
        ..Counts::default()
    };
    if args.dry_run {
        return print(action, counts, true, globals.output);
    }
    if counts.matched > 0 && (action == Action::Purge || args.all) {
        tokio::select! {
            answer = confirm(question(action, &args, counts.matched), args.yes) => answer?,
            failure = stop.asked() => return Err(failure),
        }
    }
    let ended = act(action, &backend, &ids, &args, stop, &mut counts).await;
    print(action, counts, false, globals.output)?;
    match ended {
        Err(failure @ (Failure::Interrupted(_) | Failure::TimedOut(_))) => Err(failure),
        Err(failure) if counts.done == 0 => Err(failure),
        Err(failure) => Err(Failure::Refused(format!(
            "stopped after {}: {failure}",
            counts.done
        ))),
        Ok(()) if counts.failed > 0 || (counts.done == 0 && counts.skipped > 0) => {
            Err(Failure::Refused(not_done(counts)))
        }
        Ok(()) => Ok(()),
    }
}

/// Why not all of them were done; what failed has been told one by one.
fn not_done(counts: Counts) -> String {
    let left = counts.matched - counts.done;
    let skipped = match counts.skipped {
        0 => String::new(),
        skipped => format!("; no dead letter, or not any more: {skipped}"),
    };
    format!("{left} of {} were not done{skipped}", counts.matched)
}

fn question(action: Action, args: &Args, matched: u64) -> String {
    let scope = args
        .pool
        .as_ref()
        .map(|pool| format!(" of pool {pool}"))
        .unwrap_or_default();
    let lasting = if action == Action::Purge {
        " for good"
    } else {
        ""
    };
    let letters = if matched == 1 { "letter" } else { "letters" };
    format!(
        "{} {matched} dead {letters}{}{lasting}?",
        action.word(),
        visible(&scope)
    )
}

/// The ids that are meant, as they are now.
async fn select(backend: &Backend, args: &Args) -> Result<Vec<String>, Failure> {
    let max = args.max.unwrap_or(MAX_LETTERS);
    if !args.ids.is_empty() {
        let mut ids = args.ids.clone();
        ids.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        return Ok(ids);
    }
    let now_ms = key::now_ms();
    let named = args.filter.as_ref().and_then(Filter::pool);
    let pool = args.pool.as_deref().or(named).map(str::to_owned);
    let mut pages = Pages::new(backend, PATH, vec![("pool", pool)], None, None);
    let mut ids = Vec::new();
    while let Some(page) = pages.next().await? {
        for letter in &page {
            if args
                .filter
                .as_ref()
                .is_none_or(|filter| filter.matches(letter, now_ms))
                && let Some(id) = letter["id"].as_str()
            {
                ids.push(id.to_owned());
            }
            if ids.len() as u64 >= max {
                return Ok(ids);
            }
        }
    }
    Ok(ids)
}

async fn act(
    action: Action,
    backend: &Backend,
    ids: &[String],
    args: &Args,
    stop: Stop,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let mut pace = args.rate.map(|rate| {
        let mut pace = tokio::time::interval(Duration::from_secs(1) / rate);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace
    });
    for id in ids {
        let one = async {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            backend
                .json(request(action, id, args.reason.as_deref()))
                .await
        };
        let done = tokio::select! {
            done = one => done,
            failure = stop.asked() => return Err(failure),
        };
        match done {
            Ok(_) => counts.done += 1,
            Err(Failure::NotFound(_)) => counts.skipped += 1,
            Err(failure @ Failure::Refused(_)) if is_stale(&failure) => counts.skipped += 1,
            Err(failure @ Failure::Refused(_)) => {
                counts.failed += 1;
                if counts.failed <= TOLD_FAILURES {
                    note(&failure.to_string());
                }
            }
            Err(failure) => {
                counts.failed += 1;
                return Err(failure);
            }
        }
    }
    Ok(())
}

/// The job is no dead letter any more.
fn is_stale(failure: &Failure) -> bool {
    failure.to_string().ends_with("(conflict, HTTP 409)")
}

fn request(action: Action, id: &str, reason: Option<&str>) -> Request {
    let call = Request::post(format!("{}/{}", path(id), action.word()));
    match reason {
        Some(reason) => call.json(json!({"reason": reason}).to_string().into_bytes()),
        None => call,
    }
}

fn print(action: Action, counts: Counts, dry_run: bool, format: Format) -> Result<(), Failure> {
    let value = json!({
        "object": "operation",
        "kind": action.word(),
        "dry_run": dry_run,
        "matched": counts.matched,
        "done": counts.done,
        "skipped": counts.skipped,
        "failed": counts.failed,
    });
    output::detail(format, &value)
}
