//! `tidegate job submit`.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::backend::{Backend, Request, query};
use crate::exit::Failure;
use crate::globals::Globals;
use crate::job::{COLUMNS, is_terminal, path, verdict};
use crate::output::{Printer, note};
use crate::text::parse_seconds;

/// Largest body that is read, in bytes: above every `ingress.max_body_bytes`.
const MAX_BODY_BYTES: u64 = 1024 * 1024 * 1024;
/// Longest wait of one read of the API, in seconds.
const MAX_POLL_S: u64 = 60;

/// Flags of `job submit`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("input").required(true).args(["prompt", "file", "stdin"]))]
pub(crate) struct Args {
    /// Model asked for; else the body's.
    #[arg(long, value_name = "MODEL", required_unless_present_any = ["file", "stdin", "pool"])]
    model: Option<String>,
    /// Pool asked for, whatever the model.
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Text of one user message.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Most output tokens, with --prompt.
    #[arg(long, value_name = "N", requires = "prompt")]
    max_tokens: Option<u64>,
    /// File with the OpenAI request body; it is sent as it stands.
    #[arg(long, short, value_name = "BODY.json")]
    file: Option<PathBuf>,
    /// `-`: the OpenAI request body on standard input.
    #[arg(value_name = "-", value_parser = ["-"])]
    stdin: Option<String>,
    /// Call of the model server.
    #[arg(long, value_name = "PATH", value_parser = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"])]
    endpoint: Option<String>,
    /// Kind of traffic.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// 0 to 9, higher first.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,
    /// Not before so many ms from now.
    #[arg(long, value_name = "MS")]
    delay_ms: Option<u64>,
    /// Worthless after so many ms from now.
    #[arg(long, value_name = "MS")]
    deadline_ms: Option<u64>,
    /// Bound of one run, in ms.
    #[arg(long, value_name = "MS")]
    timeout_ms: Option<u64>,
    /// Attempts before the job is dead.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,
    /// Wait so many seconds for the job's end: 124 where it is not over, 1 where it is no success.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    wait: Option<Duration>,
    /// The same key and body again is the same job.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Runs `job submit`.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<(), Failure> {
    let body = request(&args)?;
    let backend = Backend::open(globals).await?;
    let mut call = Request::post("/v1/jobs").json(body);
    if let Some(key) = &args.idempotency_key {
        call = call.header("idempotency-key", key);
    }
    let mut job = backend.json(call).await?;
    if let Some(limit) = args.wait {
        job = wait(&backend, job, limit).await?;
    }
    Printer::new(globals.output, COLUMNS).one(&job)?;
    match args.wait {
        None => Ok(()),
        Some(limit) if !is_terminal(&job) => Err(Failure::TimedOut(format!(
            "the job is not over after {} s; it goes on",
            limit.as_secs_f64()
        ))),
        Some(_) => {
            verdict(&job)?;
            if !globals.output.is_json() {
                note(&format!(
                    "its answer: tidegate job result {}",
                    job["id"].as_str().unwrap_or("ID")
                ));
            }
            Ok(())
        }
    }
}

/// Reads the job until it is over or `limit` has passed.
pub(crate) async fn wait(
    backend: &Backend,
    mut job: Value,
    limit: Duration,
) -> Result<Value, Failure> {
    let Some(id) = job["id"].as_str().map(str::to_owned) else {
        return Err(Failure::Error("the answer is no job".into()));
    };
    let until = Instant::now() + limit;
    while !is_terminal(&job) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        // The API waits whole seconds; the last piece is bounded here.
        let seconds = (left.as_secs() + 1).min(MAX_POLL_S);
        let read = Request::get(query(&path(&id), &[("wait", Some(seconds.to_string()))]));
        match tokio::time::timeout(left, backend.json(read)).await {
            Ok(read) => job = read?,
            Err(_) => break,
        }
    }
    Ok(job)
}

/// The request of the API. A body from a file is passed on as it stands, number for number.
fn request(args: &Args) -> Result<Vec<u8>, Failure> {
    let text = match (&args.prompt, &args.file) {
        (Some(prompt), _) => prompt_body(args, prompt).to_string(),
        (None, Some(file)) => read_file(file)?,
        (None, None) => read_all(std::io::stdin().lock(), "standard input")?,
    };
    let whence = args
        .file
        .as_ref()
        .map_or("the body".into(), |file| file.display().to_string());
    let raw: &RawValue = serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("{whence}: not valid JSON: {error}")))?;
    let model = match (&args.model, &args.pool) {
        (None, None) => Some(model_of(raw, &whence)?),
        (model, _) => model.clone(),
    };
    let mut members = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            members.insert(name.to_owned(), value);
        }
    };
    put("model", model.map(Value::from));
    put("pool", args.pool.clone().map(Value::from));
    put("endpoint", args.endpoint.clone().map(Value::from));
    put("class", args.class.clone().map(Value::from));
    put("priority", args.priority.map(Value::from));
    put("delay_ms", args.delay_ms.map(Value::from));
    put("deadline_ms", args.deadline_ms.map(Value::from));
    put("timeout_ms", args.timeout_ms.map(Value::from));
    put("max_attempts", args.max_attempts.map(Value::from));
    let head = Value::Object(members).to_string();
    let comma = if head == "{}" { "" } else { "," };
    // Written by hand: a parse into a tree would round numbers and drop repeated keys, which the ingress refuses.
    Ok(format!("{}{comma}\"body\":{}}}", &head[..head.len() - 1], raw.get()).into_bytes())
}

fn model_of(body: &RawValue, whence: &str) -> Result<String, Failure> {
    let body: Value = serde_json::from_str(body.get()).unwrap_or_default();
    body["model"].as_str().map(str::to_owned).ok_or_else(|| {
        Failure::Usage(format!(
            "{whence} names no model: give --model, or \"model\" in the body"
        ))
    })
}

fn prompt_body(args: &Args, prompt: &str) -> Value {
    let mut body = match args.endpoint.as_deref() {
        Some("/v1/embeddings") => json!({"input": prompt}),
        Some("/v1/completions") => json!({"prompt": prompt}),
        _ => json!({"messages": [{"role": "user", "content": prompt}]}),
    };
    if let Some(model) = &args.model {
        body["model"] = model.as_str().into();
    }
    if let Some(limit) = args.max_tokens {
        body["max_tokens"] = limit.into();
    }
    body
}

fn read_file(path: &std::path::Path) -> Result<String, Failure> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::Usage(format!("--file: {name}: {error}")))?;
    read_all(file, &name)
}

fn read_all(source: impl std::io::Read, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    match source.take(MAX_BODY_BYTES + 1).read_to_string(&mut text) {
        Ok(read) if read as u64 > MAX_BODY_BYTES => Err(Failure::Usage(format!(
            "{name}: larger than {MAX_BODY_BYTES} bytes"
        ))),
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::Usage(format!("{name}: {error}"))),
    }
}
