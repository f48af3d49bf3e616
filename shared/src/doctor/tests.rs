//! Each check, on facts as they should be and on facts that are broken: a check that cannot fail would be none.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::Invariant::*;
use super::job::{self, Moment};
use super::keys::{self, Life};
use super::{Invariant, Status, Tally, pool, server};
use crate::config::{Durability, PoolConfig};
use crate::domain::PoolName;
use crate::protocol::{Fact, SnapshotReply};
use crate::store::{PoolDef, ServerFacts};

const NOW: u64 = 1_000_000;
const AT: Moment = Moment {
    now_ms: NOW,
    lapsed_ms: NOW,
};
const ID: &str = "0123456789abcdefghjkmnpqrs";

fn gpu() -> PoolName {
    "gpu".parse().unwrap()
}

/// A record with these fields beside those that all have.
fn fact(places: &[&str], ttl_ms: i64, fields: &[(&str, &str)]) -> Fact {
    let common = [
        ("tenant", "acme"),
        ("class", "default"),
        ("priority", "5"),
        ("seq", "7"),
        ("bytes", "10"),
        ("created_at", "900000"),
        ("max_attempts", "3"),
    ];
    let fields = common
        .iter()
        .chain(fields)
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let places = ["jobs", "tenant"]
        .iter()
        .chain(places)
        .map(|place| (*place).to_owned());
    Fact {
        id: ID.into(),
        score: "7".into(),
        places: places.collect(),
        owned: String::new(),
        has_envelope: true,
        ttl_ms,
        fields: fields.collect(),
    }
}

fn queued() -> Fact {
    fact(&["ready:5"], -1, &[("state", "queued")])
}

fn scheduled() -> Fact {
    fact(
        &["due"],
        -1,
        &[("state", "scheduled"), ("due_at", "1000500")],
    )
}

fn running() -> Fact {
    let fields = [
        ("state", "running"),
        ("fence", "2"),
        ("owner", "o2"),
        ("worker", "w_b"),
        ("due_at", "950000"),
        ("deadline_at", "1200000"),
        ("d1", "w_a 910000 920000 retry"),
        ("d2", "w_b 960000"),
    ];
    Fact {
        owned: ID.into(),
        ..fact(&["leases", "deadlines"], -1, &fields)
    }
}

fn succeeded() -> Fact {
    let fields = [
        ("state", "succeeded"),
        ("fence", "1"),
        ("owner", ""),
        ("worker", "w_a"),
        ("ended_at", "970000"),
        ("d1", "w_a 960000 970000 succeed"),
    ];
    fact(&["ended"], 1_000, &fields)
}

fn dead() -> Fact {
    let fields = [
        ("state", "failed"),
        ("dead", "upstream"),
        ("fence", "1"),
        ("worker", "w_a"),
        ("ended_at", "970000"),
        ("d1", "w_a 960000 970000 dead"),
    ];
    fact(&["dead"], 1_000, &fields)
}

fn set(fact: &mut Fact, name: &str, value: &str) {
    fact.fields.insert(name.into(), value.into());
}

fn invariants(found: Vec<super::invariant::Against>) -> Vec<Invariant> {
    found.into_iter().map(|against| against.invariant).collect()
}

#[test]
fn nothing_is_found_where_all_is_well() {
    for fact in [queued(), scheduled(), running(), succeeded(), dead()] {
        assert_eq!(
            job::record(&gpu(), &fact),
            [],
            "{:?}",
            fact.fields.get("state")
        );
        assert_eq!(job::entry(&gpu(), "jobs", &fact, AT), []);
        assert_eq!(job::twice(&fact, &fact), None);
    }
}

