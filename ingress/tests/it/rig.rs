//! A private store, ingresses over it, and clients of them. Workers are played by hand, step by step.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tidegate_ingress::Ingress;
use tidegate_shared::config::{Config, PoolConfig, StoreUrl};
use tidegate_shared::domain::{DeadReason, JobId, Owner, PoolName, Usage, Verdict, WorkerId};
use tidegate_shared::local::{LocalOptions, LocalServer};
use tidegate_shared::protocol::{
    Append, AppendReply, Claim, ClaimReply, Delivery, Settle, SettleReply,
};
use tidegate_shared::shutdown::Shutdown;
use tidegate_shared::store::{ApiKeyRecord, Scope, Store};
use tidegate_shared::telemetry::Metrics;
use tokio::task::JoinHandle;

/// Far beyond what anything here takes.
pub const LONG: Duration = Duration::from_secs(20);

pub struct Rig {
    pub server: LocalServer,
    pub store: Store,
    pub config: Config,
    pub base: String,
    pub shutdown: Shutdown,
    pub running: JoinHandle<()>,
    pub http: reqwest::Client,
    key: String,
}

pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub fn code(&self) -> String {
        self.json()["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

pub fn default_pool() -> PoolName {
    "default".parse().unwrap()
}

pub fn pool_config() -> PoolConfig {
    PoolConfig {
        slots: 4,
        max_queued: 200,
        ..PoolConfig::default()
    }
}

/// A chat submission.
pub fn chat(text: &str) -> Value {
    json!({"body": {"model": "m", "messages": [{"role": "user", "content": text}]}})
}

impl Rig {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let server = tokio::task::spawn_blocking(|| LocalServer::start(LocalOptions::default()))
            .await
            .unwrap()
            .unwrap();
        let mut config = Config::default();
        config.store.url = StoreUrl::new(server.url());
        config.ingress.listen = "127.0.0.1:0".parse().unwrap();
        config.ingress.drain_ms = 5000;
        change(&mut config);
        let metrics = Arc::new(Metrics::new("test"));
        let store = Store::connect(&config.store, Arc::clone(&metrics))
            .await
            .unwrap();
        store.apply(&default_pool(), &pool_config()).await.unwrap();
        let ingress = Ingress::bind(&config, store.clone(), metrics)
            .await
            .unwrap();
        let base = format!("http://{}", ingress.addr());
        let shutdown = Shutdown::manual();
        let running = tokio::spawn(ingress.run(shutdown.clone()));
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(LONG)
            .build()
            .unwrap();
        let mut rig = Self {
            server,
            store,
            config,
            base,
            shutdown,
            running,
            http,
            key: String::new(),
        };
        rig.key = rig.key_of("acme", &[Scope::Jobs]).await;
        rig
    }

    /// One more ingress over the same store.
    pub async fn another(&self) -> String {
        let metrics = Arc::new(Metrics::new("test"));
        let ingress = Ingress::bind(&self.config, self.store.clone(), metrics)
            .await
            .unwrap();
        let base = format!("http://{}", ingress.addr());
        tokio::spawn(ingress.run(self.shutdown.clone()));
        base
    }

    pub async fn key_of(&self, tenant: &str, scopes: &[Scope]) -> String {
        let (record, key) = ApiKeyRecord::mint(tenant, scopes.to_vec(), 0, None);
        self.store.put_key(&record).await.unwrap();
        key
    }

    /// A call of tenant acme, who may use jobs.
    pub fn call(&self, method: &str, path: &str) -> RequestBuilder {
        self.call_as(&self.key, method, path)
    }

    pub fn call_as(&self, key: &str, method: &str, path: &str) -> RequestBuilder {
        let method: Method = method.parse().unwrap();
        self.http
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(key)
    }

    pub async fn get(&self, path: &str) -> Reply {
        send(self.call("GET", path)).await
    }

    pub async fn post(&self, submission: &Value) -> Reply {
        send(self.call("POST", "/v1/jobs").json(submission)).await
    }

    /// Submits a job that must be accepted.
    pub async fn submit(&self, submission: &Value) -> JobId {
        let reply = self.post(submission).await;
        assert_eq!(reply.status, 202, "{}", reply.text());
        reply.json()["id"].as_str().unwrap().parse().unwrap()
    }

    pub async fn claim(&self) -> Delivery {
        let step = Claim {
            pool: default_pool(),
            worker: WorkerId::mint(),
            owners: vec![Owner::mint()],
        };
        match self.store.claim(&step).await.unwrap() {
            ClaimReply::Deliveries(mut all) => all.remove(0),
            other => panic!("nothing to claim: {other:?}"),
        }
    }

    pub async fn append(&self, delivery: &Delivery, first: u64, pieces: &[&str]) {
        let step = Append {
            id: delivery.id.clone(),
            fence: delivery.fence,
            owner: delivery.owner.clone(),
            first,
            max_bytes: 4 << 20,
            pieces: pieces
                .iter()
                .map(|piece| piece.as_bytes().to_vec())
                .collect(),
        };
        assert_eq!(
            self.store.append(&step).await.unwrap(),
            AppendReply::Appended
        );
    }

    pub async fn settle(
        &self,
        delivery: &Delivery,
        verdict: Verdict,
        result: &[u8],
        error: &str,
    ) -> SettleReply {
        let step = Settle {
            id: delivery.id.clone(),
            fence: delivery.fence,
            owner: delivery.owner.clone(),
            verdict,
            delay_ms: 0,
            reason: DeadReason::AttemptsExhausted,
            code: String::new(),
            error: error.to_owned(),
            usage: Some(Usage {
                input_tokens: 3,
                output_tokens: 4,
                estimated: false,
            }),
            content_type: "application/json".into(),
            result: result.to_vec(),
            next: None,
        };
        self.store.settle(&step).await.unwrap()
    }

    /// Runs the next job to its success.
    pub async fn succeed(&self, result: &[u8]) {
        let delivery = self.claim().await;
        self.settle(&delivery, Verdict::Succeed, result, "").await;
    }

    /// Drains the ingress, which must end by itself.
    pub async fn stop(self) {
        self.shutdown.start_drain();
        tokio::time::timeout(LONG, self.running)
            .await
            .expect("the ingress ends")
            .unwrap();
    }
}

pub async fn send(request: RequestBuilder) -> Reply {
    let response = request.send().await.unwrap();
    Reply {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        bytes: response.bytes().await.unwrap().to_vec(),
    }
}

/// A refusal has both shapes and names the field.
pub fn assert_refused(reply: &Reply, status: u16, code: &str, param: Option<&str>) {
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (status, code),
        "{}",
        reply.text()
    );
    assert_eq!(reply.header("content-type"), "application/problem+json");
    assert!(!reply.header("x-request-id").is_empty());
    let body = reply.json();
    for member in ["type", "title", "status", "detail", "instance"] {
        assert!(body.get(member).is_some(), "{member}: {body}");
    }
    assert_eq!(body["error"]["param"].as_str(), param, "{body}");
    assert_eq!(body["error"]["message"], body["detail"]);
}
