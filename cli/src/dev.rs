//! `tidegate dev`: everything in one process, with a store of its own.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_ingress::Ingress;
use tidegate_reaper::Reaper;
use tidegate_shared::config::{Config, PoolConfig, StoreUrl};
use tidegate_shared::local::{LocalError, LocalOptions, LocalServer};
use tidegate_shared::shutdown::{Shutdown, Tasks};
use tidegate_shared::store::{ApiKeyRecord, Scope, Store};
use tidegate_shared::telemetry::{self, Guard, Metrics};
use tidegate_worker::Worker;

use crate::config_cmd::parse_setting;
use crate::exit::Failure;
use crate::globals::Globals;
use crate::upstream::{self, Upstream};
use crate::{demo, key, output, role};

/// The usual port of an ingress.
const PORT: u16 = 8080;
/// The one pool.
const POOL: &str = "default";
/// Who the printed key speaks for.
const TENANT: &str = "dev";
/// What is logged where TIDEGATE_LOG does not say: the screen belongs to the banner.
const LOG: &str = "warn";
/// File with the key, in the data's directory.
const KEY_FILE: &str = "api_key";
/// Above the roles' own drains: they end by themselves.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(40);

/// Flags of `dev`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Model server; else one on the usual local ports, else a simulated one.
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Directory that keeps everything over restarts; else nothing outlives the process.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print the address, the key and a curl line, and no more.
    #[arg(long)]
    headless: bool,
    /// Port of the API on 127.0.0.1; 0 takes a free one. Without it 8080, or a free one where that is taken.
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Run a sample job and print its life and answer. Without a terminal, end then.
    #[arg(long)]
    demo: bool,
    /// A setting. May be given several times.
    #[arg(long, value_name = "SECTION.KEY=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
}

/// Runs everything until Ctrl-C.
pub(crate) async fn run(
    args: Args,
    globals: &Globals,
    telemetry: &mut Option<Guard>,
) -> Result<(), Failure> {
    if globals.redis.is_some() || globals.url.is_some() {
        return Err(Failure::Usage(
            "dev has its own store and ingress: --redis and --url are for other commands".into(),
        ));
    }
    let filter = std::env::var(tidegate_shared::config::env::LOG)
        .ok()
        .filter(|filter| !filter.is_empty());
    *telemetry = Some(telemetry::init(
        "dev",
        Some(filter.as_deref().unwrap_or(LOG)),
    ));
    // Before anything starts: an early signal must end it in order.
    let signals = Tasks::new();
    let shutdown = Shutdown::on_signals(&signals)?;
    let upstream = upstream::find(args.upstream.as_deref()).await?;
    let server = start_store(args.data.clone()).await?;
    let ran = serve(&args, &upstream, &server, &shutdown).await;
    shutdown.abort();
    if let Some(simulated) = &upstream.simulated {
        simulated.stop().await;
    }
    // The store last: what ran has settled into it.
    drop(server);
    if let Err(left) = signals.close_and_wait(CLOSE_TIMEOUT).await {
        tracing::warn!(%left, "stopped all the same");
    }
    ran
}

async fn start_store(data: Option<PathBuf>) -> Result<LocalServer, Failure> {
    let options = LocalOptions {
        durable: data.is_some(),
        data_dir: data,
        ..LocalOptions::default()
    };
    let started = tokio::task::spawn_blocking(|| LocalServer::start(options)).await;
    started
        .map_err(|error| Failure::Error(error.to_string()))?
        .map_err(|error: LocalError| Failure::Error(error.to_string()))
}

/// The settings: those of the command line, with this process's own store and listeners.
fn config(args: &Args, server: &LocalServer, upstream: &Upstream) -> Result<Config, Failure> {
    let mut config = Config::load(None, std::iter::empty(), &args.set)?.config;
    config.store.url = StoreUrl::new(server.url());
    config.worker.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    config.worker.name = "dev".into();
    config.worker.pools = vec![POOL.into()];
    let pool: &mut PoolConfig = config.pools.entry(POOL.into()).or_default();
    pool.models = upstream.models.clone();
    pool.backends = vec![upstream.url.clone()];
    Ok(config)
}

async fn bind(
    args: &Args,
    config: &mut Config,
    store: &Store,
    metrics: &Arc<Metrics>,
) -> Result<Ingress, Failure> {
    let mut port = args.port.unwrap_or(PORT);
    loop {
        config.ingress.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match Ingress::bind(config, store.clone(), Arc::clone(metrics)).await {
            Ok(ingress) => return Ok(ingress),
            Err(error)
                if args.port.is_none()
                    && port != 0
                    && error.kind() == std::io::ErrorKind::AddrInUse =>
            {
                output::note(&format!(
                    "port {port} is taken, so a free one is used (--port N chooses)"
                ));
                port = 0;
            }
            Err(error) => {
                return Err(Failure::Error(format!(
                    "--port: cannot listen on {}: {error}",
                    config.ingress.listen
                )));
            }
        }
    }
}

