//! What a pool looks like: everything that a step may change, without what differs from run to run.

use std::collections::BTreeMap;

use tidegate_shared::domain::{JobId, PoolName};
use tidegate_shared::protocol::{Fact, Inspect};
use tidegate_shared::store::Store;

/// Names and values; two are compared whole.
pub(crate) type View = BTreeMap<String, String>;

/// Times and orders: whether there is one is looked at, not which.
const VARY: [&str; 12] = [
    "created_at",
    "due_at",
    "deadline_at",
    "started_at",
    "ended_at",
    "claimed_at",
    "requeued_at",
    "requeued_by",
    "owner",
    "worker",
    "settled_by",
    "order",
];

/// The pool's counts and all of `jobs`, in a form that is the same in every run.
pub(crate) async fn normal(store: &Store, pool: &PoolName, jobs: &[JobId]) -> View {
    let mut view = View::new();
    let counts = store.snapshot(pool).await.unwrap();
    let numbers = [
        ("version", counts.version),
        ("paused", counts.paused.into()),
        ("draining", counts.draining.into()),
        ("slots", counts.slots),
        ("slots_used", counts.slots_used),
        ("queued", counts.queued),
        ("scheduled", counts.scheduled),
        ("dead", counts.dead),
        ("ended", counts.ended),
        ("jobs", counts.jobs),
        ("owed_bytes", counts.owed_bytes),
        ("workers", counts.workers),
        ("evicted", counts.evicted),
        ("poisoned", counts.poisoned),
        ("lapsed", counts.lapsed),
    ];
    view.extend(numbers.map(|(name, n)| (format!("pool {name}"), n.to_string())));
    for (at, id) in jobs.iter().enumerate() {
        let mut note = |name: &str, value: String| {
            view.insert(format!("job {at} {name}"), value);
        };
        let result = store.result(id).await.unwrap();
        note("result", format!("{:?}", result.map(|r| r.len())));
        let events = store.events(id, None, 100).await.unwrap();
        let events: Vec<_> = events.into_iter().map(|e| (e.id, e.data.len())).collect();
        note("events", format!("{events:?}"));
        let Some(fact) = fact(store, id).await else {
            continue;
        };
        note("places", fact.places.join(" "));
        note("request", fact.has_envelope.to_string());
        note("kept", (fact.ttl_ms >= 0).to_string());
        note("owns", (!fact.owned.is_empty()).to_string());
        for (name, value) in &fact.fields {
            note(name, same_in_every_run(name, value));
        }
    }
    view
}

fn same_in_every_run(name: &str, value: &str) -> String {
    let is_delivery = name
        .strip_prefix('d')
        .is_some_and(|fence| fence.parse::<u64>().is_ok());
    if is_delivery {
        // worker, claimed at, ended at, outcome
        return value.split(' ').nth(3).unwrap_or("runs").to_owned();
    }
    if VARY.contains(&name) {
        return if value.is_empty() { "none" } else { "some" }.to_owned();
    }
    value.to_owned()
}

/// One job's record.
pub(crate) async fn fact(store: &Store, id: &JobId) -> Option<Fact> {
    let look = Inspect {
        pool: id.pool().clone(),
        index: format!("job:{}", id.bare()),
        start: 0,
        count: 1,
    };
    let reply = store.inspect(&look).await.unwrap();
    let fact = reply.facts.into_iter().next()?;
    (!fact.fields.is_empty()).then_some(fact)
}

/// All of `jobs` to the last letter: what a delivery that is over must leave as it is.
pub(crate) async fn exact(store: &Store, jobs: &[JobId]) -> View {
    let mut view = View::new();
    for (at, id) in jobs.iter().enumerate() {
        let events = store.events(id, None, 100).await.unwrap();
        view.insert(format!("job {at} events"), format!("{events:?}"));
        let result = store.result(id).await.unwrap();
        view.insert(format!("job {at} result"), format!("{result:?}"));
        if let Some(fact) = fact(store, id).await {
            view.insert(format!("job {at} places"), fact.places.join(" "));
            view.insert(format!("job {at} owned"), fact.owned.clone());
            let fields = fact.fields.into_iter();
            view.extend(fields.map(|(name, value)| (format!("job {at} {name}"), value)));
        }
    }
    view
}

/// What differs, in lines; empty where both are the same.
pub(crate) fn difference(expected: &View, seen: &View) -> String {
    let names: std::collections::BTreeSet<_> = expected.keys().chain(seen.keys()).collect();
    names
        .into_iter()
        .filter(|name| expected.get(*name) != seen.get(*name))
        .map(|name| {
            format!(
                "\n    {name}: expected {:?}, is {:?}",
                expected.get(name),
                seen.get(name)
            )
        })
        .collect()
}
