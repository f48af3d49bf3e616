//! What must hold once nothing is owed: no key, slot or hold is left over, and every process is well.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_shared::domain::step::State;

use super::SLOTS;
use super::judge::tell;
use super::record::Observed;

/// More resident memory than this is a leak, in KiB: a role at rest has a tenth of it.
const MEMORY_MAX_KB: u64 = 512 * 1024;
/// Kinds of keys that stay while the pool does.
const OF_THE_POOL: [&str; 14] = [
    "pool", "state", "jobs", "tenant", "levels", "dead", "ended", "suspects", "workers", "worker",
    "marker", "audit", "events", "lineage",
];
/// Kinds that hold owed work alone: gone when none is owed.
const OF_OWED_WORK: [&str; 5] = ["leases", "owners", "due", "deadlines", "ready"];

/// The store has the keys that the record's end needs, and no other. Gives how many are too many or missing.
pub(super) fn keys(state: &State, observed: &Observed, findings: &mut Vec<String>) -> u64 {
    let jobs = state.jobs.values();
    let with = |has: fn(&tidegate_shared::domain::step::Record) -> bool| {
        jobs.clone().filter(|record| has(record)).count() as u64
    };
    let mut expected: BTreeMap<&str, u64> = BTreeMap::from([
        ("job", state.jobs.len() as u64),
        ("envelope", with(|record| record.envelope.is_some())),
        ("result", with(|record| record.result.is_some())),
        ("idempotency", state.idempotency.len() as u64),
    ]);
    expected.extend(OF_OWED_WORK.map(|kind| (kind, 0)));
    let mut wrong = Vec::new();
    let mut off = 0;
    for (kind, expected) in &expected {
        let there = observed.keys.get(*kind).copied().unwrap_or(0);
        if there != *expected {
            off += there.abs_diff(*expected);
            wrong.push(format!("{there} keys `{kind}`, {expected} are right"));
        }
    }
    for (kind, count) in &observed.keys {
        if !expected.contains_key(kind.as_str()) && !OF_THE_POOL.contains(&kind.as_str()) {
            off += count;
            wrong.push(format!("{count} keys of no known kind `{kind}`"));
        }
    }
    for key in &observed.lasting {
        let kind = key.split(':').nth(2).unwrap_or_default();
        if !OF_THE_POOL.contains(&kind) {
            off += 1;
            wrong.push(format!("`{key}` has no end"));
        }
    }
    tell("key", wrong, findings);
    off
}

/// How things stood, whatever the record says.
pub(super) fn standing(observed: &Observed, findings: &mut Vec<String>) {
    if !observed.stuck.is_empty() {
        findings.push(observed.stuck.clone());
    }
    for name in [
        "slots_used",
        "held_tokens",
        "queued",
        "scheduled",
        "running",
    ] {
        let left = observed.pool[name].as_u64().unwrap_or(0);
        if left > 0 {
            findings.push(format!("the pool at rest: {name} is {left}"));
        }
    }
    let bad = observed.doctor["findings"].as_array().into_iter().flatten();
    let bad: Vec<&Value> = bad.filter(|finding| finding["status"] != "pass").collect();
    for finding in &bad {
        findings.push(format!("doctor: {finding}"));
    }
    if bad.is_empty() && observed.doctor["ok"] != true {
        findings.push(format!("doctor is not content: {}", observed.doctor));
    }
    let most = u64::from(SLOTS) + observed.overlap;
    if observed.model_peak > most {
        findings.push(format!(
            "the model server saw {} calls at once; {SLOTS} slots and {} of dead or frozen workers allow {most}",
            observed.model_peak, observed.overlap
        ));
    }
    for process in &observed.processes {
        if !process.panic.is_empty() {
            findings.push(format!("{} panicked: {}", process.label, process.panic));
        }
        if !process.ended.is_empty() {
            findings.push(format!("a process ended by itself: {}", process.ended));
        }
        if process.peak_kb > MEMORY_MAX_KB {
            findings.push(format!(
                "{} had {} KiB of memory",
                process.label, process.peak_kb
            ));
        }
    }
    let broken = observed.broken_clients.iter();
    findings.extend(broken.map(|what| format!("a client of the test broke: {what}")));
}
