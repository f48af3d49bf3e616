//! A store, a model server, workers, and what tests ask of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_loadtest::gpu::{self, Script};
use tidegate_shared::config::{Config, PoolConfig, StoreConfig, StoreUrl};
use tidegate_shared::domain::{Endpoint, Envelope, Job, JobId, PoolName, State};
use tidegate_shared::local::{LocalOptions, LocalServer};
use tidegate_shared::protocol::{Idempotency, Read, ReadReply, Submit, SubmitReply};
use tidegate_shared::shutdown::Shutdown;
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;
use tidegate_worker::{Worker, WorkerError};
use tokio::task::JoinHandle;

/// No wait of a test takes longer.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// What a hint brings comes in milliseconds; so much is left to a machine with better things to do.
pub(crate) const BY_HINT: Duration = Duration::from_secs(5);
/// A test that waits for a hint looks again after this.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A store and a model server with one pool.
pub(crate) struct Rig {
    pub(crate) redis: LocalServer,
    pub(crate) store: Store,
    pub(crate) gpu: gpu::Server,
    pub(crate) pool: PoolName,
}

/// Short times: a lease of 2 s, renewed every 500 ms.
pub(crate) fn quick() -> PoolConfig {
    PoolConfig {
        slots: 4,
        lease_ms: 2_000,
        renew_ms: 500,
        backoff_ms: 20,
        ..PoolConfig::default()
    }
}

/// Renewals come so seldom that only a hint can bring news within [`BY_HINT`].
pub(crate) fn hints_only() -> PoolConfig {
    PoolConfig {
        lease_ms: 60_000,
        renew_ms: 20_000,
        ..quick()
    }
}

async fn open(url: String) -> (Store, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new("test"));
    let config = StoreConfig {
        url: StoreUrl::new(url),
        ..StoreConfig::default()
    };
    (
        Store::open(&config, Arc::clone(&metrics)).await.unwrap(),
        metrics,
    )
}

impl Rig {
    /// With these settings of the pool; its model server is the simulated one unless they name another.
    pub(crate) async fn start(config: PoolConfig) -> Self {
        Self::start_on(LocalOptions::default(), config).await
    }

    /// The same over a store that survives its own crash.
    pub(crate) async fn start_durable(config: PoolConfig) -> Self {
        let options = LocalOptions {
            durable: true,
            ..LocalOptions::default()
        };
        Self::start_on(options, config).await
    }

    async fn start_on(options: LocalOptions, config: PoolConfig) -> Self {
        let gpu = gpu::Server::start(gpu::Config::default()).await.unwrap();
        let redis = LocalServer::start(options).unwrap();
        let (store, _) = open(redis.url()).await;
        let rig = Self {
            redis,
            store,
            gpu,
            pool: "default".parse().unwrap(),
        };
        rig.apply(config).await;
        rig
    }

    /// Gives the pool these settings.
    pub(crate) async fn apply(&self, mut config: PoolConfig) {
        if config.backends == PoolConfig::default().backends {
            config.backends = vec![self.gpu.url()];
        }
        self.store.apply(&self.pool, &config).await.unwrap();
    }

    /// The socket of the store.
    pub(crate) fn socket(&self) -> PathBuf {
        PathBuf::from(self.redis.url().trim_start_matches("unix://"))
    }

    /// A worker on the store itself.
    pub(crate) async fn worker(&self) -> Running {
        self.worker_with(&self.redis.url(), |_| ()).await
    }

    /// A worker with changed settings, on a store behind another address.
    pub(crate) async fn worker_with(&self, url: &str, change: impl FnOnce(&mut Config)) -> Running {
        let mut config = Config::default();
        config.worker.listen = "127.0.0.1:0".parse().unwrap();
        config.worker.drain_ms = 5_000;
        change(&mut config);
        let (store, metrics) = open(url.to_owned()).await;
        let worker = Worker::new(&config, store, metrics).unwrap();
        let shutdown = Shutdown::manual();
        Running {
            id: worker.id().to_string(),
            url: format!("http://{}", worker.address().unwrap()),
            task: tokio::spawn(worker.run(shutdown.clone())),
            shutdown,
        }
    }

    /// Submits a chat whose answer the script describes.
    pub(crate) async fn chat(&self, script: &Script) -> JobId {
        self.submit(Endpoint::ChatCompletions, chat_body(script), |_| ())
            .await
    }

    /// Submits a job.
    pub(crate) async fn submit(
        &self,
        endpoint: Endpoint,
        body: Value,
        change: impl FnOnce(&mut Submit),
    ) -> JobId {
        let envelope = Envelope {
            endpoint,
            body: body.to_string().into_bytes(),
            metadata: String::new(),
            webhook_url: String::new(),
            traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        };
        let mut submit = Submit {
            id: JobId::mint(&self.pool),
            tenant: "acme".into(),
            class: "default".into(),
            priority: 0,
            delay_ms: 0,
            deadline_ms: 0,
            timeout_ms: 0,
            max_attempts: 3,
            model: "m".into(),
            idempotency: Idempotency::default(),
            envelope: envelope.to_bytes(),
        };
        change(&mut submit);
        assert_eq!(
            self.store.submit(&submit).await.unwrap(),
            SubmitReply::Accepted
        );
        submit.id
    }

    /// The job as it is now.
    pub(crate) async fn job(&self, id: &JobId) -> Job {
        let read = Read {
            id: id.clone(),
            tenant: None,
        };
        loop {
            match self.store.read(&read).await {
                Ok(ReadReply::Job { job, .. }) => return *job,
                Ok(ReadReply::Unknown) => panic!("{id} is unknown"),
                // A test may have taken the store away for a while.
                Err(error) => assert!(error.is_unavailable(), "{error}"),
            }
        }
    }

    /// The job once it is as wanted.
    pub(crate) async fn until(&self, id: &JobId, wanted: impl Fn(&Job) -> bool) -> Job {
        let mut watch = self.store.hints().job(id).await;
        let looking = async {
            loop {
                let job = self.job(id).await;
                if wanted(&job) {
                    return job;
                }
                let _ = tokio::time::timeout(LOOK_AGAIN, watch.next()).await;
            }
        };
        match tokio::time::timeout(LONG, looking).await {
            Ok(job) => job,
            Err(_) => panic!("never as wanted: {:#?}", self.job(id).await),
        }
    }

    /// The job once it is terminal.
    pub(crate) async fn end(&self, id: &JobId) -> Job {
        self.until(id, |job| job.state.is_terminal()).await
    }

    /// The job once it has succeeded, and its result.
    pub(crate) async fn success(&self, id: &JobId) -> (Job, Vec<u8>) {
        let job = self.end(id).await;
        assert_eq!(job.state, State::Succeeded, "{job:#?}");
        let result = self.store.result(id).await.unwrap().unwrap();
        (job, result)
    }
}

/// A chat whose answer the script describes.
pub(crate) fn chat_body(script: &Script) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": format!("hello {script}")}]})
}

/// The text of a chat's result.
pub(crate) fn text_of(result: &[u8]) -> String {
    let result: Value = serde_json::from_slice(result).unwrap();
    result["choices"][0]["message"]["content"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// A worker that runs. Dropped, it closes everything at once.
pub(crate) struct Running {
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) shutdown: Shutdown,
    task: JoinHandle<Result<(), WorkerError>>,
}

impl Running {
    /// What its listener answers.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let answer = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) {
        tokio::time::timeout(LONG, &mut self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    /// Drains it and waits for its end.
    pub(crate) async fn stop(self) {
        self.shutdown.start_drain();
        self.ended().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
