//! `tidegate ingress|worker|reaper`: one role as a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_ingress::Ingress;
use tidegate_reaper::Reaper;
use tidegate_shared::config::{Config, Loaded, PoolConfig, Role};
use tidegate_shared::domain::PoolName;
use tidegate_shared::protocol::ApplyReply;
use tidegate_shared::shutdown::{Shutdown, Tasks};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::{self, Guard, Metrics};
use tidegate_worker::Worker;

use crate::config_cmd::{environment, parse_setting};
use crate::exit::Failure;
use crate::globals::Globals;
use crate::output;

/// First pause before the store is asked again; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause: a store that comes back is found within it.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long the tasks beside the role may take to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Flags of a role.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file; else the one that TIDEGATE_CONFIG names, else none.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// A setting, on top of the file and the environment. May be given several times.
    #[arg(long, value_name = "SECTION.KEY=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Ingress => "ingress",
        Role::Worker => "worker",
        Role::Reaper => "reaper",
    }
}

fn load(role: Role, args: &Args, globals: &Globals) -> Result<Loaded, Failure> {
    let mut flags = args.set.clone();
    if let Some(listen) = &args.listen {
        flags.push((format!("{}.listen", name(role)), listen.clone()));
    }
    if let Some(url) = &globals.redis {
        flags.push(("store.url".into(), url.clone()));
    }
    if globals.timeout.is_some() || globals.watch {
        return Err(Failure::Usage(
            "--timeout and --watch are for client commands; a role runs until it is stopped".into(),
        ));
    }
    Ok(Config::load_for(
        Some(role),
        args.config.as_deref(),
        environment(),
        &flags,
    )?)
}

/// Runs the role until it is stopped.
pub(crate) async fn run(
    role: Role,
    args: Args,
    globals: &Globals,
    telemetry: &mut Option<Guard>,
) -> Result<(), Failure> {
    let loaded = load(role, &args, globals)?;
    *telemetry = Some(telemetry::init(name(role), loaded.log_filter.as_deref()));
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let tasks = Tasks::new();
    let shutdown = Shutdown::on_signals(&tasks)?;
    let config = Arc::new(loaded.config);
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    let store = Store::open(&config.store, Arc::clone(&metrics)).await?;

    // A store that is there is judged before the first job can come; one that is not is waited for, while probes say so.
    let down = match prepare(role, &config, &store).await {
        Err(Failure::Unreachable(error)) => {
            tracing::warn!(error, store = %config.store.url, "the store cannot be reached; waiting for it");
            true
        }
        done => done.map(|()| false)?,
    };
    let bound = Bound::bind(role, &config, &store, metrics).await?;
    output::line(&format!("listening on http://{}", bound.address()))?;
    let waiting = down.then(|| {
        let (config, shutdown) = (Arc::clone(&config), shutdown.clone());
        tasks.spawn(async move {
            let done = wait_and_prepare(role, &config, &store, &shutdown).await;
            if done.is_err() {
                shutdown.abort();
            }
            done
        })
    });
    let ran = bound.run(shutdown.clone()).await;
    // The task behind the signals ends with an abort.
    shutdown.abort();
    let prepared = match waiting {
        Some(task) => task
            .await
            .unwrap_or_else(|error| Err(Failure::Error(error.to_string()))),
        None => Ok(()),
    };
    if let Err(left) = tasks.close_and_wait(CLOSE_TIMEOUT).await {
        tracing::warn!(%left, "stopped all the same");
    }
    ran.and(prepared)
}

/// A role whose listener is open.
enum Bound {
    Ingress(Box<Ingress>),
    Worker(Worker, SocketAddr),
    Reaper(Reaper, SocketAddr),
}

impl Bound {
    async fn bind(
        role: Role,
        config: &Config,
        store: &Store,
        metrics: Arc<Metrics>,
    ) -> Result<Self, Failure> {
        let store = store.clone();
        let unknown = || Failure::Error("the address listened on cannot be read".into());
        match role {
            Role::Ingress => {
                let ingress = Ingress::bind(config, store, metrics).await;
                let ingress = ingress
                    .map_err(|error| cannot_listen("ingress", config.ingress.listen, &error))?;
                Ok(Self::Ingress(Box::new(ingress)))
            }
            Role::Worker => {
                let worker = Worker::new(config, store, metrics)
                    .map_err(|error| Failure::Error(error.to_string()))?;
                let address = worker.address().ok_or_else(unknown)?;
                Ok(Self::Worker(worker, address))
            }
            Role::Reaper => {
                let reaper = Reaper::bind(config, store, metrics, true).await;
                let reaper = reaper
                    .map_err(|error| cannot_listen("reaper", config.reaper.listen, &error))?;
                let address = reaper.addr().ok_or_else(unknown)?;
                Ok(Self::Reaper(reaper, address))
            }
        }
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Ingress(ingress) => ingress.addr(),
            Self::Worker(_, address) | Self::Reaper(_, address) => *address,
        }
    }

    async fn run(self, shutdown: Shutdown) -> Result<(), Failure> {
        match self {
            Self::Ingress(ingress) => ingress.run(shutdown).await,
            Self::Worker(worker, _) => {
                worker
                    .run(shutdown)
                    .await
                    .map_err(|error| Failure::Error(error.to_string()))?;
            }
            Self::Reaper(reaper, _) => reaper.run(shutdown).await,
        }
        Ok(())
    }
}

fn cannot_listen(role: &str, address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::Error(format!(
        "{role}.listen: cannot listen on {address}: {error}"
    ))
}

/// Waits for the store, as long as it takes, then judges it.
async fn wait_and_prepare(
    role: Role,
    config: &Config,
    store: &Store,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        match prepare(role, config, store).await {
            Err(Failure::Unreachable(error)) => {
                tracing::warn!(error, store = %config.store.url, "the store cannot be reached; waiting for it");
            }
            done => return done,
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.draining() => return Ok(()),
        }
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// What stands before the first job: the server keeps what it is given, and the file's pools are in the store.
async fn prepare(role: Role, config: &Config, store: &Store) -> Result<(), Failure> {
    let facts = store.server().await?;
    if facts.evicts() {
        return Err(Failure::Error(format!(
            "the store at {} may drop accepted jobs when its memory is full (maxmemory-policy {}): set maxmemory-policy noeviction",
            config.store.url, facts.maxmemory_policy
        )));
    }
    if facts.is_too_old() {
        return Err(Failure::Error(format!(
            "the store at {} is {} {}: use Redis 7.0 or newer, or Valkey",
            config.store.url, facts.server, facts.version
        )));
    }
    if facts.role != "master" {
        tracing::warn!(
            role = facts.role,
            "the store at {} is a replica and takes no writes: point store.url at the primary",
            config.store.url
        );
    }
    match facts.durability_line(config.store.durability, config.store.replicas) {
        (true, line) => tracing::info!("{line}"),
        (false, line) => tracing::warn!("{line}"),
    }
    if role == Role::Ingress {
        apply_pools(store, config.pools.iter()).await?;
    }
    Ok(())
}

/// Gives the pools of a file their settings.
pub(crate) async fn apply_pools(
    store: &Store,
    pools: impl Iterator<Item = (&String, &PoolConfig)>,
) -> Result<(), Failure> {
    for (name, pool) in pools {
        let id: PoolName = name
            .parse()
            .map_err(|error| Failure::Usage(format!("pools.{name}: {error}")))?;
        if let ApplyReply::Applied(version) = store.apply(&id, pool).await? {
            tracing::info!(pool = %id, version, "pool applied");
        }
    }
    Ok(())
}
