//! A reply is believed only where it answers its own send, whatever becomes of the order of replies.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::config::{PoolConfig, StoreConfig, StoreUrl};
use tidegate_shared::domain::{
    DeadReason, Endpoint, Envelope, JobId, Owner, PoolName, Verdict, WorkerId,
};
use tidegate_shared::local::{LocalOptions, LocalServer};
use tidegate_shared::protocol::{
    Append, Claim, ClaimReply, Idempotency, Read, ReadReply, Settle, Submit, SubmitReply,
};
use tidegate_shared::store::{Store, StoreError};
use tidegate_shared::telemetry::Metrics;
use tokio::task::JoinSet;

use crate::mixer::{Mix, Mixer};

/// Tenants, each with one job; as many commands are on their way at once.
const TENANTS: usize = 16;
/// Reads of each tenant under each mix-up.
const ROUNDS: usize = 15;
/// Of a command.
pub(crate) const TIMEOUT_MS: u64 = 1_000;
/// Kinds of reads.
const KINDS: usize = 6;

/// What a reader saw.
#[derive(Default)]
struct Saw {
    right: usize,
    /// The store could not say.
    unknown: usize,
    cancelled: usize,
    wrong: Vec<String>,
}

impl Saw {
    fn add(&mut self, other: Self) {
        self.right += other.right;
        self.unknown += other.unknown;
        self.cancelled += other.cancelled;
        self.wrong.extend(other.wrong);
    }
}

/// Where the server itself listens.
pub(crate) fn socket(server: &LocalServer) -> PathBuf {
    server.url().trim_start_matches("unix://").into()
}

/// A store of its own, as a process has it.
pub(crate) async fn store_at(url: String) -> (Store, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new("test"));
    let config = StoreConfig {
        url: StoreUrl::new(url),
        command_timeout_ms: TIMEOUT_MS,
        ..StoreConfig::default()
    };
    (
        Store::open(&config, metrics.clone()).await.unwrap(),
        metrics,
    )
}

fn mismatched(metrics: &Metrics) -> u64 {
    let text = metrics.encode();
    let line = "tidegate_store_errors_total{class=\"mismatched\"} ";
    text.lines()
        .find_map(|l| l.strip_prefix(line))
        .map_or(0, |count| count.parse().unwrap())
}

fn tenant(number: usize) -> String {
    format!("tenant-{number}")
}

/// A new job of a tenant.
pub(crate) fn submit_of(pool: &PoolName, number: usize) -> Submit {
    let envelope = Envelope {
        endpoint: Endpoint::ChatCompletions,
        body: tenant(number).into_bytes(),
        metadata: String::new(),
        webhook_url: String::new(),
        traceparent: String::new(),
    };
    Submit {
        id: JobId::mint(pool),
        tenant: tenant(number),
        class: "default".into(),
        priority: 0,
        delay_ms: 0,
        deadline_ms: 0,
        timeout_ms: 0,
        max_attempts: 3,
        model: "m".into(),
        idempotency: Idempotency::default(),
        envelope: envelope.to_bytes(),
    }
}

/// Runs one job of each tenant to its end, each with its tenant's name in all that is kept of it.
async fn jobs(store: &Store, pool: &PoolName) -> Vec<JobId> {
    store.apply(pool, &PoolConfig::default()).await.unwrap();
    let mut ids = Vec::new();
    for number in 0..TENANTS {
        let submit = submit_of(pool, number);
        store.submit(&submit).await.unwrap();
        let claim = Claim {
            pool: pool.clone(),
            worker: WorkerId::mint(),
            owners: vec![Owner::mint()],
        };
        let ClaimReply::Deliveries(taken) = store.claim(&claim).await.unwrap() else {
            panic!("nothing to claim");
        };
        let (fence, owner) = (taken[0].fence, taken[0].owner.clone());
        let append = Append {
            id: submit.id.clone(),
            fence,
            owner: owner.clone(),
            first: 1,
            max_bytes: 1_000,
            pieces: vec![tenant(number).into_bytes()],
        };
        store.append(&append).await.unwrap();
        let settle = Settle {
            id: submit.id.clone(),
            fence,
            owner,
            verdict: Verdict::Succeed,
            delay_ms: 0,
            reason: DeadReason::Upstream,
            code: String::new(),
            error: String::new(),
            usage: None,
            content_type: "text/plain".into(),
            result: tenant(number).into_bytes(),
            next: None,
        };
        store.settle(&settle).await.unwrap();
        ids.push(submit.id);
    }
    ids
}