#[test]
fn each_broken_record_is_told_of() {
    type Break = fn(&mut Fact);
    let cases: [(&str, Invariant, Fact, Break); 25] = [
        ("in two sets", I1, queued(), |f| f.places.push("due".into())),
        ("in the wrong set", I1, running(), |f| {
            f.places[2] = "due".into()
        }),
        ("of no state", I1, queued(), |f| set(f, "state", "lost")),
        ("in the wrong line", I1, queued(), |f| {
            set(f, "priority", "6")
        }),
        ("ended, and in line", I1, succeeded(), |f| {
            f.places.push("ready:5".into())
        }),
        ("a terminal without an end", I2, succeeded(), |f| {
            set(f, "ended_at", "")
        }),
        ("an end without a terminal", I2, queued(), |f| {
            set(f, "ended_at", "1")
        }),
        ("succeeded, and dead", I2, succeeded(), |f| {
            set(f, "dead", "poison")
        }),
        ("ended twice", I3, succeeded(), |f| {
            set(f, "fence", "2");
            set(f, "d2", "w_b 980000 990000 succeed");
        }),
        ("answered, and expired", I3, succeeded(), |f| {
            set(f, "state", "expired")
        }),
        ("succeeded without an answer", I3, succeeded(), |f| {
            set(f, "d1", "w_a 960000 970000 fail")
        }),
        ("its fence fell", I4, running(), |f| set(f, "fence", "1")),
        ("deliveries out of order", I4, running(), |f| {
            set(f, "d1", "w_a 999000 999500 retry")
        }),
        ("runs without an owner", I5, running(), |f| {
            set(f, "owner", "")
        }),
        ("runs with a closed delivery", I5, running(), |f| {
            set(f, "d2", "w_b 960000 970000 release")
        }),
        ("runs with another's delivery", I5, running(), |f| {
            set(f, "d2", "w_c 960000")
        }),
        ("an old delivery is open", I5, running(), |f| {
            set(f, "d1", "w_a 910000")
        }),
        ("waits with an owner", I5, queued(), |f| {
            set(f, "owner", "o1")
        }),
        ("runs without a slot", I6, running(), |f| f.owned.clear()),
        ("in no index", I9, queued(), |f| {
            f.places.retain(|p| p != "jobs")
        }),
        ("a deadline that nobody watches", I9, running(), |f| {
            f.places.retain(|p| p != "deadlines")
        }),
        ("owed with a TTL", I10, queued(), |f| f.ttl_ms = 5),
        ("ended without a TTL", I10, dead(), |f| f.ttl_ms = -1),
        ("in no tenant's index", I11, queued(), |f| {
            f.places.retain(|p| p != "tenant")
        }),
        ("claimed too early", I13, running(), |f| {
            set(f, "due_at", "961000")
        }),
    ];
    for (what, invariant, mut fact, broken) in cases {
        broken(&mut fact);
        let found = invariants(job::record(&gpu(), &fact));
        assert!(found.contains(&invariant), "{what}: {found:?}");
    }
    let cases: [(&str, Break); 3] = [
        ("in no set", |f| f.places.retain(|p| p != "ready:5")),
        ("without its request", |f| f.has_envelope = false),
        ("without its request or set", |f| {
            f.has_envelope = false;
            f.places.truncate(2);
        }),
    ];
    for (what, broken) in cases {
        let mut fact = queued();
        broken(&mut fact);
        assert!(
            invariants(job::record(&gpu(), &fact)).contains(&I14),
            "{what}"
        );
    }
}

#[test]
fn each_broken_entry_is_told_of() {
    let score = |fact: Fact, score: u64| Fact {
        score: score.to_string(),
        ..fact
    };
    let gone = Fact {
        fields: BTreeMap::new(),
        ttl_ms: -2,
        ..queued()
    };
    let cases: [(&str, &str, Invariant, Fact); 14] = [
        ("no record", "ended", I9, gone),
        ("another place", "jobs", I9, score(queued(), 8)),
        (
            "no owner",
            "leases",
            I6,
            Fact {
                owned: String::new(),
                ..score(running(), NOW + 1)
            },
        ),
        (
            "lapsed long ago",
            "leases",
            I14,
            score(running(), NOW - 20_000),
        ),
        (
            "due at another time",
            "due",
            I13,
            score(scheduled(), 1_000_400),
        ),
        ("due long ago", "due", I14, score(scheduled(), NOW - 20_000)),
        (
            "another deadline",
            "deadlines",
            I9,
            score(running(), 1_100_000),
        ),
        (
            "ended, and watched",
            "deadlines",
            I9,
            score(succeeded(), 1_100_000),
        ),
        (
            "overdue long ago",
            "deadlines",
            I14,
            score(running(), NOW - 20_000),
        ),
        ("another place in line", "ready:5", I9, score(queued(), 6)),
        (
            "an owner that it does not know",
            "owners",
            I6,
            Fact {
                score: "o1".into(),
                ..running()
            },
        ),
        (
            "an owner of what does not run",
            "owners",
            I6,
            Fact {
                score: "o2".into(),
                ..queued()
            },
        ),
        ("another tenant's", "tenant:globex", I11, queued()),
        (
            "unreadable",
            "jobs",
            I1,
            Fact {
                id: "short".into(),
                ..queued()
            },
        ),
    ];
    for (what, index, invariant, fact) in cases {
        let found = invariants(job::entry(&gpu(), index, &fact, AT));
        assert!(found.contains(&invariant), "{what}: {found:?}");
    }
    let well: [(&str, Fact); 7] = [
        ("leases", score(running(), NOW + 1)),
        ("leases", score(running(), NOW - 500)),
        ("due", score(scheduled(), 1_000_500)),
        ("deadlines", score(running(), 1_200_000)),
        ("ready:5", queued()),
        (
            "owners",
            Fact {
                score: "o2".into(),
                ..running()
            },
        ),
        ("tenant:acme", queued()),
    ];
    for (index, fact) in well {
        assert_eq!(job::entry(&gpu(), index, &fact, AT), [], "{index}");
    }
}

