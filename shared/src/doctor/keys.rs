//! What the name of a key says about how long it may live.

use crate::protocol::SCHEMA;

/// How long a key may live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Bounded by live jobs or by definitions.
    Bounded,
    /// It must have a TTL.
    Expires,
    /// As long as that job is owed, else it must have a TTL. The name of its pool, and its bare id.
    WithJob {
        pool: String,
        id: String,
        is_record: bool,
    },
    /// No key of ours.
    Unknown,
}

/// A pool's keys that are bounded by its jobs, its workers or its definition.
const BOUNDED: [&str; 15] = [
    "pool",
    "state",
    "jobs",
    "due",
    "leases",
    "owners",
    "deadlines",
    "dead",
    "ended",
    "suspects",
    "spent",
    "workers",
    "marker",
    "levels",
    "audit",
];

/// Reads a key's name.
pub(super) fn life(key: &str) -> Life {
    let prefix = format!("tg{SCHEMA}:{{");
    let Some((tag, name)) = key
        .strip_prefix(&prefix)
        .and_then(|rest| rest.split_once("}:"))
    else {
        return Life::Unknown;
    };
    let (kind, rest) = name.split_once(':').unwrap_or((name, ""));
    if tag.starts_with('_') {
        return match kind {
            "pools" | "keys" => Life::Bounded,
            "idempotency" => Life::Expires,
            _ => Life::Unknown,
        };
    }
    match kind {
        _ if BOUNDED.contains(&name) => Life::Bounded,
        "ready" | "tenant" if !rest.is_empty() => Life::Bounded,
        "result" | "idempotency" | "worker" | "confirmed" => Life::Expires,
        "job" | "envelope" | "events" => Life::WithJob {
            pool: tag.to_owned(),
            id: rest.to_owned(),
            is_record: kind == "job",
        },
        _ => Life::Unknown,
    }
}
