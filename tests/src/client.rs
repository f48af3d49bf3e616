//! Calls of the Jobs API, with a ledger that watches every terminal it is shown.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// One call may take so long: a long-poll and some.
const CALL: Duration = Duration::from_secs(70);
/// One long-poll.
const POLL_S: u64 = 5;

/// Whether a job is over.
pub fn terminal(job: &Value) -> bool {
    matches!(
        job["status"].as_str(),
        Some("succeeded" | "failed" | "cancelled" | "expired")
    )
}

/// The body of a chat with one prompt.
pub fn chat(prompt: impl ToString) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": prompt.to_string()}]})
}

/// A submission with one prompt.
pub fn job(prompt: impl ToString) -> Value {
    json!({"model": "m", "body": chat(prompt)})
}

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Reply {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e} in a {} answer: {}", self.status, self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Code of an error answer, or empty.
    pub fn code(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["error"]["code"].as_str().unwrap_or_default().into()
    }

    /// A header, or empty.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// What has been seen of the jobs.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Every accepted id, and its terminal once one was seen.
    jobs: BTreeMap<String, Option<Value>>,
}

impl Ledger {
    /// A terminal never changes, whoever looks and whenever.
    fn note(&mut self, job: &Value) {
        let Some(id) = job["id"].as_str() else { return };
        let seen = self.jobs.entry(id.to_owned()).or_default();
        if let Some(before) = seen {
            for member in [
                "status",
                "finished_at_ms",
                "error",
                "usage",
                "attempts",
                "dead",
            ] {
                assert_eq!(
                    before[member], job[member],
                    "`{member}` of a terminal changed: {before} then {job}"
                );
            }
        } else if terminal(job) {
            *seen = Some(job.clone());
        }
    }
}

/// Calls the ingresses in turn with one key.
#[derive(Clone, Debug)]
pub struct Api {
    http: reqwest::Client,
    bases: Arc<Mutex<Vec<String>>>,
    turn: Arc<AtomicUsize>,
    key: String,
    ledger: Arc<Mutex<Ledger>>,
}

impl Api {
    pub(crate) fn new(key: &str) -> Self {
        Self {
            http: reqwest::Client::builder()
                .timeout(CALL)
                .no_proxy()
                .build()
                .expect("a plain client needs nothing"),
            bases: Arc::default(),
            turn: Arc::default(),
            key: key.to_owned(),
            ledger: Arc::default(),
        }
    }