#[test]
fn a_terminal_that_changes_between_two_looks_is_told_of() {
    let before = succeeded();
    let mut after = succeeded();
    set(&mut after, "state", "failed");
    assert_eq!(job::twice(&before, &after).unwrap().invariant, I2);
    set(&mut after, "lives", "1");
    assert_eq!(
        job::twice(&before, &after),
        None,
        "a person gave it a new life"
    );
}

fn counts(change: impl FnOnce(&mut SnapshotReply)) -> SnapshotReply {
    let mut counts = SnapshotReply {
        version: 1,
        slots: 32,
        ..SnapshotReply::default()
    };
    change(&mut counts);
    counts
}

#[test]
fn each_bound_that_is_passed_is_told_of() {
    type Break = fn(&mut SnapshotReply);
    let config = PoolConfig::default();
    assert_eq!(pool::counts(&counts(|_| {}), &config), []);
    let cases: [(Invariant, Break); 4] = [
        (I8, |c| c.jobs = 10_001),
        (I8, |c| c.owed_bytes = (1 << 30) + 1),
        (I8, |c| {
            c.jobs = 10_001;
            c.dead = 10_001;
        }),
        (I12, |c| c.slots_used = 33),
    ];
    for (invariant, broken) in cases {
        let mut counts = counts(broken);
        let found = pool::counts(&counts, &config);
        assert_eq!(
            (found[0].invariant, found[0].status),
            (invariant, Status::Fail)
        );
        counts.version = 2;
        assert_eq!(
            pool::counts(&counts, &config)[0].status,
            Status::Warn,
            "the bound may have been lowered"
        );
    }
    let still = counts(|c| c.owed_bytes = 10);
    assert_eq!(pool::bytes(&still, &still, 10), None);
    assert_eq!(pool::bytes(&still, &still, 11).unwrap().invariant, I8);
    let moved = counts(|c| c.owed_bytes = 12);
    assert_eq!(
        pool::bytes(&still, &moved, 11),
        None,
        "work went on in between"
    );
    assert_eq!(pool::level(3, 1, false).unwrap().invariant, I14);
    assert_eq!(pool::level(3, 0, false), None);
    assert_eq!(pool::level(3, 1, true), None);
}

fn statuses(found: &[super::Finding]) -> Vec<Status> {
    found.iter().map(|finding| finding.status).collect()
}

#[test]
fn settings_that_cannot_hold_are_told_of() {
    let def = |change: fn(&mut PoolDef)| {
        let mut def = PoolDef {
            version: 1,
            paused: false,
            draining: false,
            config: PoolConfig::default(),
        };
        change(&mut def);
        def
    };
    let judge = |def: &PoolDef, c: &SnapshotReply, file: Option<&PoolConfig>| {
        statuses(&pool::settings(&gpu(), def, c, file))
    };
    let well = counts(|_| {});
    let file = PoolConfig::default();
    assert_eq!(judge(&def(|_| {}), &well, Some(&file)), [Status::Pass; 2]);
    let slow = def(|d| d.config.renew_ms = 20_000);
    assert_eq!(judge(&slow, &well, None), [Status::Fail, Status::Pass]);
    let drifted = counts(|c| c.slots = 3);
    assert_eq!(
        judge(&def(|_| {}), &drifted, None),
        [Status::Fail, Status::Pass]
    );
    let other = PoolConfig {
        slots: 1,
        ..PoolConfig::default()
    };
    assert_eq!(
        judge(&def(|_| {}), &well, Some(&other)),
        [Status::Warn, Status::Pass]
    );
    let waiting = counts(|c| c.queued = 1);
    assert_eq!(
        judge(&def(|_| {}), &waiting, None),
        [Status::Pass, Status::Warn]
    );
    let served = counts(|c| (c.queued, c.workers) = (1, 1));
    assert_eq!(judge(&def(|_| {}), &served, None), [Status::Pass; 2]);
    assert_eq!(
        judge(&def(|d| d.paused = true), &served, None),
        [Status::Pass, Status::Warn]
    );
}

