//! A steady load of short jobs, each sent again under its key until it is stored, with every answer kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Api, LONG, job};

/// Between two tries of one submission.
const AGAIN: Duration = Duration::from_millis(100);
/// No answer may take longer, whatever the store does: the command time-out and what a busy machine adds.
pub(crate) const HANG: Duration = Duration::from_secs(5);

/// One answer to a submission.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    pub(crate) status: u16,
    code: String,
    retry_after: String,
}

/// One job and all answers until it was stored.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) tag: String,
    pub(crate) id: String,
    pub(crate) answers: Vec<Answer>,
}

/// A running load.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Vec<Sent>>,
}

impl Load {
    /// Begins to send one job in each interval; each keeps the model for `work_ms`.
    pub(crate) fn start(api: &Api, name: &'static str, every: Duration, work_ms: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (api, stopped) = (api.clone(), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            let mut all = Vec::new();
            let mut ticks = tokio::time::interval(every);
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                let tag = format!("{name}{}", all.len());
                let script = Script::tag(&tag).sleep_ms(work_ms);
                all.push(tokio::spawn(send(api.clone(), tag, job(script))));
            }
            let mut sent = Vec::new();
            for one in all {
                sent.push(one.await.unwrap());
            }
            sent
        });
        Self { stop, task }
    }

    /// Sends no more, and gives what was answered once everything is stored.
    pub(crate) async fn stop(self) -> Vec<Sent> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

async fn send(api: Api, tag: String, submission: Value) -> Sent {
    let start = Instant::now();
    let mut answers = Vec::new();
    loop {
        let request = api.request("POST", "/v1/jobs").json(&submission);
        let asked = Instant::now();
        let reply = api.send(request.header("idempotency-key", &tag)).await;
        answers.push(Answer {
            at: Instant::now(),
            took: asked.elapsed(),
            status: reply.status,
            code: reply.code(),
            retry_after: reply.header("retry-after").to_owned(),
        });
        if matches!(reply.status, 200 | 202) {
            let stored = reply.json();
            api.note(&stored);
            let id = stored["id"].as_str().unwrap().to_owned();
            return Sent { tag, id, answers };
        }
        assert!(start.elapsed() < LONG, "{tag} is never stored: {answers:?}");
        tokio::time::sleep(AGAIN).await;
    }
}

/// Every answer came in time, and each that did not accept says when to come again.
#[track_caller]
pub(crate) fn nobody_hung_or_was_misled(sent: &[Sent], codes: &[&str]) {
    for answer in sent.iter().flat_map(|sent| &sent.answers) {
        assert!(answer.took <= HANG, "{answer:?}");
        if matches!(answer.status, 200 | 202) {
            continue;
        }
        assert!(matches!(answer.status, 429 | 503), "{answer:?}");
        assert!(codes.contains(&&*answer.code), "{answer:?}");
        let seconds: u64 = answer.retry_after.parse().unwrap_or(0);
        assert!(seconds >= 1, "{answer:?}");
    }
}

/// How many answers did not accept.
pub(crate) fn refusals(sent: &[Sent]) -> usize {
    let answers = sent.iter().flat_map(|sent| &sent.answers);
    answers.filter(|a| !matches!(a.status, 200 | 202)).count()
}

/// How long after `usable` the first job was accepted.
pub(crate) fn accepted_after(sent: &[Sent], usable: Instant) -> Duration {
    let answers = sent.iter().flat_map(|sent| &sent.answers);
    let accepted = answers.filter(|a| matches!(a.status, 200 | 202) && a.at >= usable);
    let first = accepted
        .map(|a| a.at)
        .min()
        .expect("a job was accepted after it");
    first - usable
}