/// Reads one thing of a tenant's job: the tenant's name, as it is kept there.
async fn look(store: &Store, id: &JobId, number: usize, kind: usize) -> Result<String, StoreError> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ok(match kind {
        0 => text(store.result(id).await?.unwrap_or_default()),
        1 => text(store.result_piece(id, 0, 100).await?),
        2 => text(store.small_result(id, 100).await?.unwrap_or_default()),
        3 => text(store.envelope(id).await?.unwrap().body),
        4 => text(store.events(id, None, 10).await?.remove(0).data),
        _ => {
            let step = Read {
                id: id.clone(),
                tenant: Some(tenant(number)),
            };
            match store.read(&step).await? {
                ReadReply::Job { job, .. } => job.tenant,
                ReadReply::Unknown => "unknown".into(),
            }
        }
    })
}

/// Reads all kinds over and over.
async fn reader(store: Store, id: JobId, number: usize) -> Saw {
    let mut saw = Saw::default();
    for round in 0..ROUNDS {
        for kind in 0..KINDS {
            match look(&store, &id, number, kind).await {
                Ok(text) if text == tenant(number) => saw.right += 1,
                Ok(text) => saw.wrong.push(format!("{number} read {text} ({kind})")),
                Err(error) if error.is_unavailable() => saw.unknown += 1,
                Err(error) => saw.wrong.push(format!("{number}: {error} ({kind})")),
            }
        }
        let submit = Submit {
            priority: u8::try_from(round % 10).unwrap(),
            ..submit_of(id.pool(), number)
        };
        match store.submit(&submit).await {
            Ok(SubmitReply::Accepted) => saw.right += 1,
            Ok(other) => saw.wrong.push(format!("{number}: {other:?}")),
            Err(error) if error.is_unavailable() => saw.unknown += 1,
            Err(error) => saw.wrong.push(format!("{number}: {error}")),
        }
    }
    saw
}

