//! The sample job of `tidegate dev --demo`: submitted, followed and read over HTTP, as any client would.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::backend::{Backend, Request, query};
use crate::exit::Failure;
use crate::job::{is_terminal, path, verdict};
use crate::output::line;
use crate::text::{cell, readable, span_ms};

/// An answer that has not come by then does not come.
const LIMIT: Duration = Duration::from_secs(60);
/// A real model on a slow CPU writes this in seconds.
const MAX_TOKENS: u32 = 48;
/// What is asked.
const PROMPT: &str = "In one sentence: what does a tide gate do?";

/// Runs the sample job and prints its life and its answer.
pub(crate) async fn run(url: &str, api_key: &str, model: &str) -> Result<(), Failure> {
    let asked = tokio::time::timeout(LIMIT, ask(url, api_key, model)).await;
    asked.unwrap_or_else(|_| {
        Err(Failure::TimedOut(format!(
            "the answer did not come within {} s",
            LIMIT.as_secs()
        )))
    })
}

async fn ask(url: &str, api_key: &str, model: &str) -> Result<(), Failure> {
    let backend = Backend::http(url.to_owned(), Some(api_key.to_owned()))?;
    let body = json!({
        "model": model,
        "body": {"model": model, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": MAX_TOKENS},
    });
    line(&format!(
        "\nasking {}: {PROMPT}",
        crate::text::visible(model)
    ))?;
    let start = Instant::now();
    let mut job = backend
        .json(Request::post("/v1/jobs").json(body.to_string().into_bytes()))
        .await?;
    let id = job["id"]
        .as_str()
        .ok_or_else(|| Failure::Error("the answer is no job".into()))?
        .to_owned();
    line(&format!("{} accepted as {id}", at(start)))?;
    let mut seen = String::new();
    loop {
        let status = cell(&job["status"]);
        if status != seen && !is_terminal(&job) {
            line(&format!("{} {status}{}", at(start), details(&job)))?;
        }
        seen = status;
        if is_terminal(&job) {
            break;
        }
        // A read with a wait comes back when the job ends; a short one shows the states in between.
        tokio::time::sleep(LOOK_EVERY).await;
        job = backend.json(Request::get(query(&path(&id), &[]))).await?;
    }
    life(&job, start)?;
    verdict(&job)?;
    let result = backend
        .json(Request::get(format!("{}/result", path(&id))))
        .await?;
    let answer = result["choices"][0]["message"]["content"].as_str();
    let answer = answer.ok_or_else(|| Failure::Error("the answer has no text".into()))?;
    line(&format!("\n{}\n", readable(answer.trim())))
}

/// Between two looks at the job: a simulated answer takes tens of milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn at(start: Instant) -> String {
    let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    format!("{:>8}", span_ms(ms))
}

fn details(job: &Value) -> String {
    match job["deliveries"].as_array().and_then(|all| all.last()) {
        Some(delivery) => format!(
            " on {} (fence {})",
            cell(&delivery["worker"]),
            delivery["fence"]
        ),
        None => job["pending_reason"]
            .as_str()
            .map(|why| format!(" ({why})"))
            .unwrap_or_default(),
    }
}

/// The whole life by the store's clock, once it is over.
fn life(job: &Value, start: Instant) -> Result<(), Failure> {
    let usage = &job["usage"];
    let tokens_used = match usage.is_object() {
        true => format!(
            ", {} tokens in, {} out",
            usage["input_tokens"], usage["output_tokens"]
        ),
        false => String::new(),
    };
    line(&format!(
        "{} {}{tokens_used}",
        at(start),
        cell(&job["status"])
    ))?;
    let since = |name: &str| {
        Some(
            job[name]
                .as_u64()?
                .saturating_sub(job["created_at_ms"].as_u64()?),
        )
    };
    if let (Some(started), Some(finished)) = (since("started_at_ms"), since("finished_at_ms")) {
        line(&format!(
            "by the store's clock: waited {}, ran {}, attempts {}/{}",
            span_ms(started),
            span_ms(finished.saturating_sub(started)),
            job["attempts"],
            job["max_attempts"]
        ))?;
    }
    Ok(())
}