async fn serve(
    args: &Args,
    upstream: &Upstream,
    server: &LocalServer,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let mut config = config(args, server, upstream)?;
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    let store = Store::connect(&config.store, Arc::clone(&metrics)).await?;
    role::apply_pools(&store, config.pools.iter()).await?;
    let api_key = api_key(&store, args.data.as_deref()).await?;

    let ingress = bind(args, &mut config, &store, &metrics).await?;
    let url = format!("http://{}", ingress.addr());
    let failed = |error: &dyn std::error::Error| Failure::Error(error.to_string());
    let worker = Worker::new(&config, store.clone(), Arc::clone(&metrics))
        .map_err(|error| failed(&error))?;
    let reaper = Reaper::bind(&config, store, metrics, false)
        .await
        .map_err(|error| failed(&error))?;

    let roles = Tasks::new();
    roles.spawn(ingress.run(shutdown.clone()));
    roles.spawn(reaper.run(shutdown.clone()));
    let work = roles.spawn(worker.run(shutdown.clone()));

    let told = tell(args, upstream, &server.url(), &url, &api_key, shutdown).await;
    if told.is_ok() && !(args.demo && (args.headless || !output::on_terminal())) {
        shutdown.draining().await;
    }
    shutdown.start_drain();
    if let Err(left) = roles.close_and_wait(CLOSE_TIMEOUT).await {
        tracing::warn!(%left, "stopped all the same");
    }
    let worked = match work.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failed(&error)),
        Err(error) => Err(failed(&error)),
    };
    match told {
        // Whoever read our lines has enough; the answer to Ctrl-C in between is to leave.
        Err(Failure::Interrupted(_)) => worked,
        told => told.and(worked),
    }
}

/// Prints what a person needs, after the sample job where it is asked for.
async fn tell(
    args: &Args,
    upstream: &Upstream,
    store_url: &str,
    url: &str,
    api_key: &str,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let model = upstream.chat_model();
    if !args.headless {
        output::line(&format!(
            "model server   {} ({})",
            upstream.url, upstream.what
        ))?;
        output::line(&format!(
            "models         {}",
            crate::text::visible(&upstream.models.join(", "))
        ))?;
        let data = args.data.as_ref().map_or(
            "in memory: gone with this process (--data DIR keeps it)".into(),
            |dir| format!("kept in {}", dir.display()),
        );
        output::line(&format!("data           {data}"))?;
        // For the commands that go straight to it: `doctor`, `key`.
        output::line(&format!("store          {store_url}"))?;
    }
    if args.demo {
        tokio::select! {
            done = demo::run(url, api_key, model) => done?,
            () = shutdown.draining() => return Err(Failure::Interrupted("interrupted".into())),
        }
    }
    output::line(&format!("listening on {url}"))?;
    output::line(&format!("api key        {api_key}"))?;
    let body = serde_json::json!({
        "model": model,
        "body": {"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 48},
    });
    output::line(&format!(
        "curl -s '{url}/v1/jobs' -H 'Authorization: Bearer {api_key}' -H 'Content-Type: application/json' \
         -H 'Prefer: wait=30' -d {}",
        quoted(&body.to_string())
    ))?;
    if !args.headless && output::on_terminal() {
        output::note("Ctrl-C stops everything.");
    }
    Ok(())
}

/// One word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The key that is printed: kept with the data, so that it stays the same over restarts.
async fn api_key(store: &Store, data: Option<&Path>) -> Result<String, Failure> {
    let file = data.map(|dir| dir.join(KEY_FILE));
    if let Some(kept) = file
        .as_ref()
        .and_then(|file| std::fs::read_to_string(file).ok())
        && let Some((id, secret)) = ApiKeyRecord::split(kept.trim())
        && store
            .key(id)
            .await?
            .is_some_and(|record| record.matches(secret))
    {
        return Ok(kept.trim().to_owned());
    }
    let scopes = vec![Scope::Jobs, Scope::Read, Scope::Admin];
    let (record, api_key) = ApiKeyRecord::mint(TENANT, scopes, key::now_ms(), None);
    store.put_key(&record).await?;
    if let Some(file) = file {
        keep(&file, &api_key)
            .map_err(|error| Failure::Error(format!("{}: {error}", file.display())))?;
    }
    Ok(api_key)
}

/// Writes a file that its owner alone may read.
fn keep(file: &Path, secret: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // An old one may be open to others: a new file has the mode from its start.
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut out = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    writeln!(out, "{secret}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_for_a_shell_is_one_word() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
