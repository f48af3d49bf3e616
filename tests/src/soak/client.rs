//! The clients: each lives one story over HTTP, tries again as a careful client does, and notes what it saw.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::history::{Asked, Came, Event, History, Shown};
use super::story::{Cancel, Story, TENANTS};
use crate::Reply;

/// One call without a wait may take so long: longer than the ingress may try the store.
const CALL: Duration = Duration::from_secs(10);
/// One long-poll, in seconds; the call gets [`CALL`] more.
const POLL_S: u64 = 5;
/// A client that does not get its job accepted, or see it end, by then gives up; the lists at the end show it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before a further try.
pub(super) const PAUSE: Duration = Duration::from_millis(60);
/// Events of one job that are read at most, in bytes: far above any story's answer.
const EVENTS_MAX: usize = 1024 * 1024;

/// Where the ingresses listen now.
pub(crate) type Bases = Arc<Mutex<Vec<String>>>;

/// What all clients share.
#[derive(Debug)]
pub(crate) struct Clients {
    http: reqwest::Client,
    bases: Bases,
    turn: AtomicUsize,
    pub(super) keys: Vec<String>,
    operator: String,
    pub(crate) history: History,
    /// Clients that wait for the end of a job right now.
    pub(crate) waiting: AtomicUsize,
    /// While it is true no further story begins, so that workers have nothing to do for a moment.
    pub(crate) lull: watch::Sender<bool>,
}

impl Clients {
    pub(crate) fn new(bases: Bases, keys: Vec<String>, operator: String, history: History) -> Self {
        Self {
            http: reqwest::Client::builder()
                .timeout(CALL)
                .no_proxy()
                .build()
                .expect("a plain client needs nothing"),
            bases,
            turn: AtomicUsize::new(0),
            keys,
            operator,
            history,
            waiting: AtomicUsize::new(0),
            lull: watch::Sender::new(false),
        }
    }

    pub(super) fn request(&self, method: &str, path: &str, key: &str) -> RequestBuilder {
        let bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // Where none listens the call fails as it does at a closed port.
        let base = match bases.len() {
            0 => "http://127.0.0.1:9",
            all => &bases[turn % all],
        };
        let method = method.parse().expect("a method of the tests");
        self.http
            .request(method, format!("{base}{path}"))
            .bearer_auth(key)
    }

    /// Reads as an operator, who sees all tenants.
    pub(crate) async fn operator_get(&self, path: &str) -> Option<Reply> {
        send(self.request("GET", path, &self.operator)).await
    }

    /// Lives one story.
    pub(crate) async fn live(&self, story: &Story) {
        let Some(id) = self.submit(story).await else {
            return;
        };
        if let Cancel::After(ms) = story.cancel {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            self.cancel(story, &id).await;
        }
        if story.peek {
            self.peek(story, &id).await;
        }
        if story.follow {
            self.follow(story, &id).await;
        }
        if !story.watch {
            return;
        }
        let mut left = story.requeues;
        while let Some(end) = self.ends(story, &id).await {
            if !end.dead || left == 0 {
                return;
            }
            left -= 1;
            let first = self.requeue(story, &id, left, 0);
            if story.requeue_twice {
                let ((), ()) = tokio::join!(first, self.requeue(story, &id, left, 1));
            } else {
                first.await;
            }
        }
    }

