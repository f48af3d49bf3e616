//! What each layout of the store must do by itself: find the nodes, wake who waits, come back after a failover with
//! nobody's help, and never storm a store that is in trouble.

use std::process::Command;

use tokio::task::JoinSet;

use super::*;
use crate::config::{StoreConfig, StoreUrl};
use crate::local::{LocalCluster, LocalSentinel, LocalServer};
use crate::protocol::Cancel;

/// From the moment that another server serves, everything must work within it.
const BACK: Duration = Duration::from_secs(5);
/// A failover takes so long at most: silence, an election, a promotion.
const FAILOVER: Duration = Duration::from_secs(30);

async fn applied(store: &Store, names: &[&str]) -> Vec<PoolName> {
    let mut pools = Vec::new();
    for name in names {
        let pool: PoolName = name.parse().unwrap();
        store.apply(&pool, &PoolConfig::default()).await.unwrap();
        pools.push(pool);
    }
    pools
}

/// Submits until it is accepted.
async fn accepted(store: &Store, pool: &PoolName) -> JobId {
    let (started, submit) = (Instant::now(), submit_of(pool));
    loop {
        match store.submit(&submit).await {
            Ok(reply) => assert_eq!(reply, SubmitReply::Accepted),
            Err(error) => {
                assert!(started.elapsed() < BACK, "{pool}: {error}");
                continue;
            }
        }
        return submit.id;
    }
}

/// What a pool's users have: one that waits for work, and one that watches a job.
struct Users {
    woken: tokio::sync::mpsc::Receiver<()>,
    job: JobId,
    watch: Watch,
    _waiting: tokio_util::task::AbortOnDropHandle<()>,
}

impl Users {
    async fn of(store: &Store, pool: &PoolName) -> Self {
        let job = accepted(store, pool).await;
        let watch = store.hints().job(&job).await;
        let (waker, woken) = tokio::sync::mpsc::channel(1000);
        let mut waiter = store.work_waiter(pool);
        let waiting = tokio::spawn(async move {
            loop {
                waiter.wait(Duration::from_secs(60)).await;
                let _ = waker.try_send(());
            }
        });
        Self {
            woken,
            job,
            watch,
            _waiting: tokio_util::task::AbortOnDropHandle::new(waiting),
        }
    }

    /// A submit wakes the one, a cancel the other.
    async fn are_woken(&mut self, store: &Store, pool: &PoolName) {
        tokio::time::timeout(BACK, async {
            accepted(store, pool).await;
            // Each return may be one of before: the last one finds what there is.
            self.woken.recv().await.unwrap();
            let cancel = Cancel {
                id: self.job.clone(),
                tenant: None,
            };
            while store.cancel(&cancel).await.is_err() {}
            while !matches!(self.watch.next().await, Hint::Message(_) | Hint::Resync) {}
        })
        .await
        .unwrap_or_else(|_| panic!("{pool}: not woken within {BACK:?}"));
    }
}

#[tokio::test]
async fn pools_of_a_cluster_live_on_their_nodes_and_wake_who_waits() {
    let cluster = LocalCluster::start(3, 0, &LocalOptions::default()).unwrap();
    let mut place = Place::Cluster(cluster);
    let store = store_of(&place).await;
    let pools = applied(&store, &["a", "b", "c", "gpu", "default", "llama"]).await;
    for pool in &pools {
        let mut users = Users::of(&store, pool).await;
        users.are_woken(&store, pool).await;
        assert_eq!(store.snapshot(pool).await.unwrap().queued, 1);
    }
    assert_eq!(store.pools().await.unwrap().len(), pools.len());
    store.ready().await.unwrap();

    let mut there = 0;
    for node in place.servers() {
        let keys: usize = node.ask("DBSIZE").unwrap().parse().unwrap();
        assert!(keys > 0, "a node has no pool: the names are no test");
        there += keys;
    }
    let (mut walk, mut met) = (Some(Walk::default()), 0);
    while let Some(from) = walk {
        let (next, keys) = store.keys_from(from).await.unwrap();
        met += keys.len();
        walk = next;
    }
    // A key that says when it was last used may go meanwhile.
    assert!(met.abs_diff(there) <= pools.len(), "{met} of {there} keys");

    // One node that is gone is enough: a role cannot do its work.
    place.servers()[1].kill();
    assert!(store.ready().await.unwrap_err().is_unavailable());
}

/// What happens to the primary.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Frozen,
    Demoted,
}

fn signal(server: &LocalServer, signal: &str) {
    let pid = server.pid().to_string();
    let done = Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(done.success());
}

fn is_primary(server: &LocalServer) -> bool {
    let role = server.ask("ROLE").unwrap_or_default();
    role.lines().next() == Some("master")
}