/// What a client that matches replies by order alone reads: how often another's.
async fn believed(mixer: &Mixer, ids: &[JobId]) -> usize {
    let client = redis::Client::open(mixer.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut readers = JoinSet::new();
    for (number, id) in ids.iter().enumerate() {
        let mut connection = connection.clone();
        let key = format!("tg1:{{{}}}:result:{}", id.pool(), id.bare());
        readers.spawn(async move {
            let mut wrong = 0;
            for _ in 0..ROUNDS {
                let mut get = redis::cmd("GET");
                get.arg(&key);
                let read = get.query_async::<Option<String>>(&mut connection);
                match tokio::time::timeout(Duration::from_millis(200), read).await {
                    Ok(Ok(text)) if text != Some(tenant(number)) => wrong += 1,
                    _ => {}
                }
            }
            wrong
        });
    }
    readers.join_all().await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_answers_another_command_is_not_believed() {
    let server = LocalServer::start(LocalOptions::default()).unwrap();
    let pool: PoolName = "gpu".parse().unwrap();
    let (direct, _) = store_at(server.url()).await;
    let ids = jobs(&direct, &pool).await;
    tokio::join!(
        mixed_up(&server, &ids, Mix::Drop),
        mixed_up(&server, &ids, Mix::Double),
        mixed_up(&server, &ids, Mix::Swap),
    );
}

async fn mixed_up(server: &LocalServer, ids: &[JobId], mix: Mix) {
    let mixer = Mixer::start(socket(server), mix).await;
    let (store, metrics) = store_at(mixer.url()).await;
    let mut readers = JoinSet::new();
    for (number, id) in ids.iter().enumerate() {
        readers.spawn(reader(store.clone(), id.clone(), number));
    }
    let mut saw = Saw::default();
    for one in readers.join_all().await {
        saw.add(one);
    }
    let (mixed, caught) = (mixer.mixed(), mismatched(&metrics));
    println!(
        "{mix:?}: {mixed} mixed up, {caught} caught, {} right, {} unknown",
        saw.right, saw.unknown
    );
    assert_eq!(saw.wrong, [""; 0], "{mix:?}");
    assert!(caught > 0, "{mix:?}: none caught of {mixed}");
    // Each spoils what was on its way, one command of each reader, and no more: the connection is given up.
    assert!(
        caught <= mixed * TENANTS as u64,
        "{mix:?}: {caught} of {mixed}"
    );
    assert!(
        saw.right > saw.unknown,
        "{mix:?}: the store does not recover"
    );
    // Otherwise the mixer mixes nothing up that matters.
    assert!(believed(&mixer, ids).await > 0, "{mix:?}");
}

/// Stores, waves of commands through each, and commands of each tenant and kind in a wave: few waves, since each costs
/// connections, which a store makes few of in a second.
const STORES: usize = 4;
const WAVES: usize = 4;
const COPIES: usize = 7;
/// A command that is given up has waited less than this.
const PATIENCE_MS: u64 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_commands_of_which_many_are_given_up_get_their_own_replies() {
    let server = LocalServer::start(LocalOptions::default()).unwrap();
    let pool: PoolName = "gpu".parse().unwrap();
    let (direct, _) = store_at(server.url()).await;
    let ids = jobs(&direct, &pool).await;
    let mixer = Mixer::start(socket(&server), Mix::Late).await;
    let (mut saw, mut mistaken) = (Saw::default(), 0);
    for _ in 0..STORES {
        let (store, metrics) = store_at(mixer.url()).await;
        for _ in 0..WAVES {
            saw.add(wave(&store, &ids).await);
        }
        mistaken += mismatched(&metrics);
    }
    let all = saw.right + saw.unknown + saw.cancelled;
    println!(
        "{all} commands: {} right, {} given up, {} unknown",
        saw.right, saw.cancelled, saw.unknown
    );
    assert_eq!(saw.wrong, [""; 0]);
    assert_eq!(mistaken, 0, "of {all}");
    assert!(all >= 10_000 && saw.cancelled >= 500, "{all}");
    assert!(saw.right > all / 2, "{} right of {all}", saw.right);
}

/// Many commands at once; the next wave makes the connections again that were given up in this one.
async fn wave(store: &Store, ids: &[JobId]) -> Saw {
    let mut wave = JoinSet::new();
    for (number, id) in ids.iter().enumerate() {
        for turn in 0..COPIES * KINDS {
            wave.spawn(impatient(store.clone(), id.clone(), number, turn % KINDS));
        }
    }
    let mut saw = Saw::default();
    for one in wave.join_all().await {
        saw.add(one);
    }
    saw
}

/// Reads one thing, and gives it up now and then.
async fn impatient(store: Store, id: JobId, number: usize, kind: usize) -> Saw {
    let patience = if rand::random_ratio(1, 4) {
        Duration::from_millis(rand::random_range(0..PATIENCE_MS))
    } else {
        Duration::from_secs(60)
    };
    let mut saw = Saw::default();
    match tokio::time::timeout(patience, look(&store, &id, number, kind)).await {
        Err(_) => saw.cancelled = 1,
        Ok(Ok(text)) if text == tenant(number) => saw.right = 1,
        Ok(Ok(text)) => saw.wrong.push(format!("{number} read {text} ({kind})")),
        Ok(Err(error)) if error.is_unavailable() => saw.unknown = 1,
        Ok(Err(error)) => saw.wrong.push(format!("{number}: {error} ({kind})")),
    }
    saw
}