    /// Waits for the end. None where it does not come in the client's patience.
    async fn ends(&self, story: &Story, id: &str) -> Option<Shown> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let call = self.history.invoke(story.n, Asked::Read, id);
            let request = self
                .request(
                    "GET",
                    &format!("/v1/jobs/{id}?wait={POLL_S}"),
                    &self.keys[story.tenant],
                )
                .timeout(CALL + Duration::from_secs(POLL_S));
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let reply = send(request).await;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let mut event = event(story, call, Asked::Read);
            event.job = id.into();
            let answered = reply.as_ref().is_some_and(|reply| reply.status != 503);
            match &reply {
                Some(reply) if reply.status == 200 => {
                    let job = reply.json();
                    event.came = Came::Ok;
                    event.said = job["status"].as_str().unwrap_or_default().into();
                    event.shown = Shown::of(&job);
                    event.wrong = mixed_up(story, id, &job);
                }
                Some(reply) => {
                    event.said = reply.code();
                    if reply.status != 503 {
                        event.wrong =
                            format!("an accepted job reads {}: {}", reply.status, reply.text());
                    }
                }
                None => {}
            }
            let shown = event.shown.clone();
            self.history.note(event);
            if shown.is_some() {
                return shown;
            }
            if !answered {
                tokio::time::sleep(PAUSE).await;
            }
        }
        None
    }

    async fn cancel(&self, story: &Story, id: &str) {
        let call = self.history.invoke(story.n, Asked::Cancel, id);
        let path = format!("/v1/jobs/{id}/cancel");
        let reply = send(self.request("POST", &path, &self.keys[story.tenant])).await;
        let mut event = event(story, call, Asked::Cancel);
        event.job = id.into();
        if let Some(reply) = reply {
            match reply.status {
                200 => {
                    let job = reply.json();
                    event.came = Came::Ok;
                    event.said = job["status"].as_str().unwrap_or_default().into();
                    event.shown = Shown::of(&job);
                    event.wrong = mixed_up(story, id, &job);
                    if event.shown.is_none() && job["cancel_requested"] != true {
                        event.wrong =
                            format!("a cancel was answered with neither end nor request: {job}");
                    }
                }
                503 => event.said = reply.code(),
                status => event.wrong = format!("a cancel was answered {status}: {}", reply.text()),
            }
        }
        self.history.note(event);
    }

    async fn requeue(&self, story: &Story, id: &str, life: u32, operation: u32) {
        let call = self.history.invoke(story.n, Asked::Requeue, id);
        let path = format!("/v1/dead-letters/{id}/requeue");
        let operation = format!("requeue-{}-{life}-{operation}", story.n);
        let request = self
            .request("POST", &path, &self.operator)
            .header("idempotency-key", operation);
        let reply = send(request).await;
        let mut event = event(story, call, Asked::Requeue);
        event.job = id.into();
        if let Some(reply) = reply {
            event.said = reply.code();
            match reply.status {
                200 => event.came = Came::Ok,
                503 if reply.code() == "queue_full" => event.came = Came::Fail,
                409 => event.came = Came::Fail,
                503 => {}
                status => {
                    event.wrong = format!("a requeue was answered {status}: {}", reply.text())
                }
            }
        }
        self.history.note(event);
    }

    /// Another tenant's job reads like one that never was.
    async fn peek(&self, story: &Story, id: &str) {
        let other = (story.tenant + 1) % TENANTS.len();
        let call = self.history.invoke(story.n, Asked::Peek, id);
        let reply = send(self.request("GET", &format!("/v1/jobs/{id}"), &self.keys[other])).await;
        let mut event = event(story, call, Asked::Peek);
        event.job = id.into();
        if let Some(reply) = reply {
            event.said = reply.code();
            match reply.status {
                404 => event.came = Came::Ok,
                503 => {}
                status => event.wrong = format!("another tenant's job was answered {status}"),
            }
        }
        self.history.note(event);
    }

    /// Reads the job's events until its end or the first cut.
    async fn follow(&self, story: &Story, id: &str) {
        let call = self.history.invoke(story.n, Asked::Follow, id);
        let request = self
            .request(
                "GET",
                &format!("/v1/jobs/{id}/events"),
                &self.keys[story.tenant],
            )
            .timeout(PATIENCE);
        let mut event = event(story, call, Asked::Follow);
        event.job = id.into();
        if let Ok(mut response) = request.send().await {
            let mut seen = Vec::new();
            while let Ok(Some(piece)) = response.chunk().await {
                seen.extend_from_slice(&piece);
                if seen.len() > EVENTS_MAX {
                    event.wrong = "more events than the answer has".into();
                    break;
                }
            }
            let text = String::from_utf8_lossy(&seen);
            if let Some(end) = text.split("event: terminal").nth(1) {
                let data = end.lines().find_map(|line| line.strip_prefix("data: "));
                let job: Value = data
                    .and_then(|data| serde_json::from_str(data).ok())
                    .unwrap_or_default();
                event.came = Came::Ok;
                event.said = job["status"].as_str().unwrap_or_default().into();
                event.shown = Shown::of(&job);
            }
        }
        self.history.note(event);
    }
}

/// What came of a call, still unknown.
pub(super) fn event(story: &Story, call: u64, asked: Asked) -> Event {
    Event {
        at_us: 0,
        n: story.n,
        call,
        asked,
        came: Came::Unknown,
        job: String::new(),
        said: String::new(),
        shown: None,
        wrong: String::new(),
    }
}

/// Says what of an answer belongs to another job; empty where all is right.
fn mixed_up(story: &Story, id: &str, job: &Value) -> String {
    if job["id"] != id {
        return format!("{id} was answered with {}", job["id"]);
    }
    if job["tenant"] != TENANTS[story.tenant] {
        return format!(
            "{id} is of {} and reads as of {}",
            TENANTS[story.tenant], job["tenant"]
        );
    }
    // A cancel's answer has no result, a read's has the model's.
    let text = job["result"]["choices"][0]["message"]["content"].as_str();
    match text {
        Some(text) if !text.contains(&story.mark()) => format!("{id} has another's answer: {text}"),
        _ => String::new(),
    }
}

/// The answer; none where no whole one came.
pub(super) async fn send(request: RequestBuilder) -> Option<Reply> {
    let response = request.send().await.ok()?;
    Some(Reply {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.bytes().await.ok()?,
    })
}
