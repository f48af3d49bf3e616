//! Lists: pages of the API one after the other, and the same list again and again with `--watch`.

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::backend::{Backend, Request, query};
use crate::exit::Failure;
use crate::globals::Globals;
use crate::output::{Column, Printer, on_terminal};

/// Between two prints of `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Objects of one page: what the API gives at most.
const PAGE: u64 = 100;

/// Flags of every paged list.
#[derive(Clone, Debug, Args)]
pub(crate) struct PageArgs {
    /// Print at most so many.
    #[arg(long, value_name = "N", default_value_t = PAGE, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
    /// Begin after this id.
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
    /// Print all there are.
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// A walk over the pages of a list.
pub(crate) struct Pages<'a> {
    backend: &'a Backend,
    path: &'a str,
    filters: Vec<(&'a str, Option<String>)>,
    after: Option<String>,
    left: u64,
    over: bool,
}

impl<'a> Pages<'a> {
    /// The list at `path`, at most `limit` objects of it.
    pub(crate) fn new(
        backend: &'a Backend,
        path: &'a str,
        filters: Vec<(&'a str, Option<String>)>,
        after: Option<String>,
        limit: Option<u64>,
    ) -> Self {
        Self {
            backend,
            path,
            filters,
            after,
            left: limit.unwrap_or(u64::MAX),
            over: false,
        }
    }

    /// The next page; none after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Value>>, Failure> {
        if self.over || self.left == 0 {
            return Ok(None);
        }
        let mut parameters = self.filters.clone();
        parameters.push(("limit", Some(self.left.min(PAGE).to_string())));
        parameters.push(("after", self.after.clone()));
        let answer = self
            .backend
            .json(Request::get(query(self.path, &parameters)))
            .await?;
        let Some(rows) = answer["data"].as_array() else {
            return Err(Failure::Error("the answer is no list".into()));
        };
        let last = answer["last_id"]
            .as_str()
            .or_else(|| rows.last()?["id"].as_str());
        self.over = answer["has_more"] != true || last.is_none() || last == self.after.as_deref();
        self.after = last.map(str::to_owned);
        self.left = self.left.saturating_sub(rows.len() as u64);
        Ok(Some(rows.clone()))
    }
}

/// Prints a paged list, once or again and again.
pub(crate) async fn print(
    globals: &Globals,
    columns: &[Column],
    path: &str,
    filters: Vec<(&str, Option<String>)>,
    page: &PageArgs,
) -> Result<(), Failure> {
    let backend = Backend::open(globals).await?;
    let limit = (!page.all).then_some(page.limit);
    watched(globals, async || {
        let mut pages = Pages::new(&backend, path, filters.clone(), page.after.clone(), limit);
        let mut printer = Printer::new(globals.output, columns);
        let first = pages.next().await?.unwrap_or_default();
        fresh_screen(globals)?;
        printer.page(&first)?;
        while let Some(rows) = pages.next().await? {
            printer.page(&rows)?;
        }
        printer.finish()
    })
    .await
}

/// Prints a list that comes in one piece, once or again and again.
pub(crate) async fn print_whole(
    globals: &Globals,
    columns: &[Column],
    fetch: impl AsyncFn() -> Result<Vec<Value>, Failure>,
) -> Result<(), Failure> {
    watched(globals, async || {
        let rows = fetch().await?;
        fresh_screen(globals)?;
        Printer::new(globals.output, columns).list(&rows)
    })
    .await
}

async fn watched(
    globals: &Globals,
    once: impl AsyncFn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        once().await?;
        if !globals.watch {
            return Ok(());
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

/// On a terminal a watched list takes the place of the one before.
fn fresh_screen(globals: &Globals) -> Result<(), Failure> {
    if globals.watch && on_terminal() && !globals.output.is_json() {
        let mut out = std::io::stdout().lock();
        write!(out, "\u{1b}[H\u{1b}[2J")?;
    }
    Ok(())
}
