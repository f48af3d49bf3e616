//! The `gpu` subcommand: flags of the simulated GPU server.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use tidegate_loadtest::gpu::{Config, Server};
use tokio::signal::unix::{SignalKind, signal};

/// Flags of `tidegate-loadtest gpu`; a flag left out has the value of [`Config::default`].
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Seed of every answer: the same seed and prompt give the same text.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Models served; a call for another model gets 404. Without it every model name is served.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    models: Vec<String>,
    /// Calls worked on at once.
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// Calls that may wait for a slot or for KV room; one more is refused.
    #[arg(long, value_name = "N")]
    queue: Option<usize>,
    /// Speed of reading a prompt, in input tokens per second, when alone.
    #[arg(long, value_name = "N")]
    prefill_tokens_per_s: Option<f64>,
    /// Speed of writing an answer, in output tokens per second, when alone.
    #[arg(long, value_name = "N")]
    decode_tokens_per_s: Option<f64>,
    /// KV capacity in tokens: input plus the most output each running call may write.
    #[arg(long, value_name = "N")]
    kv_tokens: Option<u64>,
    /// How much each further running call slows all of them: speed / (1 + slowdown * others).
    #[arg(long, value_name = "X")]
    slowdown: Option<f64>,
    /// Mean length of an answer that no script describes, in output tokens.
    #[arg(long, value_name = "N")]
    output_tokens_mean: Option<u32>,
    /// Status of the refusal when the queue is full: 503 or 429.
    #[arg(long, value_name = "STATUS")]
    busy_status: Option<u16>,
    /// File that gets one JSON line per call, when the call ends.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

impl Args {
    fn config(self) -> Config {
        let base = Config::default();
        Config {
            listen: self.listen.unwrap_or(base.listen),
            seed: self.seed.unwrap_or(base.seed),
            models: self.models,
            slots: self.slots.unwrap_or(base.slots),
            queue: self.queue.unwrap_or(base.queue),
            prefill_tokens_per_s: self
                .prefill_tokens_per_s
                .unwrap_or(base.prefill_tokens_per_s),
            decode_tokens_per_s: self.decode_tokens_per_s.unwrap_or(base.decode_tokens_per_s),
            kv_tokens: self.kv_tokens.unwrap_or(base.kv_tokens),
            slowdown: self.slowdown.unwrap_or(base.slowdown),
            output_tokens_mean: self.output_tokens_mean.unwrap_or(base.output_tokens_mean),
            busy_status: self.busy_status.unwrap_or(base.busy_status),
            log: self.log,
        }
    }
}

/// Runs the server until SIGTERM or SIGINT. Prints `listening on URL` once the port is open.
///
/// # Errors
/// When a flag has an impossible value, the address cannot be bound, or the log file cannot be opened.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    // Before the port opens: a signal right after the printed line must not be missed.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let server = Server::start(args.config()).await?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on {}", server.url())
        .and_then(|()| out.flush())
        .context("cannot write to stdout")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    server.stop().await;
    Ok(())
}
