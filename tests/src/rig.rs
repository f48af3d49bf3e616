//! Everything a scenario needs, started together and gone together.

use std::path::PathBuf;
use std::sync::LazyLock;

use tempfile::TempDir;
use tidegate_loadtest::gpu;
use tidegate_shared::local::{LocalOptions, LocalServer};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::binary::tidegate;
use crate::client::Api;
use crate::layout::{Layout, Servers};
use crate::process::{Proc, Signal};
use crate::proxy::{Proxy, Upstream};

/// Weight of the rigs that run at once in one test process: their time limits hold only where they get their share.
const MACHINE: u32 = 4;
static SHARE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(MACHINE as usize));

/// What the rig is like. The default: short times, 4 slots, the store without a proxy.
#[derive(Clone, Debug)]
pub struct Options {
    /// Slots of the pool.
    pub slots: u32,
    /// Depth of the pool.
    pub max_queued: u32,
    /// Further settings of the pool, as lines of TOML; they may not repeat one of the rig's.
    pub pool: String,
    /// Deliveries of one worker at once; 0: whatever the slots allow.
    pub concurrency: u32,
    /// Lost leases until a job is poison.
    pub max_lost_leases: u32,
    /// Base of the back-off, in milliseconds.
    pub backoff_ms: u64,
    /// Largest request body, in bytes.
    pub max_body_bytes: u64,
    /// All roles reach the store through the proxy.
    pub through_proxy: bool,
    /// Further environment of the store's process.
    pub store_env: Vec<(String, String)>,
    /// Further settings of the store's process, or others than the rig's: an append-only file, synced always.
    pub store_settings: Vec<(String, String)>,
    /// What starts the store's process in its own place.
    pub store_wrap: Vec<String>,
    /// What the roles ask of the store, as lines of TOML.
    pub durability: String,
    /// How the store is laid out. In another than one node, `Rig::store` stands idle and nothing goes through the proxy.
    pub layout: Layout,
    /// The simulated GPU server.
    pub gpu: gpu::Config,
    /// Share of the machine, 1 to 4.
    pub weight: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: 4,
            max_queued: 100,
            pool: String::new(),
            concurrency: 0,
            max_lost_leases: 3,
            backoff_ms: 200,
            max_body_bytes: 16 * 1024 * 1024,
            through_proxy: false,
            store_env: Vec::new(),
            store_settings: Vec::new(),
            store_wrap: Vec::new(),
            durability: String::new(),
            layout: Layout::Single,
            gpu: gpu::Config::default(),
            weight: 1,
        }
    }
}

/// A running system.
#[derive(Debug)]
pub struct Rig {
    /// The ingresses and where they listen.
    pub ingress: Vec<(Proc, String)>,
    /// The workers.
    pub workers: Vec<Proc>,
    /// The reapers.
    pub reapers: Vec<Proc>,
    /// Processes that the scenario ended.
    pub gone: Vec<Proc>,
    /// Calls with a key for jobs.
    pub api: Api,
    /// Calls with an operator's key; a ledger of its own.
    pub operator: Api,
    /// The model server.
    pub gpu: gpu::Server,
    /// The proxy in front of the store.
    pub proxy: Proxy,
    /// The store.
    pub store: LocalServer,
    /// The store's servers where it is not one node.
    pub(crate) servers: Option<Servers>,
    /// What the rig was asked to be.
    pub options: Options,
    started: usize,
    config: PathBuf,
    _dir: TempDir,
    _share: SemaphorePermit<'static>,
}

impl Rig {
    /// Starts a system with so many processes of each role.
    ///
    /// # Panics
    /// When any part does not start.
    pub async fn start(options: Options, ingress: usize, workers: usize, reapers: usize) -> Self {
        let share = SHARE
            .acquire_many(options.weight.clamp(1, MACHINE))
            .await
            .expect("it is never closed");
        let local = LocalOptions {
            durable: true,
            settings: [
                vec![("maxmemory".into(), "4gb".into())],
                options.store_settings.clone(),
            ]
            .concat(),
            env: options.store_env.clone(),
            wrap: options.store_wrap.clone(),
            ..LocalOptions::default()
        };
        let servers = tokio::task::block_in_place(|| Servers::start(options.layout, &local));
        let store = LocalServer::start(local).expect("a private store");
        let gpu_config = gpu::Config {
            slots: options.gpu.slots.max(options.slots as usize * 2),
            ..options.gpu.clone()
        };
        let gpu = gpu::Server::start(gpu_config)
            .await
            .expect("a model server");
        let socket = store.url().trim_start_matches("unix://").into();
        let proxy = Proxy::start(Upstream::Unix(socket)).await;
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("tidegate.toml");
        let mut rig = Self {
            ingress: Vec::new(),
            workers: Vec::new(),
            reapers: Vec::new(),
            gone: Vec::new(),
            api: Api::new(""),
            operator: Api::new(""),
            gpu,
            proxy,
            store,
            servers,
            options,
            started: 0,
            config,
            _dir: dir,
            _share: share,
        };
        std::fs::write(&rig.config, rig.settings()).expect("the settings are written");
        rig.api = Api::new(&rig.mint_key("acme", &["jobs", "read"]).await);
        rig.operator = Api::new(&rig.mint_key("admin", &["admin", "jobs", "read"]).await);
        for _ in 0..ingress {
            rig.start_ingress().await;
        }
        for _ in 0..reapers {
            rig.start_reaper().await;
        }
        for _ in 0..workers {
            rig.start_worker().await;
        }
        rig
    }