    fn bases(&self) -> MutexGuard<'_, Vec<String>> {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_base(&self, base: String) {
        self.bases().push(base);
    }

    pub(crate) fn remove_base(&self, base: &str) {
        self.bases().retain(|b| b != base);
    }

    /// Address of the next ingress.
    ///
    /// # Panics
    /// When there is none.
    pub fn base(&self) -> String {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let bases = self.bases();
        assert!(!bases.is_empty(), "no ingress is up");
        bases[turn % bases.len()].clone()
    }

    /// The key of the calls.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A call of the next ingress, yet to be sent.
    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().expect("a method of the tests");
        self.http
            .request(method, format!("{}{path}", self.base()))
            .bearer_auth(&self.key)
    }

    /// Sends a call and reads its answer.
    ///
    /// # Errors
    /// Where no whole answer came.
    pub async fn try_send(&self, request: reqwest::RequestBuilder) -> reqwest::Result<Reply> {
        let response = request.send().await?;
        Ok(Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await?,
        })
    }

    /// Reads an address of any process, without a key.
    ///
    /// # Errors
    /// Where no whole answer came.
    pub async fn plain(&self, url: &str) -> reqwest::Result<Reply> {
        self.try_send(self.http.get(url)).await
    }

    /// Sends a call that must be answered.
    ///
    /// # Panics
    /// When no whole answer comes.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        match self.try_send(request).await {
            Ok(reply) => reply,
            Err(error) => panic!("no answer: {error:?}"),
        }
    }

    /// Submits, whatever the answer. An accepted job enters the ledger.
    ///
    /// # Panics
    /// When no whole answer comes.
    pub async fn post(&self, submission: &Value) -> Reply {
        let reply = self
            .send(self.request("POST", "/v1/jobs").json(submission))
            .await;
        if matches!(reply.status, 200 | 202) {
            self.note(&reply.json());
        }
        reply
    }

    /// Submits a job that must be accepted, and gives its id.
    ///
    /// # Panics
    /// When it is not.
    pub async fn submit(&self, submission: &Value) -> String {
        let reply = self.post(submission).await;
        assert_eq!(reply.status, 202, "{}", reply.text());
        let id = reply.json()["id"].as_str().map(str::to_owned);
        id.expect("an accepted job has an id")
    }

    /// Submits under an idempotency key, as often as the store cannot say, and gives the id.
    ///
    /// # Panics
    /// When it is refused, or not accepted in time.
    pub async fn submit_until_stored(&self, key: &str, submission: &Value) -> String {
        let accepted = crate::until(crate::LONG, "the job is accepted", async || {
            let request = self.request("POST", "/v1/jobs").json(submission);
            let reply = self.send(request.header("idempotency-key", key)).await;
            let answered = matches!(reply.status, 200 | 202 | 503);
            assert!(answered, "{}", reply.text());
            (reply.status != 503).then(|| reply.json())
        })
        .await;
        self.note(&accepted);
        accepted["id"].as_str().expect("a job has an id").into()
    }

    /// Checks and remembers what was seen of a job.
    pub fn note(&self, job: &Value) {
        self.ledger().note(job);
    }

    /// The job begins a new life: its last terminal holds no longer.
    pub fn forget_terminal(&self, id: &str) {
        self.ledger().jobs.insert(id.to_owned(), None);
    }

    /// The job was removed for good: it is owed no longer.
    pub fn forget(&self, id: &str) {
        self.ledger().jobs.remove(id);
    }

    /// The ids of all accepted jobs.
    pub fn accepted(&self) -> Vec<String> {
        self.ledger().jobs.keys().cloned().collect()
    }

    /// The job as it is.
    ///
    /// # Panics
    /// When it is not shown.
    pub async fn get(&self, id: &str) -> Value {
        self.look(id, 0).await
    }

    async fn look(&self, id: &str, wait_s: u64) -> Value {
        let path = match wait_s {
            0 => format!("/v1/jobs/{id}"),
            s => format!("/v1/jobs/{id}?wait={s}"),
        };
        let reply = self.send(self.request("GET", &path)).await;
        assert_eq!(reply.status, 200, "{id}: {}", reply.text());
        let job = reply.json();
        self.note(&job);
        job
    }

    /// Waits for the job's terminal.
    ///
    /// # Panics
    /// When there is none within `limit`; the message shows the job.
    pub async fn ends(&self, id: &str, limit: Duration) -> Value {
        let start = Instant::now();
        loop {
            let job = self.look(id, POLL_S.min(limit.as_secs().max(1))).await;
            if terminal(&job) {
                return job;
            }
            assert!(
                start.elapsed() < limit,
                "not over within {limit:?}: {job:#}"
            );
        }
    }

    /// Waits until the job has the status.
    ///
    /// # Panics
    /// When it has not within `limit`.
    pub async fn becomes(&self, id: &str, status: &str, limit: Duration) -> Value {
        crate::until(limit, &format!("{id} is {status}"), async || {
            let job = self.get(id).await;
            (job["status"] == status).then_some(job)
        })
        .await
    }

    /// The result's bytes.
    ///
    /// # Panics
    /// When there is none.
    pub async fn result(&self, id: &str) -> Bytes {
        let request = self.request("GET", &format!("/v1/jobs/{id}/result"));
        let reply = self.send(request).await;
        assert_eq!(reply.status, 200, "{id}: {}", reply.text());
        reply.body
    }

    /// The text that the model gave.
    ///
    /// # Panics
    /// When there is none.
    pub async fn answer(&self, id: &str) -> String {
        let body: Value =
            serde_json::from_slice(&self.result(id).await).expect("a chat's result is JSON");
        let text = body["choices"][0]["message"]["content"].as_str();
        text.unwrap_or_else(|| panic!("no text in {body}")).into()
    }

    /// Asks for a cancel.
    ///
    /// # Panics
    /// When no whole answer comes.
    pub async fn cancel(&self, id: &str) -> Reply {
        let request = self.request("POST", &format!("/v1/jobs/{id}/cancel"));
        let reply = self.send(request).await;
        if reply.status == 200 {
            self.note(&reply.json());
        }
        reply
    }
}
