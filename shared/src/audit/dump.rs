//! Everything that a pool keeps, as the server has it and as the reference says it should.
//!
//! A field that is zero or empty counts as one that is not there: no step tells the two apart. What a worker says of itself
//! is shown to people and read by no step; it is left out, and so is the record itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::domain::step::{Record, Scored, State};

/// One key's content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is one of Redis's types")]
pub enum Content {
    Fields(BTreeMap<String, String>),
    Scores(BTreeMap<String, u64>),
    Text(String),
    Stream(Vec<(String, String)>),
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    content: Content,
    /// When the server drops it by itself, by the server's clock.
    until_raw_ms: Option<u64>,
}

/// Keys, without the pool's prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump(BTreeMap<String, Key>);

impl Dump {
    /// What a key holds.
    pub fn content(&self, name: &str) -> Option<&Content> {
        self.0.get(name).map(|key| &key.content)
    }

    /// Leaves a key out, where the two sides cannot know the same.
    pub fn leave_out(&mut self, name: &str) {
        self.0.remove(name);
    }
}

/// A script reads TIME once, and the server may count a TTL from when the command runs: apart where the machine is busy.
const TTL_TOLERANCE_MS: u64 = 450;

/// Reads a piece of all keys of a pool: `KEYS[1]` is its prefix, `ARGV[1]` where to go on (0: at the beginning), `ARGV[2]` how
/// many keys at a time. Replies where to go on (0: that was all), [`Row`]s, and the server's clock in ms.
pub const SCRIPT: &str = r"
local out = {}
local piece = redis.call('SCAN', ARGV[1], 'MATCH', KEYS[1] .. ':*', 'COUNT', ARGV[2])
for _, k in ipairs(piece[2]) do
  local kind = redis.call('TYPE', k).ok
  local name = string.sub(k, #KEYS[1] + 2)
  local body
  if name == 'audit' then body = nil
  elseif kind == 'hash' then body = redis.call('HGETALL', k)
  elseif kind == 'zset' then body = redis.call('ZRANGE', k, 0, -1, 'WITHSCORES')
  elseif kind == 'string' then body = { redis.call('GET', k) }
  elseif kind == 'stream' then
    body = {}
    for _, e in ipairs(redis.call('XRANGE', k, '-', '+')) do body[#body + 1] = e[1]; body[#body + 1] = e[2][2] end
  end
  if body then out[#out + 1] = { name, kind, string.format('%.0f', redis.call('PEXPIRETIME', k)), body } end
end
local time = redis.call('TIME')
return { piece[1], out, string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)) }";

/// A key as [`SCRIPT`] gives it: its name, its type, when it is dropped, and what is in it.
pub type Row = (String, String, i64, Vec<Vec<u8>>);

/// A value for people: text as it is, other bytes escaped.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

impl Extend<Row> for Dump {
    fn extend<I: IntoIterator<Item = Row>>(&mut self, rows: I) {
        for (name, kind, expires_at, body) in rows {
            if name.starts_with("worker:") {
                continue;
            }
            let pairs = || {
                body.chunks_exact(2)
                    .map(|pair| (text(&pair[0]), text(&pair[1])))
            };
            let content = match kind.as_str() {
                "hash" => Content::Fields(pairs().collect()),
                "zset" => Content::Scores(
                    pairs()
                        .map(|(member, score)| (member, score.parse().unwrap_or(u64::MAX)))
                        .collect(),
                ),
                "stream" => Content::Stream(pairs().collect()),
                _ => Content::Text(body.first().map(|bytes| text(bytes)).unwrap_or_default()),
            };
            // Below zero: no TTL.
            let until_raw_ms = u64::try_from(expires_at).ok();
            put(self, name, content, until_raw_ms);
        }
    }
}

fn put(dump: &mut Dump, name: String, content: Content, until_raw_ms: Option<u64>) {
    let content = match content {
        Content::Fields(mut fields) => {
            fields.retain(|_, value| !value.is_empty() && value != "0");
            Content::Fields(fields)
        }
        other => other,
    };
    let empty = match &content {
        Content::Fields(fields) => fields.is_empty(),
        Content::Scores(scores) => scores.is_empty(),
        Content::Stream(pieces) => pieces.is_empty(),
        Content::Text(_) => false,
    };
    if !empty {
        let key = Key {
            content,
            until_raw_ms,
        };
        dump.0.insert(name, key);
    }
}

fn fields(pairs: &[(&str, String)]) -> Content {
    Content::Fields(
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
    )
}

fn scores(set: &Scored) -> Content {
    Content::Scores(
        set.iter()
            .map(|(member, score)| (member.to_owned(), score))
            .collect(),
    )
}

fn flag(on: bool) -> String {
    u8::from(on).to_string()
}

/// What the reference says the server should keep.
pub fn of_reference(state: &State) -> Dump {
    let mut dump = Dump::default();
    put_pool(&mut dump, state);
    for (id, record) in &state.jobs {
        put_job(&mut dump, id, record);
    }
    let sets = &state.sets;
    let mut named = vec![
        ("jobs".to_owned(), &sets.jobs),
        ("due".to_owned(), &sets.due),
        ("leases".to_owned(), &sets.leases),
        ("deadlines".to_owned(), &sets.deadlines),
        ("dead".to_owned(), &sets.dead),
        ("ended".to_owned(), &sets.ended),
        ("suspects".to_owned(), &state.suspects),
        ("spent".to_owned(), &state.spent),
        ("workers".to_owned(), &state.workers),
    ];
    named.extend(
        sets.tenants
            .iter()
            .map(|(t, set)| (format!("tenant:{t}"), set)),
    );
    named.extend(
        sets.ready
            .iter()
            .map(|(p, set)| (format!("ready:{p}"), set)),
    );
    for (name, set) in named {
        put(&mut dump, name, scores(set), None);
    }
    let levels = sets
        .levels
        .iter()
        .map(|p| (p.to_string(), u64::from(9 - p)));
    put(
        &mut dump,
        "levels".into(),
        Content::Scores(levels.collect()),
        None,
    );
    let owners = state.owners.clone();
    put(&mut dump, "owners".into(), Content::Fields(owners), None);
    if state.marker {
        let work = BTreeMap::from([("work".to_owned(), 0)]);
        put(&mut dump, "marker".into(), Content::Scores(work), None);
    }
    for (key, record) in &state.idempotency {
        let content = Content::Text(format!("{} {}", record.id, record.body_hash));
        put(
            &mut dump,
            format!("idempotency:{key}"),
            content,
            Some(record.until_raw_ms),
        );
    }
    dump
}

fn put_pool(dump: &mut Dump, state: &State) {
    if let Some(s) = &state.settings {
        let content = fields(&[
            ("def", s.def.clone()),
            ("version", s.version.to_string()),
            ("paused", flag(s.paused)),
            ("draining", flag(s.draining)),
            ("slots", s.slots.to_string()),
            ("max_queued", s.max_queued.to_string()),
            ("max_queued_bytes", s.max_queued_bytes.to_string()),
            ("lease_ms", s.lease_ms.to_string()),
            ("renew_ms", s.renew_ms.to_string()),
            ("max_lost_leases", s.max_lost_leases.to_string()),
            ("result_retention_ms", s.result_retention_ms.to_string()),
            ("record_retention_ms", s.record_retention_ms.to_string()),
            ("idempotency_ms", s.idempotency_ms.to_string()),
            ("max_dead_letters", s.max_dead_letters.to_string()),
            (
                "dead_letter_retention_ms",
                s.dead_letter_retention_ms.to_string(),
            ),
            ("demand_horizon_ms", s.demand_horizon_ms.to_string()),
        ]);
        put(dump, "pool".into(), content, None);
    }
    let (clock, counters, epoch) = (&state.clock, &state.counters, &state.epoch);
    let content = fields(&[
        ("clock", clock.last.to_string()),
        ("skew", clock.skew.to_string()),
        ("grace_from", clock.grace_from.to_string()),
        ("grace_until", clock.grace_until.to_string()),
        ("seq", counters.seq.to_string()),
        ("bytes", counters.bytes.to_string()),
        ("done_at", counters.done_at.to_string()),
        ("gap_ms", counters.gap_ms.to_string()),
        ("gaps", counters.gaps.to_string()),
        ("evicted", counters.evicted.to_string()),
        ("poisoned", counters.poisoned.to_string()),
        ("lapsed", counters.lapsed.to_string()),
        ("epoch", epoch.number.to_string()),
        ("lineage", epoch.lineage.clone()),
        ("lineage_before", epoch.lineage_before.clone()),
        ("passed_at", epoch.passed_at.to_string()),
        ("lost_from", epoch.lost_from.to_string()),
    ]);
    put(dump, "state".into(), content, None);
}

fn put_job(dump: &mut Dump, id: &str, r: &Record) {
    let mut content = fields(&[
        ("state", r.state.as_str().to_owned()),
        ("tenant", r.tenant.clone()),
        ("class", r.class.clone()),
        ("model", r.model.clone()),
        ("priority", r.priority.to_string()),
        ("seq", r.seq.to_string()),
        ("order", r.order.to_string()),
        ("bytes", r.bytes.to_string()),
        ("created_at", r.created_at.to_string()),
        ("started_at", r.started_at.to_string()),
        ("ended_at", r.ended_at.to_string()),
        ("due_at", r.due_at.to_string()),
        ("deadline_at", r.deadline_at.to_string()),
        ("timeout_ms", r.timeout_ms.to_string()),
        ("fence", r.fence.to_string()),
        ("owner", r.owner.clone()),
        ("worker", r.worker.clone()),
        ("claimed_at", r.claimed_at.to_string()),
        ("attempts", r.attempts.to_string()),
        ("max_attempts", r.max_attempts.to_string()),
        ("lost", r.lost.to_string()),
        ("blame", r.blame.to_string()),
        ("stops", r.stops.to_string()),
        ("cancel", flag(r.cancel)),
        ("follow", flag(r.follow)),
        ("backoff", flag(r.backoff)),
        ("progress", r.progress.to_string()),
        ("code", r.code.clone()),
        ("error", r.error.clone()),
        (
            "dead",
            r.dead.map(|d| d.as_str().to_owned()).unwrap_or_default(),
        ),
        ("settled_by", r.settled_by.clone()),
        ("input_tokens", r.input_tokens.unwrap_or(0).to_string()),
        ("output_tokens", r.output_tokens.unwrap_or(0).to_string()),
        ("estimated", flag(r.estimated)),
        ("content_type", r.content_type.clone()),
        ("result_expired", flag(r.result_expired)),
        ("requeued_by", r.requeued_by.clone()),
        ("requeued_at", r.requeued_at.to_string()),
        ("lives", r.lives.to_string()),
        ("events_bytes", r.events_bytes.to_string()),
    ]);
    if let Content::Fields(all) = &mut content {
        for (fence, handing) in &r.deliveries {
            let mut line = format!("{} {}", handing.worker, handing.claimed_at);
            if let Some((at, outcome)) = handing.ended {
                line = format!("{line} {at} {outcome}");
            }
            all.insert(format!("d{fence}"), line);
        }
    }
    put(dump, format!("job:{id}"), content, r.record_until_raw_ms);
    if let Some(envelope) = &r.envelope {
        let content = Content::Text(text(envelope));
        put(
            dump,
            format!("envelope:{id}"),
            content,
            r.envelope_until_raw_ms,
        );
    }
    if let Some(result) = &r.result {
        let content = Content::Text(text(result));
        put(dump, format!("result:{id}"), content, r.result_until_raw_ms);
    }
    let pieces = r
        .events
        .iter()
        .map(|p| (format!("{}-{}", p.fence, p.n), text(&p.data)));
    put(
        dump,
        format!("events:{id}"),
        Content::Stream(pieces.collect()),
        r.events_until_raw_ms,
    );
}

/// Says what differs at `raw_now_ms` of the server's clock; nothing where both are the same.
pub fn difference(server: &Dump, reference: &Dump, raw_now_ms: u64) -> Option<String> {
    let mut report = String::new();
    let names: BTreeSet<_> = server.0.keys().chain(reference.0.keys()).collect();
    for name in names {
        let (is, should) = (server.0.get(name), reference.0.get(name));
        let same = match (is, should) {
            (Some(is), Some(should)) => {
                let ttl_fits = match (is.until_raw_ms, should.until_raw_ms) {
                    (Some(a), Some(b)) => a.abs_diff(b) <= TTL_TOLERANCE_MS,
                    (a, b) => a == b,
                };
                is.content == should.content && ttl_fits
            }
            // The reference drops nothing by itself.
            (None, Some(should)) => should
                .until_raw_ms
                .is_some_and(|until| until <= raw_now_ms + TTL_TOLERANCE_MS),
            (Some(_), None) | (None, None) => false,
        };
        if !same {
            let _ = writeln!(
                report,
                "{name}\n  server:    {is:?}\n  reference: {should:?}"
            );
        }
    }
    (!report.is_empty()).then_some(report)
}
