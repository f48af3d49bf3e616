//! `doctor` on a real store, sound and then broken in each way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_shared::config::{Config, PoolConfig, StoreConfig, StoreUrl};
use tidegate_shared::doctor::{Finding, Status, examine};
use tidegate_shared::domain::{DeadReason, JobId, Owner, PoolName, Verdict, WorkerId};
use tidegate_shared::local::{LocalOptions, LocalServer};
use tidegate_shared::protocol::{
    Append, Beat, Cancel, Claim, ClaimReply, Delivery, Follow, Idempotency, Settle, Submit,
    SubmitReply, base,
};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;

/// A store with a job in every state.
struct Clinic {
    server: LocalServer,
    store: Store,
    pool: PoolName,
    /// A job in each state, and `owner`: of the one that runs.
    names: BTreeMap<&'static str, String>,
}

impl Clinic {
    async fn open() -> Self {
        let server = LocalServer::start(LocalOptions {
            durable: true,
            settings: vec![("maxmemory".into(), "256mb".into())],
            ..LocalOptions::default()
        })
        .unwrap();
        let config = StoreConfig {
            url: StoreUrl::new(server.url()),
            ..StoreConfig::default()
        };
        let store = Store::connect(&config, Arc::new(Metrics::new("test")))
            .await
            .unwrap();
        let mut clinic = Self {
            server,
            store,
            pool: "gpu".parse().unwrap(),
            names: BTreeMap::new(),
        };
        clinic.fill().await;
        clinic
    }

    /// Empties the store and fills it again.
    async fn fill(&mut self) {
        self.command("FLUSHALL");
        self.names.clear();
        self.store
            .apply(&self.pool, &PoolConfig::default())
            .await
            .unwrap();
        let beat = Beat {
            pool: self.pool.clone(),
            worker: WorkerId::mint(),
            gone: false,
            info: "{}".into(),
        };
        self.store.beat(&beat).await.unwrap();
        for (name, verdict) in [
            ("succeeded", Verdict::Succeed),
            ("dead", Verdict::Dead),
            ("backing_off", Verdict::Retry),
        ] {
            let one = self.runs(name).await;
            self.settles(&one, verdict).await;
        }
        let one = self.runs("running").await;
        self.names.insert("owner", one.owner.expose().to_owned());
        let cancelled = self.submits("cancelled", 0).await;
        let cancel = Cancel {
            id: cancelled,
            tenant: None,
        };
        self.store.cancel(&cancel).await.unwrap();
        self.submits("queued", 0).await;
        self.submits("scheduled", 3_600_000).await;
    }

    async fn submits(&mut self, name: &'static str, delay_ms: u64) -> JobId {
        let id = JobId::mint(&self.pool);
        self.names.insert(name, id.bare().to_owned());
        let step = Submit {
            delay_ms,
            idempotency: Idempotency {
                key_hash: format!("k{name}"),
                body_hash: "b".into(),
            },
            ..self.submit(id.clone())
        };
        assert_eq!(
            self.store.submit(&step).await.unwrap(),
            SubmitReply::Accepted
        );
        id
    }

    fn submit(&self, id: JobId) -> Submit {
        Submit {
            id,
            tenant: "acme".into(),
            class: "default".into(),
            priority: 0,
            delay_ms: 0,
            deadline_ms: 7_200_000,
            timeout_ms: 0,
            max_attempts: 3,
            model: "m".into(),
            idempotency: Idempotency::default(),
            envelope: vec![1; 10],
        }
    }

    async fn runs(&mut self, name: &'static str) -> Delivery {
        let id = self.submits(name, 0).await;
        let claim = Claim {
            pool: self.pool.clone(),
            worker: WorkerId::mint(),
            owners: vec![Owner::mint()],
        };
        let ClaimReply::Deliveries(mut all) = self.store.claim(&claim).await.unwrap() else {
            panic!("nothing to claim");
        };
        let one = all.remove(0);
        assert_eq!(one.id, id);
        self.store
            .follow(&Follow { id, tenant: None })
            .await
            .unwrap();
        let append = Append {
            id: one.id.clone(),
            fence: one.fence,
            owner: one.owner.clone(),
            first: 1,
            max_bytes: 100,
            pieces: vec![vec![b'x']],
        };
        self.store.append(&append).await.unwrap();
        one
    }

    async fn settles(&self, one: &Delivery, verdict: Verdict) {
        let step = Settle {
            id: one.id.clone(),
            fence: one.fence,
            owner: one.owner.clone(),
            verdict,
            delay_ms: 3_600_000,
            reason: DeadReason::Upstream,
            code: "upstream_error".into(),
            error: String::new(),
            usage: None,
            content_type: "application/json".into(),
            result: b"{}".to_vec(),
            next: None,
        };
        self.store.settle(&step).await.unwrap();
    }

