//! Every setting with its kind and bounds: the one table behind file, environment, flags and the API's bodies.

use super::names::{self, Rule};

/// A day, in milliseconds.
const DAY_MS: u64 = 86_400_000;
/// A year of 365 days, in milliseconds: the longest retention; beyond it a queue is used as an archive.
const YEAR_MS: u64 = 365 * DAY_MS;
/// Ports and sockets of one fleet stay far below; also keeps every sum of slots in 32 bits.
const MAX_SLOTS: u64 = 100_000;
/// Queue depth at which one Redis has been measured to answer in milliseconds.
const MAX_JOBS: u64 = 10_000_000;
/// Far below 2^53, the largest integer that Lua and JSON keep exact.
const MAX_TOKENS: u64 = 1_000_000_000_000;
/// One kibibyte.
const KIB: u64 = 1024;
/// One gibibyte: a body is held in memory.
const GIB: u64 = 1 << 30;

/// What an integer counts; decides the words of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Ms,
    Bytes,
    Count,
}

/// What a setting's value must be.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// An integer in `min..=max`.
    Int {
        min: u64,
        max: u64,
        unit: Unit,
    },
    /// A number above (`open`) or from `min` to (below, when `open`) `max`.
    Number {
        min: f64,
        max: f64,
        open: bool,
    },
    Flag,
    Text(Rule),
    List {
        min: usize,
        max: usize,
        item: Rule,
    },
    Choice(&'static [&'static str]),
}

/// One setting of a section.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
}

/// One section; `*` in its path stands for a name.
pub(crate) struct Section {
    pub(crate) path: &'static [&'static str],
    pub(crate) settings: &'static [Setting],
}

const fn ms(key: &'static str, min: u64, max: u64) -> Setting {
    Setting {
        key,
        kind: Kind::Int {
            min,
            max,
            unit: Unit::Ms,
        },
    }
}

const fn bytes(key: &'static str, min: u64, max: u64) -> Setting {
    Setting {
        key,
        kind: Kind::Int {
            min,
            max,
            unit: Unit::Bytes,
        },
    }
}

const fn count(key: &'static str, min: u64, max: u64) -> Setting {
    Setting {
        key,
        kind: Kind::Int {
            min,
            max,
            unit: Unit::Count,
        },
    }
}

const fn text(key: &'static str, rule: Rule) -> Setting {
    Setting {
        key,
        kind: Kind::Text(rule),
    }
}

const fn list(key: &'static str, min: usize, max: usize, item: Rule) -> Setting {
    Setting {
        key,
        kind: Kind::List { min, max, item },
    }
}