#[test]
fn a_server_that_cannot_keep_a_promise_is_told_of() {
    let well = ServerFacts {
        version: "7.0.15".into(),
        server: "redis".into(),
        role: "master".into(),
        appendonly: true,
        appendfsync: Some("always".into()),
        maxmemory: 1_000,
        maxmemory_policy: "noeviction".into(),
        used_memory: 100,
        replicas: 1,
    };
    assert_eq!(
        statuses(&server::judge(&well, Durability::Replicated, 1)),
        [Status::Pass; 6]
    );
    type Break = fn(&mut ServerFacts);
    let cases: [(&str, Status, Break); 12] = [
        ("redis.version", Status::Fail, |s| {
            s.version = "6.2.14".into()
        }),
        ("redis.version", Status::Fail, |s| s.version = String::new()),
        ("redis.role", Status::Fail, |s| s.role = "slave".into()),
        ("redis.eviction", Status::Fail, |s| {
            s.maxmemory_policy = "allkeys-lru".into()
        }),
        ("redis.eviction", Status::Warn, |s| {
            (s.maxmemory_policy, s.maxmemory) = ("volatile-lru".into(), 0)
        }),
        ("redis.persistence", Status::Fail, |s| s.appendonly = false),
        ("redis.persistence", Status::Fail, |s| {
            s.appendfsync = Some("everysec".into())
        }),
        ("redis.persistence", Status::Warn, |s| s.appendfsync = None),
        ("redis.replicas", Status::Fail, |s| s.replicas = 0),
        ("redis.memory", Status::Warn, |s| s.maxmemory = 0),
        ("redis.memory", Status::Warn, |s| s.used_memory = 950),
        ("redis.memory", Status::Fail, |s| s.used_memory = 1_000),
    ];
    for (id, status, broken) in cases {
        let mut server = well.clone();
        broken(&mut server);
        let found = server::judge(&server, Durability::Replicated, 1);
        let finding = found.iter().find(|finding| finding.id == id).unwrap();
        assert_eq!(finding.status, status, "{finding:?}");
        assert!(!finding.fix.is_empty(), "{finding:?}");
    }
    let everysec = ServerFacts {
        appendfsync: Some("everysec".into()),
        ..well
    };
    assert_eq!(
        statuses(&server::judge(&everysec, Durability::Relaxed, 1)),
        [Status::Pass; 5]
    );
}

#[test]
fn a_keys_name_says_how_long_it_may_live() {
    let with_job = |id: &str, is_record| Life::WithJob {
        pool: "gpu".into(),
        id: id.into(),
        is_record,
    };
    for (key, life) in [
        ("tg1:{gpu}:leases", Life::Bounded),
        ("tg1:{gpu}:ready:3", Life::Bounded),
        ("tg1:{gpu}:tenant:acme", Life::Bounded),
        ("tg1:{_directory}:pools", Life::Bounded),
        ("tg1:{gpu}:result:x", Life::Expires),
        ("tg1:{gpu}:idempotency:x", Life::Expires),
        ("tg1:{gpu}:worker:w", Life::Expires),
        ("tg1:{_directory}:idempotency:x", Life::Expires),
        ("tg1:{gpu}:job:x", with_job("x", true)),
        ("tg1:{gpu}:envelope:x", with_job("x", false)),
        ("tg1:{gpu}:events:x", with_job("x", false)),
        ("tg1:{gpu}:surprise", Life::Unknown),
        ("tg1:{gpu}:leases:x", Life::Unknown),
        ("tg1:surprise", Life::Unknown),
        ("other", Life::Unknown),
    ] {
        assert_eq!(keys::life(key), life, "{key}");
    }
}

#[test]
fn each_invariant_has_a_finding_and_examples_are_bounded() {
    let mut tally = Tally::default();
    for number in 0..40 {
        tally.note(
            &format!("job {number}"),
            super::invariant::Against::fail(I9, "has no record"),
        );
    }
    tally.note(
        "pool gpu",
        super::invariant::Against::warn(I12, "33 live leases"),
    );
    let found = tally.findings();
    let ids: Vec<_> = found.iter().map(|f| f.id.clone()).collect();
    let all: Vec<_> = (1..=14).map(|n| format!("I{n}")).collect();
    assert_eq!(ids, all);
    assert_eq!(
        (found[8].status, found[11].status),
        (Status::Fail, Status::Warn)
    );
    assert!(
        found[8].message.ends_with("and 35 more"),
        "{}",
        found[8].message
    );
    assert!(
        found[6].message.contains("no holds"),
        "it says what a pass rests on"
    );
    assert!(
        found
            .iter()
            .all(|f| (f.status == Status::Pass) == f.fix.is_empty())
    );
}