    /// Runs a command. Words are split at spaces, `|` is one inside a word; `{name}` stands for a job's bare id, and a
    /// word that begins with `:` is a key of the pool.
    fn command(&self, line: &str) {
        let mut connection = redis::Client::open(self.server.url())
            .unwrap()
            .get_connection()
            .unwrap();
        let words: Vec<String> = line
            .split(' ')
            .map(|word| {
                let mut word = word.replace('|', " ");
                for (name, value) in &self.names {
                    word = word.replace(&format!("{{{name}}}"), value);
                }
                if word.starts_with(':') {
                    format!("{}{word}", base(&self.pool))
                } else {
                    word
                }
            })
            .collect();
        let mut command = redis::cmd(&words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        let _: redis::Value = command.query(&mut connection).unwrap();
    }

    /// A job is submitted, and some job is taken and ended, in one of several ways.
    async fn one_life(&self, number: u64) {
        let id = JobId::mint(&self.pool);
        let submit = Submit {
            priority: (number % 10) as u8,
            delay_ms: number % 3,
            deadline_ms: 60_000,
            ..self.submit(id.clone())
        };
        self.store.submit(&submit).await.unwrap();
        if number.is_multiple_of(5) {
            self.store
                .cancel(&Cancel { id, tenant: None })
                .await
                .unwrap();
        }
        let claim = Claim {
            pool: self.pool.clone(),
            worker: WorkerId::mint(),
            owners: vec![Owner::mint()],
        };
        if let ClaimReply::Deliveries(all) = self.store.claim(&claim).await.unwrap() {
            let verdict = Verdict::ALL[(number % Verdict::ALL.len() as u64) as usize];
            self.settles(&all[0], verdict).await;
        }
    }

    async fn findings(&self) -> Vec<Finding> {
        examine(&self.store, None).await
    }
}

fn status(found: &[Finding], id: &str) -> Status {
    let of_id: Vec<_> = found.iter().filter(|finding| finding.id == id).collect();
    assert!(!of_id.is_empty(), "no finding `{id}`: {found:#?}");
    of_id.iter().map(|finding| finding.status).max().unwrap()
}

#[tokio::test]
async fn a_sound_store_passes_every_check() {
    let clinic = Clinic::open().await;
    let found = clinic.findings().await;
    let others: Vec<_> = found
        .iter()
        .filter(|finding| finding.status != Status::Pass)
        .collect();
    assert!(others.is_empty(), "{others:#?}");
    for id in [
        "I1",
        "I7",
        "I14",
        "redis.version",
        "redis.scripts",
        "keys.ttl",
        "pools.gpu.settings",
        "pools.gpu.workers",
    ] {
        assert_eq!(status(&found, id), Status::Pass);
    }
    let mut file = Config::default();
    file.pools.insert("gpu".into(), PoolConfig::default());
    assert_eq!(
        status(
            &examine(&clinic.store, Some(&file)).await,
            "pools.gpu.settings"
        ),
        Status::Pass
    );
    file.pools.insert("other".into(), PoolConfig::default());
    assert_eq!(
        status(
            &examine(&clinic.store, Some(&file)).await,
            "pools.other.settings"
        ),
        Status::Warn
    );
}

/// What is done to the store by hand, and the finding that must tell of it.
const BREAKS: [(&str, Status, &str); 38] = [
    ("I1", Status::Fail, "ZADD :due 9999999999999 {queued}"),
    ("I1", Status::Fail, "ZADD :ready:0 1 {succeeded}"),
    ("I1", Status::Fail, "HSET :job:{queued} state surprise"),
    ("I1", Status::Fail, "ZREM :ended {succeeded}"),
    ("I2", Status::Fail, "HDEL :job:{succeeded} ended_at"),
    ("I2", Status::Fail, "HSET :job:{succeeded} dead poison"),
    ("I3", Status::Fail, "HSET :job:{succeeded} state expired"),
    (
        "I3",
        Status::Fail,
        "HSET :job:{dead} fence 3 d2 w_a|1|2|fail d3 w_a|3|4|dead",
    ),
    ("I4", Status::Fail, "HSET :job:{running} fence 7"),
    ("I4", Status::Fail, "HDEL :job:{succeeded} fence"),
    (
        "I5",
        Status::Fail,
        "HSET :job:{queued} owner 0123456789abcdefghjkmnpqrs",
    ),
    ("I5", Status::Fail, "HDEL :job:{running} owner"),
    ("I6", Status::Fail, "HDEL :owners {owner}"),
    ("I6", Status::Fail, "HSET :owners somebody {running}"),
    ("I6", Status::Fail, "HSET :owners somebody {queued}"),
    ("I8", Status::Fail, "HSET :state bytes 9999999999"),
    ("I8", Status::Fail, "HINCRBY :state bytes 1"),
    ("I9", Status::Fail, "DEL :job:{queued}"),
    ("I9", Status::Fail, "DEL :job:{succeeded}"),
    (
        "I9",
        Status::Fail,
        "ZADD :jobs 99 0123456789abcdefghjkmnpqrs",
    ),
    ("I9", Status::Fail, "ZREM :deadlines {queued}"),
    ("I9", Status::Fail, "ZREM :jobs {queued}"),
    ("I9", Status::Fail, "ZADD :ready:0 1 {queued}"),
    (
        "I9",
        Status::Fail,
        "HSET :job:0123456789abcdefghjkmnpqrs state queued",
    ),
    ("I10", Status::Fail, "PERSIST :job:{succeeded}"),
    ("I10", Status::Fail, "PEXPIRE :job:{queued} 900000"),
    ("I10", Status::Fail, "PERSIST :result:{succeeded}"),
    ("I10", Status::Fail, "PERSIST :envelope:{dead}"),
    ("I10", Status::Fail, "PERSIST :idempotency:kqueued"),
    ("I10", Status::Warn, "SET :surprise 1"),
    ("I11", Status::Fail, "ZREM :tenant:acme {queued}"),
    ("I11", Status::Fail, "HSET :job:{queued} tenant globex"),
    (
        "I13",
        Status::Fail,
        "HSET :job:{running} due_at 9999999999999",
    ),
    ("I13", Status::Fail, "ZADD :due 9999999999999 {scheduled}"),
    ("I14", Status::Fail, "ZREM :ready:0 {queued}"),
    ("I14", Status::Fail, "ZREM :leases {running}"),
    ("I14", Status::Fail, "DEL :envelope:{queued}"),
    ("I14", Status::Fail, "DEL :levels"),
];

#[tokio::test]
async fn each_way_to_break_the_store_is_told_of() {
    let mut clinic = Clinic::open().await;
    for (id, should, line) in BREAKS {
        clinic.fill().await;
        clinic.command(line);
        let found = clinic.findings().await;
        assert_eq!(status(&found, id), should, "`{line}`: {found:#?}");
        if id == "I10" && !line.contains(":job:") {
            assert_eq!(status(&found, "keys.ttl"), Status::Warn, "`{line}`");
        }
    }
}

#[tokio::test]
async fn settings_and_a_server_that_changed_are_told_of() {
    let mut clinic = Clinic::open().await;
    for (id, should, line, undo) in [
        (
            "redis.eviction",
            Status::Fail,
            "CONFIG SET maxmemory-policy allkeys-lru",
            "CONFIG SET maxmemory-policy noeviction",
        ),
        (
            "redis.persistence",
            Status::Fail,
            "CONFIG SET appendfsync everysec",
            "CONFIG SET appendfsync always",
        ),
        (
            "redis.memory",
            Status::Warn,
            "CONFIG SET maxmemory 0",
            "CONFIG SET maxmemory 256mb",
        ),
        (
            "pools.gpu.settings",
            Status::Fail,
            "HSET :pool slots 3",
            "PING",
        ),
        (
            "pools.gpu.settings",
            Status::Fail,
            "HSET :pool def nonsense",
            "PING",
        ),
        ("pools.gpu.settings", Status::Fail, "DEL :pool", "PING"),
        ("pools.gpu.workers", Status::Warn, "DEL :workers", "PING"),
        (
            "pools.gpu.workers",
            Status::Warn,
            "HSET :pool paused 1",
            "PING",
        ),
        ("pools", Status::Warn, "FLUSHALL", "PING"),
    ] {
        clinic.fill().await;
        clinic.command(line);
        let found = clinic.findings().await;
        clinic.command(undo);
        assert_eq!(status(&found, id), should, "`{line}`: {found:#?}");
    }
}

#[tokio::test]
async fn leases_beyond_the_slots_are_told_of() {
    let clinic = Clinic::open().await;
    clinic.command("HSET :pool slots 0 def {\"slots\":0}");
    let found = clinic.findings().await;
    assert_eq!(status(&found, "I12"), Status::Fail, "{found:#?}");
}

#[tokio::test]
async fn a_store_that_went_away_is_told_of() {
    let mut clinic = Clinic::open().await;
    clinic.server.kill();
    let found = clinic.findings().await;
    assert_eq!(status(&found, "redis.reachable"), Status::Fail);
}

#[tokio::test]
async fn live_work_raises_no_false_alarm() {
    let clinic = Clinic::open().await;
    let over = AtomicBool::new(false);
    let work = |number: u64| {
        let (clinic, over) = (&clinic, &over);
        async move {
            let mut done = 0;
            while !over.load(Ordering::Relaxed) {
                clinic.one_life(number + done).await;
                done += 1;
            }
            done
        }
    };
    let looks = async {
        for _ in 0..3 {
            let found = clinic.findings().await;
            let others: Vec<_> = found
                .iter()
                .filter(|finding| finding.status == Status::Fail)
                .collect();
            assert!(others.is_empty(), "{others:#?}");
        }
        over.store(true, Ordering::Relaxed);
    };
    let ((), first, second) = tokio::join!(looks, work(0), work(1));
    assert!(first > 0 && second > 0, "work went on meanwhile");
}
