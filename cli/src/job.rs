//! `tidegate job`: what a client does.

use clap::Args;
use serde_json::Value;

use crate::backend::{Backend, Request, encode};
use crate::exit::Failure;
use crate::globals::Globals;
use crate::output::{self, Column, Printer, column, note, wide};
use crate::page::{self, PageArgs};
use crate::{follow, job_submit, text};

/// Commands of `job`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Submit a job.
    Submit(Box<job_submit::Args>),
    /// Print jobs as they are now.
    Get(Ids),
    /// List jobs, newest first.
    List(ListArgs),
    /// Cancel jobs.
    Cancel(CancelArgs),
    /// Follow a job to its end: its text on standard output, its states on standard error.
    Watch(One),
    /// Write the model's body of a job, byte for byte.
    Result(One),
}

/// Jobs by their ids.
#[derive(Debug, Args)]
pub(crate) struct Ids {
    /// Ids of jobs.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

/// One job by its id.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Id of the job.
    #[arg(value_name = "ID")]
    id: String,
}

/// Which jobs are cancelled.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    ids: Ids,
    /// Do not ask before several jobs are cancelled.
    #[arg(long, short = 'y')]
    yes: bool,
}

/// Which jobs are listed.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Of this pool.
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// In this state: scheduled, queued, running, succeeded, failed, cancelled, expired.
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Of this class.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Of this tenant; needs an admin key.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

/// Columns of jobs.
pub(crate) const COLUMNS: &[Column] = &[
    column("ID", |job| text::cell(&job["id"])),
    column("STATUS", status),
    column("POOL", |job| text::cell(&job["pool"])),
    column("MODEL", |job| text::cell(&job["model"])),
    wide("CLASS", |job| text::cell(&job["class"])),
    wide("TENANT", |job| text::cell(&job["tenant"])),
    wide("PRIORITY", |job| text::cell(&job["priority"])),
    column("ATTEMPTS", attempts),
    column("CREATED", |job| text::time(&job["created_at_ms"])),
    column("RUN", run_time),
    wide("TOKENS", usage),
    wide("WHY", why),
];

fn status(job: &Value) -> String {
    match job["cancel_requested"] == true && job["status"] == "running" {
        true => "running (cancelling)".into(),
        false => text::cell(&job["status"]),
    }
}

fn attempts(job: &Value) -> String {
    format!(
        "{}/{}",
        text::cell(&job["attempts"]),
        text::cell(&job["max_attempts"])
    )
}

fn run_time(job: &Value) -> String {
    match (
        job["started_at_ms"].as_u64(),
        job["finished_at_ms"].as_u64(),
    ) {
        (Some(from), Some(to)) => text::span_ms(to.saturating_sub(from)),
        _ => "-".into(),
    }
}

fn usage(job: &Value) -> String {
    match job["usage"].is_object() {
        true => {
            let usage = &job["usage"];
            let about = if usage["estimated"] == true { "~" } else { "" };
            format!(
                "{about}{}+{}",
                usage["input_tokens"], usage["output_tokens"]
            )
        }
        false => "-".into(),
    }
}

/// Why a job waits, or why it failed.
fn why(job: &Value) -> String {
    [&job["pending_reason"], &job["error"]["code"]]
        .into_iter()
        .find(|value| !value.is_null())
        .map_or_else(|| "-".into(), text::cell)
}

/// Path of a job.
pub(crate) fn path(id: &str) -> String {
    format!("/v1/jobs/{}", encode(id))
}

/// Whether the job will never change again.
pub(crate) fn is_terminal(job: &Value) -> bool {
    matches!(
        job["status"].as_str(),
        Some("succeeded" | "failed" | "cancelled" | "expired")
    )
}

/// The failure that a terminal other than `succeeded` is for a command that waited for it.
pub(crate) fn verdict(job: &Value) -> Result<(), Failure> {
    let status = job["status"].as_str().unwrap_or("unknown");
    if status == "succeeded" {
        return Ok(());
    }
    let id = job["id"].as_str().unwrap_or("the job");
    let error = &job["error"];
    let why = match (error["code"].as_str(), error["message"].as_str()) {
        (Some(code), Some(message)) => format!(": {message} ({code})"),
        (Some(code), None) => format!(": {code}"),
        _ => String::new(),
    };
    Err(Failure::Error(format!("{id} {status}{why}")))
}

