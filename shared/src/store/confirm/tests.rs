//! A primary and its replica, both real.

#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::process::Command;

use redis::Client;

use super::*;
use crate::config::{Durability, PoolConfig, StoreConfig, StoreUrl};
use crate::domain::{Endpoint, Envelope, State};
use crate::local::{LocalOptions, LocalServer};
use crate::protocol::{
    Cancel, CancelReply, Idempotency, List, Read, ReadReply, Submit, SubmitReply,
};
use crate::store::{Store, StoreError, Trouble};
use crate::telemetry::Metrics;

/// A primary with one replica that follows it, and a store over the primary.
struct Pair {
    primary: LocalServer,
    replica: LocalServer,
    store: Store,
    pool: PoolName,
}

impl Pair {
    async fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let primary = LocalServer::start(LocalOptions {
            durable: true,
            port: Some(port),
            settings: vec![("repl-diskless-sync-delay".into(), "0".into())],
            ..LocalOptions::default()
        });
        let replica = LocalServer::start(LocalOptions {
            durable: true,
            settings: vec![("replicaof".into(), format!("127.0.0.1 {port}"))],
            ..LocalOptions::default()
        });
        let (primary, replica) = (primary.unwrap(), replica.unwrap());
        let config = StoreConfig {
            url: StoreUrl::new(primary.url()),
            durability: Durability::Replicated,
            replicas: 1,
            command_timeout_ms: 600,
            ..StoreConfig::default()
        };
        let metrics = Arc::new(Metrics::new("test"));
        let store = Store::connect(&config, metrics).await.unwrap();
        let pool: PoolName = "default".parse().unwrap();
        store.apply(&pool, &PoolConfig::default()).await.unwrap();
        let pair = Self {
            primary,
            replica,
            store,
            pool,
        };
        // A replica that was filled begins to follow up to a second later.
        let (started, first) = (Instant::now(), pair.submit());
        while pair.store.submit(&first).await.is_err() {
            assert!(started.elapsed() < Duration::from_secs(10));
        }
        assert_eq!(pair.store.server().await.unwrap().replicas, 1);
        pair
    }

    /// A replica that is stopped confirms nothing.
    fn signal_replica(&self, signal: &str) {
        let pid = self.replica.pid().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    fn submit(&self) -> Submit {
        let envelope = Envelope {
            endpoint: Endpoint::ChatCompletions,
            body: b"{}".to_vec(),
            metadata: String::new(),
            webhook_url: String::new(),
            traceparent: String::new(),
        };
        Submit {
            id: JobId::mint(&self.pool),
            tenant: "acme".into(),
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

    fn read(&self, id: &JobId) -> Read {
        Read {
            id: id.clone(),
            tenant: None,
        }
    }

    /// Asks the primary by itself, without a store.
    fn confirmer(&self) -> Confirmer {
        let config = StoreConfig {
            url: StoreUrl::new(self.primary.url()),
            ..StoreConfig::default()
        };
        let nodes = Nodes::open(&config, Duration::from_secs(2)).unwrap();
        Confirmer::new(nodes, 1, Duration::from_millis(600))
    }

    /// How often the primary was asked to wait.
    async fn waits(&self) -> u64 {
        let client = Client::open(self.primary.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut info = redis::cmd("INFO");
        let info: String = info
            .arg("commandstats")
            .query_async(&mut connection)
            .await
            .unwrap();
        let calls = info.split("cmdstat_wait:calls=").nth(1);
        calls.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }
}

#[track_caller]
fn is_unconfirmed<T: std::fmt::Debug>(reply: Result<T, StoreError>) {
    let Err(StoreError::Unavailable { trouble, detail }) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(trouble, Trouble::Unconfirmed, "{detail}");
}

#[tokio::test]
async fn what_no_replica_holds_is_not_shown_and_a_repeat_confirms_it() {
    let pair = Pair::start().await;
    let (store, held) = (&pair.store, pair.submit());
    assert_eq!(store.submit(&held).await.unwrap(), SubmitReply::Accepted);

    pair.signal_replica("-STOP");
    let submit = pair.submit();
    is_unconfirmed(store.submit(&submit).await);
    let cancel = Cancel {
        id: held.id.clone(),
        tenant: None,
    };
    is_unconfirmed(store.cancel(&cancel).await);
    is_unconfirmed(store.read(&pair.read(&held.id)).await);
    let list = List {
        pool: pair.pool.clone(),
        tenant: None,
        after: None,
        cursor: None,
        state: None,
        dead: false,
        class: None,
        limit: 10,
        scan: 10,
    };
    is_unconfirmed(store.list(&list).await);
    // It is stored all the same, and a job that has not ended may be looked at.
    let waiting = store.read(&pair.read(&submit.id)).await.unwrap();
    assert!(matches!(waiting, ReadReply::Job { job, .. } if job.state == State::Queued));

    pair.signal_replica("-CONT");
    assert_eq!(store.submit(&submit).await.unwrap(), SubmitReply::Accepted);
    assert_eq!(
        store.cancel(&cancel).await.unwrap(),
        CancelReply::Already(State::Cancelled)
    );
    store.read(&pair.read(&held.id)).await.unwrap();
    store.list(&list).await.unwrap();
}

#[tokio::test]
async fn those_who_come_together_share_rounds_and_an_end_is_confirmed_once() {
    let pair = Pair::start().await;
    let store = &pair.store;
    let before = pair.waits().await;
    let submits: Vec<Submit> = (0..200).map(|_| pair.submit()).collect();
    let replies = futures_util::future::join_all(submits.iter().map(|s| store.submit(s))).await;
    for reply in replies {
        assert_eq!(reply.unwrap(), SubmitReply::Accepted);
    }
    let rounds = pair.waits().await - before;
    assert!(
        (1..100).contains(&rounds),
        "{rounds} rounds for 200 submits"
    );

    let id = submits[0].id.clone();
    let cancel = Cancel {
        id: id.clone(),
        tenant: None,
    };
    store.cancel(&cancel).await.unwrap();
    store.read(&pair.read(&id)).await.unwrap();
    let before = pair.waits().await;
    pair.signal_replica("-STOP");
    for _ in 0..10 {
        store.read(&pair.read(&id)).await.unwrap();
    }
    assert_eq!(pair.waits().await, before);
}

#[tokio::test]
async fn a_round_whose_maker_went_away_is_made_again_for_those_who_wait() {
    let pair = Pair::start().await;
    let (one, two) = (pair.submit(), pair.submit());
    pair.signal_replica("-STOP");
    let before = pair.waits().await;
    let first = tokio::spawn({
        let (store, one) = (pair.store.clone(), one.clone());
        async move { store.submit(&one).await }
    });
    let second = tokio::spawn({
        let (store, two) = (pair.store.clone(), two.clone());
        async move { store.submit(&two).await }
    });
    // Both are in a round, or wait for one.
    while pair.waits().await == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.abort();
    pair.signal_replica("-CONT");
    assert_eq!(second.await.unwrap().unwrap(), SubmitReply::Accepted);
}

#[tokio::test]
async fn a_primary_that_never_had_a_write_confirms_nothing() {
    let pair = Pair::start().await;
    let confirmer = pair.confirmer();
    let submit = pair.submit();
    let proof = |id: &JobId| vec![Proof::stored(id)];
    let pool = &pair.pool;
    // As where another server became the primary between a write and its confirmation: its replicas are content.
    let lost = confirmer.confirm(pool, proof(&submit.id)).await;
    assert_eq!(lost, Confirmed::Differs);
    pair.store.submit(&submit).await.unwrap();
    let held = confirmer.confirm(pool, proof(&submit.id)).await;
    assert_eq!(held, Confirmed::Yes);
    let other_end = vec![Proof::ended(&submit.id, Some(1))];
    assert_eq!(confirmer.confirm(pool, other_end).await, Confirmed::Differs);
}

#[tokio::test]
async fn one_who_is_told_no_leaves_the_answers_of_the_next_in_their_places() {
    let pair = Pair::start().await;
    let (one, two) = (pair.submit(), pair.submit());
    pair.store.submit(&one).await.unwrap();
    let lane = Lane::default();
    let confirmer = pair.confirmer();
    // What is missing comes first, and what is there behind it.
    let mut first = lane.enter(&[Proof::stored(&two.id), Proof::stored(&one.id)]);
    let mut second = lane.enter(&[Proof::stored(&two.id)]);
    let mut third = lane.enter(&[Proof::stored(&one.id)]);
    let mut turn = lane.turn.lock().await;
    confirmer.round(&pair.pool, &lane, &mut turn).await;
    assert_eq!(first.try_recv().unwrap(), Confirmed::Differs);
    assert_eq!(second.try_recv().unwrap(), Confirmed::Differs);
    assert_eq!(third.try_recv().unwrap(), Confirmed::Yes);
}

#[tokio::test]
async fn a_full_primary_still_confirms() {
    let pair = Pair::start().await;
    let (store, submit) = (&pair.store, pair.submit());
    store.submit(&submit).await.unwrap();
    let client = Client::open(pair.primary.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut full = redis::cmd("CONFIG");
    full.arg("SET").arg("maxmemory").arg("1");
    full.query_async::<()>(&mut connection).await.unwrap();
    let cancel = Cancel {
        id: submit.id.clone(),
        tenant: None,
    };
    let reply = store.cancel(&cancel).await.unwrap();
    assert_eq!(reply, CancelReply::Cancelled);
}

#[test]
fn ends_that_are_remembered_are_bounded() {
    let (known, pool) = (Known::default(), "p".parse().unwrap());
    let first = Proof::ended(&JobId::mint(&pool), Some(7));
    known.add(vec![first.clone()]);
    assert!(known.has(&first));
    assert!(!known.has(&Proof::ended(&first.id, Some(8))));
    for _ in 0..3 * KNOWN_MAX {
        known.add(vec![Proof::ended(&JobId::mint(&pool), Some(7))]);
    }
    assert!(!known.has(&first));
    let kept = lock(&known.0);
    assert!(kept.young.len() + kept.old.len() <= 2 * KNOWN_MAX);
}

#[test]
fn a_requeue_of_an_earlier_life_is_still_proved_and_half_a_word_is_not() {
    let id = JobId::mint(&"gpu".parse().unwrap());
    let found = Value::BulkString(b"first second".to_vec());
    for (operation, holds) in [("first", true), ("second", true), ("sec", false)] {
        assert_eq!(
            Proof::requeued(&id, operation).holds(&found),
            holds,
            "{operation}"
        );
    }
}