const fn choice(key: &'static str, values: &'static [&'static str]) -> Setting {
    Setting {
        key,
        kind: Kind::Choice(values),
    }
}

const fn flag(key: &'static str) -> Setting {
    Setting {
        key,
        kind: Kind::Flag,
    }
}

/// Every section, in the order of the documented file.
pub(crate) static SECTIONS: [Section; 7] = [
    Section {
        path: &["store"],
        settings: STORE,
    },
    Section {
        path: &["ingress"],
        settings: INGRESS,
    },
    Section {
        path: &["worker"],
        settings: WORKER,
    },
    Section {
        path: &["reaper"],
        settings: REAPER,
    },
    Section {
        path: &["pools", "*"],
        settings: POOL,
    },
    Section {
        path: &["pools", "*", "classes", "*"],
        settings: CLASS,
    },
    Section {
        path: &["tenants", "*"],
        settings: TENANT,
    },
];

static STORE: &[Setting] = &[
    text("url", names::store_url),
    choice("mode", &["single", "cluster", "sentinel"]),
    choice("durability", &["strict", "relaxed", "replicated"]),
    count("replicas", 1, 10),
    count("max_connections", 2, 1024),
    ms("command_timeout_ms", 50, 60_000),
    text("master_name", names::label),
    text("ca_file", names::text),
    text("password_file", names::text),
    flag("audit"),
];

static INGRESS: &[Setting] = &[
    text("listen", names::listen),
    text("admin_listen", names::listen_or_none),
    bytes("max_body_bytes", KIB, GIB),
    count("max_depth", 4, 128),
    ms("header_timeout_ms", 100, 300_000),
    ms("body_timeout_ms", 100, 3_600_000),
    ms("drain_ms", 0, 3_600_000),
    text("storage", names::storage),
    choice("auth", &["keys", "open"]),
];

static WORKER: &[Setting] = &[
    text("listen", names::listen),
    text("name", names::label),
    list("pools", 1, 64, names::pool_name),
    count("concurrency", 0, 10_000),
    bytes("max_response_bytes", KIB, GIB),
    ms("drain_ms", 0, 3_600_000),
    list("backends", 0, 64, names::backend),
];

static REAPER: &[Setting] = &[text("listen", names::listen), ms("pass_ms", 50, 60_000)];

static POOL: &[Setting] = &[
    list("models", 1, 256, names::model_name),
    list("backends", 0, 64, names::backend),
    count("slots", 0, MAX_SLOTS),
    count("inflight_tokens", 0, MAX_TOKENS),
    count("tokens_per_minute", 0, MAX_TOKENS),
    flag("blocked"),
    count("max_queued", 1, MAX_JOBS),
    ms("demand_horizon_ms", 0, DAY_MS),
    bytes("max_queued_bytes", KIB, 1 << 40),
    ms("lease_ms", 500, 3_600_000),
    ms("renew_ms", 50, 1_200_000),
    count("max_attempts", 1, 100),
    count("max_lost_leases", 1, 100),
    ms("backoff_ms", 1, 3_600_000),
    ms("backoff_max_ms", 1, DAY_MS),
    ms("connect_ms", 10, 300_000),
    ms("first_byte_ms", 10, DAY_MS),
    ms("between_chunks_ms", 10, DAY_MS),
    ms("total_ms", 10, 7 * DAY_MS),
    ms("result_retention_ms", 1_000, YEAR_MS),
    ms("record_retention_ms", 0, YEAR_MS),
    ms("idempotency_ms", 0, YEAR_MS),
    count("max_dead_letters", 1, MAX_JOBS),
    ms("dead_letter_retention_ms", 1_000, YEAR_MS),
    choice("estimate", &["worst_case", "adaptive", "quantile"]),
    Setting {
        key: "quantile",
        kind: Kind::Number {
            min: 0.0,
            max: 1.0,
            open: true,
        },
    },
    Setting {
        key: "safety_factor",
        kind: Kind::Number {
            min: 1.0,
            max: 100.0,
            open: false,
        },
    },
    count("default_output_tokens", 1, 10_000_000),
    ms("max_bypass_ms", 0, DAY_MS),
    text("gate", names::text),
];

static CLASS: &[Setting] = &[
    count("rank", 0, 1_000),
    count("floor", 0, MAX_SLOTS),
    count("ceiling", 0, MAX_SLOTS),
    count("floor_tokens", 0, MAX_TOKENS),
    count("ceiling_tokens", 0, MAX_TOKENS),
    ms("max_wait_ms", 0, 7 * DAY_MS),
    choice("when_limited", &["reject", "wait"]),
    flag("lend"),
];

static TENANT: &[Setting] = &[
    count("weight", 1, 10_000),
    count("requests_per_minute", 0, 1_000_000_000),
    count("tokens_per_minute", 0, MAX_TOKENS),
    ms("burst_ms", 1, DAY_MS),
    count("max_running", 0, MAX_SLOTS),
    count("max_queued", 0, MAX_JOBS),
    Setting {
        key: "budget_usd",
        kind: Kind::Number {
            min: 0.0,
            max: 1e9,
            open: false,
        },
    },
    ms("budget_window_ms", 1_000, YEAR_MS),
    list("pools", 1, 64, names::pool_or_all),
];

/// What a path of the file, the environment or a flag stands for.
pub(crate) enum Place {
    /// A section, or the way to one.
    Section,
    /// A setting.
    Setting(&'static Setting),
    /// Nothing: the words of the refusal.
    Unknown(String),
}

/// Finds what `path` stands for. A wrong name of a pool, class or tenant is a refusal of its own.
pub(crate) fn resolve(path: &[String]) -> Place {
    if let Some(refusal) = wrong_name(path) {
        return Place::Unknown(refusal);
    }
    let fits = |section: &Section, length: usize| {
        section.path.len() >= length
            && section
                .path
                .iter()
                .zip(&path[..length])
                .all(|(known, given)| *known == "*" || known == given)
    };
    if SECTIONS.iter().any(|section| fits(section, path.len())) {
        return Place::Section;
    }
    let Some((last, parent)) = path.split_last() else {
        return Place::Section;
    };
    // The first word that is wrong is the one to talk about.
    if !SECTIONS.iter().any(|section| fits(section, parent.len())) {
        return match resolve(parent) {
            Place::Setting(_) => {
                Place::Unknown(format!("{} is a key, not a section", parent.join(".")))
            }
            unknown => unknown,
        };
    }
    let home = SECTIONS
        .iter()
        .find(|section| section.path.len() == parent.len() && fits(section, parent.len()));
    if let Some(setting) =
        home.and_then(|section| section.settings.iter().find(|setting| setting.key == last))
    {
        return Place::Setting(setting);
    }
    let below = SECTIONS
        .iter()
        .filter(|section| section.path.len() > parent.len() && fits(section, parent.len()));
    let mut known: Vec<&str> = home
        .map(|section| section.settings.iter().map(|s| s.key).collect())
        .unwrap_or_default();
    known.extend(
        below
            .map(|section| section.path[parent.len()])
            .filter(|name| *name != "*"),
    );
    known.dedup();
    let what = if home.is_some() { "key" } else { "section" };
    Place::Unknown(match names::nearest(last, known.iter().copied()) {
        Some(meant) => format!("unknown {what}; did you mean \"{meant}\"?"),
        None if known.is_empty() => format!("unknown {what}"),
        None => format!("unknown {what}; known here: {}", known.join(", ")),
    })
}

/// The refusal of a name that stands where a section has `*`.
fn wrong_name(path: &[String]) -> Option<String> {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    let (what, name, rule): (_, _, Rule) = match words.as_slice() {
        ["pools", _, "classes", name, ..] => ("class", name, names::class_name),
        ["pools", name, ..] => ("pool", name, names::pool_name),
        ["tenants", name, ..] => ("tenant", name, names::tenant_name),
        _ => return None,
    };
    rule(name).err().map(|right| {
        format!(
            "\"{}\" is no name of a {what}; it must be {right}",
            shorten(name)
        )
    })
}

/// A value short enough for one line of an error.
pub(crate) fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 64;
    let mut short: String = text
        .chars()
        .take(MAX_CHARS)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}
