//! What several scenarios need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_loadtest::gpu::{Call, Script};
use tidegate_tests::{Rig, SOON};

/// The rig's lease and its two reaper passes.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
pub(crate) const PASS: Duration = Duration::from_millis(500);
/// The rig's renewal interval.
pub(crate) const RENEW: Duration = Duration::from_millis(500);
/// What a busy machine may add to a time limit of the product.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);

/// What a worker sends to settle a job as succeeded, on the wire.
pub(crate) const SUCCEED: &[u8] = b"$7\r\nsucceed\r\n";
/// What the store answers to a claim that gave work, on the wire.
pub(crate) const DELIVERIES: &[u8] = b"$10\r\ndeliveries\r\n";

/// Scripts for the first call, the second call, and so on, of one tag.
pub(crate) fn sequence(scripts: &[Script]) -> String {
    scripts.iter().map(ToString::to_string).collect()
}

/// The n-th call (from 1) of a tag, once it is being worked on.
pub(crate) async fn call(rig: &Rig, tag: &str, n: usize) -> Call {
    tidegate_tests::until(SOON, &format!("call {n} of {tag}"), async || {
        let calls = rig.gpu.calls_tagged(tag);
        calls
            .into_iter()
            .nth(n - 1)
            .filter(|c| c.started_ms.is_some())
    })
    .await
}

/// The n-th call (from 1) of a tag, once it is over.
pub(crate) async fn call_ended(rig: &Rig, tag: &str, n: usize, within: Duration) -> Call {
    tidegate_tests::until(within, &format!("call {n} of {tag} ends"), async || {
        let calls = rig.gpu.calls_tagged(tag);
        calls.into_iter().nth(n - 1).filter(Call::ended)
    })
    .await
}

/// How the deliveries of a job ended, in order.
pub(crate) fn outcomes(job: &Value) -> Vec<String> {
    let deliveries = job["deliveries"].as_array().cloned().unwrap_or_default();
    deliveries
        .iter()
        .map(|d| d["outcome"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Ids of the workers that had a job, in order.
pub(crate) fn workers_of(job: &Value) -> Vec<String> {
    let deliveries = job["deliveries"].as_array().cloned().unwrap_or_default();
    deliveries
        .iter()
        .map(|d| d["worker"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Each reaper's metric says how many leases lapsed while it watched, whoever found them.
pub(crate) async fn lapses_are_counted(rig: &Rig, lost: usize) {
    let name = "tidegate_lease_expirations_total";
    for reaper in &rig.reapers {
        let start = std::time::Instant::now();
        loop {
            let counted = rig.metric(&reaper.url, name).await;
            if counted.to_string() == lost.to_string() {
                break;
            }
            let late = start.elapsed() > SOON;
            assert!(!late, "{counted} counted by {}, {lost} lost", reaper.label);
            tokio::time::sleep(PASS).await;
        }
    }
}

/// Runs a scenario that only a machine with time to spare can judge. A try in which this very process was not run for
/// longer than `stall` proves nothing where it fails, and is made again, twice at most.
pub(crate) async fn on_a_calm_machine<F: Future<Output = ()> + Send + 'static>(
    stall: Duration,
    scenario: impl Fn() -> F,
) {
    for _ in 0..2 {
        let longest = Arc::new(AtomicU64::new(0));
        let measured = Arc::clone(&longest);
        let meter = tokio::spawn(async move {
            loop {
                let start = Instant::now();
                tokio::time::sleep(TICK).await;
                let late = start.elapsed().saturating_sub(TICK).as_micros();
                measured.fetch_max(u64::try_from(late).unwrap(), Ordering::Relaxed);
            }
        });
        let tried = tokio::spawn(scenario()).await;
        meter.abort();
        let longest = Duration::from_micros(longest.load(Ordering::Relaxed));
        match tried {
            Ok(()) => return,
            Err(_) if longest > stall => {
                eprintln!("made again: the machine stood still for {longest:?}");
            }
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    scenario().await;
}

/// How often the stall of a machine is looked for.
const TICK: Duration = Duration::from_millis(5);

/// A job that ran once, well, and was never handed out again.
pub(crate) fn ran_just_once(job: &Value) {
    assert_eq!(job["status"], "succeeded", "{job:#}");
    assert_eq!(job["attempts"], 1, "{job:#}");
    assert_eq!(outcomes(job), ["succeed"], "{job:#}");
}

/// The error of a refusal that is the caller's own.
#[track_caller]
pub(crate) fn refused_naming(reply: &tidegate_tests::Reply, status: u16, names: &str) {
    let text = reply.text();
    assert_eq!(reply.status, status, "{text}");
    let body = reply.json();
    assert_eq!(
        reply.header("content-type"),
        "application/problem+json",
        "{text}"
    );
    for member in ["message", "type", "code"] {
        assert!(body["error"][member].is_string(), "{member} in {text}");
    }
    assert_eq!(body["status"], status, "{text}");
    let param = body["error"]["param"].as_str().unwrap_or_default();
    let message = body["error"]["message"].as_str().unwrap_or_default();
    assert!(
        param.contains(names) || message.contains(names),
        "`{names}` is not named in {text}"
    );
}