/// The first server loses its place to the server `heir`; everything must be back soon after that.
async fn comes_back(mut place: Place, heir: usize, fault: Fault) {
    let store = store_of(&place).await;
    let pools = applied(&store, &["a", "b", "c", "gpu"]).await;
    let mut all = Vec::new();
    for pool in &pools {
        all.push(Users::of(&store, pool).await);
    }
    match fault {
        Fault::Killed => place.servers()[0].kill(),
        Fault::Frozen => signal(&place.servers()[0], "-STOP"),
        Fault::Demoted => match &place {
            Place::Sentinel(sentinel) => sentinel.failover().unwrap(),
            _ => {
                place.servers()[heir].ask("CLUSTER FAILOVER").unwrap();
            }
        },
    }
    let started = Instant::now();
    while !is_primary(&place.servers()[heir]) {
        assert!(started.elapsed() < FAILOVER, "no failover");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (promoted, switched) = (started.elapsed(), Instant::now());
    for pool in &pools {
        accepted(&store, pool).await;
    }
    let accepts = switched.elapsed();
    while store.ready().await.is_err() {
        assert!(switched.elapsed() < BACK, "not ready");
    }
    for (pool, users) in pools.iter().zip(&mut all) {
        users.are_woken(&store, pool).await;
        assert_eq!(
            store.result_bytes(&users.job).await.unwrap(),
            0,
            "large replies"
        );
    }
    let back = switched.elapsed();
    println!(
        "{fault:?}: promoted after {promoted:?}; from then on accepted in all pools after {accepts:?}, all else after {back:?}"
    );
    assert!(back < BACK, "{fault:?}: {back:?}");
    if matches!(fault, Fault::Frozen) {
        // It is a primary by its own belief until it is told.
        signal(&place.servers()[0], "-CONT");
        for pool in &pools {
            accepted(&store, pool).await;
        }
    }
}

fn durable() -> LocalOptions {
    LocalOptions {
        durable: true,
        ..LocalOptions::default()
    }
}

#[tokio::test]
async fn a_primary_behind_sentinel_that_dies_freezes_or_is_demoted_is_left_by_itself() {
    for fault in [Fault::Killed, Fault::Frozen, Fault::Demoted] {
        let sentinel = LocalSentinel::start(1, &durable()).unwrap();
        comes_back(Place::Sentinel(sentinel), 1, fault).await;
    }
}

#[tokio::test]
async fn a_primary_of_a_cluster_that_dies_freezes_or_is_demoted_is_left_by_itself() {
    for fault in [Fault::Killed, Fault::Frozen, Fault::Demoted] {
        let cluster = LocalCluster::start(3, 1, &durable()).unwrap();
        comes_back(Place::Cluster(cluster), 3, fault).await;
    }
}

async fn store_at(url: &str) -> Store {
    let config = StoreConfig {
        url: StoreUrl::new(url),
        command_timeout_ms: 1000,
        ..StoreConfig::default()
    };
    let metrics = Arc::new(Metrics::new("test"));
    Store::open(&config, metrics).await.unwrap()
}

#[tokio::test]
async fn a_replica_that_answers_reads_is_not_ready() {
    let mut servers = LocalSentinel::start(1, &LocalOptions::default()).unwrap();
    let store = store_at(&servers.servers()[1].url()).await;
    store.pools().await.unwrap();
    let error = store.ready().await.unwrap_err();
    let StoreError::Unavailable { trouble, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(trouble, Trouble::ReadOnly);
}

#[tokio::test]
async fn a_store_that_forbids_scripts_is_not_ready_and_says_why() {
    let server = LocalServer::start(LocalOptions::default()).unwrap();
    let store = store_at(&server.url()).await;
    store.ready().await.unwrap();
    server.ask("ACL SETUSER default -eval -evalsha").unwrap();
    let error = store.ready().await.unwrap_err();
    let StoreError::Unavailable { trouble, detail } = error else {
        panic!("{error}")
    };
    assert_eq!(trouble, Trouble::Denied, "{detail}");
    assert!(detail.contains("eval"), "{detail}");
    server.ask("ACL SETUSER default +@all").unwrap();
    store.ready().await.unwrap();
}

#[tokio::test]
async fn a_process_connects_to_a_store_that_cuts_it_off_twice_in_a_second() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = store_at(&format!("redis://{}", listener.local_addr().unwrap())).await;
    let pool: PoolName = "default".parse().unwrap();
    let mut load = JoinSet::new();
    for _ in 0..20 {
        let (store, pool) = (store.clone(), pool.clone());
        load.spawn(async move {
            let mut waiter = store.work_waiter(&pool);
            let mut watch = store.hints().job(&JobId::mint(&pool)).await;
            loop {
                let submit = submit_of(&pool);
                tokio::select! {
                    _ = store.submit(&submit) => {}
                    _ = store.result_bytes(&submit.id) => {}
                    () = waiter.wait(Duration::from_millis(10)) => {}
                    _ = watch.next() => {}
                }
            }
        });
    }
    let (started, mut connections) = (Instant::now(), 0);
    const LOOKED_AT: Duration = Duration::from_secs(6);
    while let Ok(met) = tokio::time::timeout(
        LOOKED_AT.saturating_sub(started.elapsed()),
        listener.accept(),
    )
    .await
    {
        drop(met.unwrap());
        connections += 1;
    }
    assert!(connections <= 1 + 2 * 6, "{connections} in 6 s");
    assert!(connections >= 6, "{connections} in 6 s: it gave up");
}