/// Runs a command of `job`.
pub(crate) async fn run(command: Command, globals: &Globals) -> Result<(), Failure> {
    match command {
        Command::Submit(args) => job_submit::run(*args, globals).await,
        Command::List(args) => {
            let filters = vec![
                ("status", args.status),
                ("pool", args.pool),
                ("class", args.class),
                ("tenant", args.tenant),
            ];
            page::print(globals, COLUMNS, "/v1/jobs", filters, &args.page).await
        }
        Command::Get(Ids { ids }) => get(&ids, globals).await,
        Command::Cancel(args) => cancel(args, globals).await,
        Command::Watch(One { id }) => {
            let backend = Backend::open(globals).await?;
            let job = follow::follow(&backend, &id, &mut follow::Show::new(globals.output)).await?;
            verdict(&job)
        }
        Command::Result(One { id }) => {
            let backend = Backend::open(globals).await?;
            result(&backend, &id).await
        }
    }
}

async fn get(ids: &[String], globals: &Globals) -> Result<(), Failure> {
    let backend = Backend::open(globals).await?;
    if let ([id], true) = (ids, globals.output.is_json()) {
        let (job, text) = backend.exact(Request::get(path(id))).await?;
        return output::exact(globals.output, &job, &text);
    }
    let (found, failed) = each(ids, async |id| backend.json(Request::get(path(id))).await).await?;
    print_each(ids, &found, globals)?;
    failed.map_or(Ok(()), Err)
}

async fn cancel(args: CancelArgs, globals: &Globals) -> Result<(), Failure> {
    let ids = &args.ids.ids;
    if ids.len() > 1 {
        output::confirm(format!("Cancel {} jobs?", ids.len()), args.yes).await?;
    }
    let backend = Backend::open(globals).await?;
    let call = async |id: &str| {
        backend
            .json(Request::post(format!("{}/cancel", path(id))))
            .await
    };
    let (done, failed) = each(ids, call).await?;
    print_each(ids, &done, globals)?;
    match failed {
        Some(_) if !done.is_empty() => Err(Failure::Refused(format!(
            "{} of {} jobs were not cancelled",
            ids.len() - done.len(),
            ids.len()
        ))),
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// Does something for each id. What fails for one id is noted, and the others go on; a server that cannot be reached
/// ends it. Gives what was done and the last failure.
async fn each(
    ids: &[String],
    call: impl AsyncFn(&str) -> Result<Value, Failure>,
) -> Result<(Vec<Value>, Option<Failure>), Failure> {
    let (mut done, mut failed) = (Vec::new(), None);
    for id in ids {
        match call(id).await {
            Ok(value) => done.push(value),
            Err(failure @ (Failure::NotFound(_) | Failure::Refused(_))) => {
                if ids.len() > 1 {
                    note(&failure.to_string());
                }
                failed = Some(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok((done, failed))
}

/// One id asked for: one object. Several: a list, whatever came of it.
fn print_each(ids: &[String], found: &[Value], globals: &Globals) -> Result<(), Failure> {
    let printer = Printer::new(globals.output, COLUMNS);
    match (ids.len(), found) {
        (1, [one]) => printer.one(one),
        (1, _) => Ok(()),
        _ => printer.list(found),
    }
}

async fn result(backend: &Backend, id: &str) -> Result<(), Failure> {
    let mut answer = backend
        .ok(Request::get(format!("{}/result", path(id))))
        .await?;
    while let Some(piece) = answer.piece().await? {
        output::bytes(&piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_success_is_one() {
        assert!(verdict(&json!({"status": "succeeded"})).is_ok());
        let failed = json!({"id": "job_a", "status": "failed", "error": {"code": "poison", "message": "died"}});
        let said = verdict(&failed).expect_err("fails");
        assert_eq!(
            (said.code(), said.to_string().as_str()),
            (1, "job_a failed: died (poison)")
        );
    }
}