    /// The store's address for most roles.
    fn store_url(&self) -> String {
        match self.options.through_proxy {
            true => self.proxy_url(),
            false => self.store_list(),
        }
    }

    /// The store's address through the proxy.
    pub fn proxy_url(&self) -> String {
        format!("redis://{}", self.proxy.addr())
    }

    fn settings(&self) -> String {
        let Options {
            slots,
            max_queued,
            pool,
            concurrency,
            max_lost_leases,
            backoff_ms,
            max_body_bytes,
            durability,
            ..
        } = &self.options;
        let (store, gpu) = (self.store_url(), self.gpu.url());
        format!(
            r#"
[store]
url = "{store}"
{durability}

[ingress]
listen = "127.0.0.1:0"
drain_ms = 5000
max_body_bytes = {max_body_bytes}

[worker]
listen = "127.0.0.1:0"
drain_ms = 5000
concurrency = {concurrency}

[reaper]
listen = "127.0.0.1:0"
pass_ms = 500

[pools.default]
models = ["*"]
backends = ["{gpu}"]
slots = {slots}
max_queued = {max_queued}
lease_ms = 2000
renew_ms = 500
max_attempts = 3
max_lost_leases = {max_lost_leases}
backoff_ms = {backoff_ms}
{pool}
"#
        )
    }

    /// The program with a clean environment.
    pub(crate) fn program(&self) -> std::process::Command {
        let mut command = std::process::Command::new(tidegate());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("TIDEGATE_") || text.starts_with("OTEL_") {
                command.env_remove(&name);
            }
        }
        command.env("NO_COLOR", "1");
        command.envs(self.layout_env());
        command
    }

    /// Starts a process of a role, without waiting until it listens.
    pub(crate) fn launch(&mut self, role: &str, more: &[(&str, &str)]) -> Proc {
        self.started += 1;
        let label = format!("{role}-{}", self.started);
        let mut command = self.program();
        command.arg(role).arg("--config").arg(&self.config);
        command.env("TIDEGATE_WORKER__NAME", &label);
        command.envs(more.iter().copied());
        Proc::spawn(label, command)
    }

    async fn role(&mut self, role: &'static str, more: &[(&str, &str)]) -> (Proc, String) {
        let mut process = self.launch(role, more);
        let url = process.listening().await;
        (process, url)
    }

    /// Starts one more ingress.
    pub async fn start_ingress(&mut self) {
        self.start_ingress_with(&[]).await;
    }

    /// Starts one more ingress with settings of its own.
    pub async fn start_ingress_with(&mut self, settings: &[(&str, &str)]) {
        let (process, url) = self.role("ingress", settings).await;
        self.api.add_base(url.clone());
        self.operator.add_base(url.clone());
        self.ingress.push((process, url));
    }

    /// Starts one more reaper.
    pub async fn start_reaper(&mut self) {
        self.start_reaper_with(&[]).await;
    }

    /// Starts one more reaper with settings of its own.
    pub async fn start_reaper_with(&mut self, settings: &[(&str, &str)]) {
        let (process, _) = self.role("reaper", settings).await;
        self.reapers.push(process);
    }

    /// Starts one more worker.
    pub async fn start_worker(&mut self) {
        self.start_worker_with(&[]).await;
    }

    /// Starts one more worker with settings of its own, and gives the address of its health. Its name is its label unless
    /// the settings say otherwise.
    pub async fn start_worker_with(&mut self, settings: &[(&str, &str)]) -> String {
        let name = format!("worker-{}", self.started + 1);
        let mut all = vec![("TIDEGATE_WORKER__NAME", name.as_str())];
        all.extend_from_slice(settings);
        let (process, url) = self.role("worker", &all).await;
        self.workers.push(process);
        url
    }

    /// Starts one more worker that reaches the store through the proxy.
    pub async fn start_proxied_worker(&mut self) {
        let url = self.proxy_url();
        self.start_worker_with(&[("TIDEGATE_STORE__URL", &url)])
            .await;
    }

    /// Kills a worker, which is then gone.
    pub fn kill_worker(&mut self, at: usize) {
        let mut worker = self.workers.remove(at);
        worker.kill();
        self.gone.push(worker);
    }

    /// Asks a worker to stop; it is then gone, but may still drain. Gives its place among the gone.
    pub fn stop_worker(&mut self, at: usize) -> usize {
        let mut worker = self.workers.remove(at);
        worker.signal(Signal::Term);
        self.gone.push(worker);
        self.gone.len() - 1
    }

    /// Asks an ingress to stop, and calls it no more. Gives its place among the gone.
    pub fn stop_ingress(&mut self, at: usize) -> usize {
        let (mut process, url) = self.ingress.remove(at);
        self.api.remove_base(&url);
        self.operator.remove_base(&url);
        process.signal(Signal::Term);
        self.gone.push(process);
        self.gone.len() - 1
    }

    /// All processes that are not gone.
    pub(crate) fn processes(&mut self) -> impl Iterator<Item = &mut Proc> {
        let ingress = self.ingress.iter_mut().map(|(process, _)| process);
        ingress.chain(&mut self.workers).chain(&mut self.reapers)
    }
}
