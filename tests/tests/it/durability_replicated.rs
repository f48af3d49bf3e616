//! Case 13 for `durability = "replicated"`: what was acknowledged survives a failover to a replica that lagged, and the same
//! fault takes from `strict` what it had acknowledged.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{
    Direction, Options, Proxy, Replica, Reply, Rig, SOON, Upstream, job, socket, until,
};

use crate::common::{call, call_ended, sequence};

/// What the roles ask of the store.
const REPLICATED: &str = "durability = \"replicated\"\nreplicas = 1";
/// A replica takes the primary's place as it is, and fills one of its own at once.
const SETTINGS: [(&str, &str); 2] = [("maxmemory", "4gb"), ("repl-diskless-sync-delay", "0")];

/// Submits before the replica stalls, and while it does.
const JOBS: usize = 100;
/// Submits on their way at once.
const AT_ONCE: usize = 16;

/// A rig whose store is followed by a replica, over a way that can be stalled. Replicas whose process is stopped would
/// find in their kernel's buffers what they missed.
struct Followed {
    rig: Rig,
    replica: Replica,
    way: Proxy,
}

fn options(durability: &str) -> Options {
    let settings = SETTINGS.map(|(name, value)| (name.into(), value.into()));
    Options {
        slots: 1,
        max_queued: 1_000,
        through_proxy: true,
        store_settings: settings.into(),
        durability: durability.into(),
        ..Options::default()
    }
}

impl Followed {
    async fn start(durability: &str) -> Self {
        let rig = Rig::start(options(durability), 0, 0, 1).await;
        let way = Proxy::start(Upstream::Unix(socket(&rig.store))).await;
        let replica = Replica::follow(way.addr().port(), &SETTINGS).await;
        let mut followed = Self { rig, replica, way };
        followed.rig.start_ingress().await;
        followed
    }

    /// Nothing reaches the replica any more, or what waited does.
    fn stall(&self, stall: bool) {
        self.way.blackhole(Direction::Reply, stall);
    }

    /// The primary dies, the replica takes its place, the roles' address leads to it. It has no replica of its own yet.
    async fn fail_over(mut self) -> Rig {
        self.rig.store.kill();
        self.replica.promote().await;
        self.rig.proxy.lead_to(self.replica.upstream());
        self.rig.proxy.reset_all();
        self.rig.store = self.replica.server;
        self.rig
    }
}

async fn submit(rig: &Rig, key: &str) -> Reply {
    let submission = job(key);
    let request = rig.api.request("POST", "/v1/jobs").json(&submission);
    rig.api.send(request.header("idempotency-key", key)).await
}

/// Submits under so many keys, and gives each answer with its key.
async fn submits(rig: &Rig, what: &str) -> Vec<(String, Reply)> {
    futures_util::stream::iter(0..JOBS)
        .map(async |n| {
            let key = format!("{what}-{n}");
            let reply = submit(rig, &key).await;
            (key, reply)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

fn id_of(reply: &Reply) -> String {
    reply.json()["id"].as_str().unwrap().to_owned()
}

async fn look(rig: &Rig, path: &str) -> Reply {
    rig.api.send(rig.api.request("GET", path)).await
}

/// How many of these jobs nobody knows any more.
async fn lost(rig: &Rig, ids: &[String]) -> usize {
    let mut lost = 0;
    for id in ids {
        let reply = look(rig, &format!("/v1/jobs/{id}")).await;
        match reply.status {
            200 => rig.api.note(&reply.json()),
            404 => lost += 1,
            other => panic!("{other}: {}", reply.text()),
        }
    }
    lost
}

#[track_caller]
fn is_unconfirmed(reply: &Reply, says: &str) {
    let text = reply.text();
    assert_eq!(
        (reply.status, &*reply.code()),
        (503, "store_unavailable"),
        "{text}"
    );
    assert!(!reply.header("retry-after").is_empty(), "{text}");
    assert!(
        text.contains("not confirmed") && text.contains(says),
        "{text}"
    );
}

/// How often an ingress had to answer so.
async fn unconfirmed(rig: &Rig) -> usize {
    let (_, url) = &rig.ingress[0];
    let metrics = rig.api.plain(&format!("{url}/metrics")).await;
    let class = r#"tidegate_store_errors_total{class="unconfirmed"} "#;
    let text = metrics.unwrap().text();
    let count = text.lines().find_map(|line| line.strip_prefix(class));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_replicated_acknowledged_survives_a_failover_to_a_replica_that_lagged() {
    let mut followed = Followed::start(REPLICATED).await;
    let says = ["durability asked: replicated(1)", "and a failover"];
    followed.rig.ingress[0].0.says(SOON, &says).await;
    followed.rig.start_worker().await;
    // It holds the one slot: the others wait.
    let script = sequence(&[
        Script::tag("h").hold().text("A"),
        Script::tag("h").text("B"),
    ]);
    let first = followed.rig.api.submit(&job(script)).await;
    call(&followed.rig, "h", 1).await;
    let mut acked = vec![first.clone()];
    for (_, reply) in submits(&followed.rig, "before").await {
        assert_eq!(reply.status, 202, "{}", reply.text());
        acked.push(id_of(&reply));
    }
    // Whatever is acknowledged from here on has all before it: a failover finds the first one running.
    assert_eq!(followed.rig.api.get(&first).await["status"], "running");
    let reply = submit(&followed.rig, "after").await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    acked.push(id_of(&reply));

    followed.stall(true);
    let during = submits(&followed.rig, "during").await;
    for (_, reply) in &during {
        is_unconfirmed(reply, "Idempotency-Key");
    }
    assert!(unconfirmed(&followed.rig).await >= JOBS);
    // An end that the replica does not have is not shown, in whatever way it is asked for.
    followed.rig.gpu.release("h");
    call_ended(&followed.rig, "h", 1, SOON).await;
    until(SOON, "its end is unconfirmed", async || {
        let reply = look(&followed.rig, &format!("/v1/jobs/{first}")).await;
        (reply.status == 503).then_some(())
    })
    .await;
    for path in [
        &format!("/v1/jobs/{first}"),
        &format!("/v1/jobs/{first}?wait=2"),
        &format!("/v1/jobs/{first}/result"),
        &format!("/v1/jobs/{first}/events"),
        "/v1/jobs?status=succeeded",
    ] {
        is_unconfirmed(&look(&followed.rig, path).await, "ask again");
    }

    let mut rig = followed.fail_over().await;
    let lost = lost(&rig, &acked).await;
    let (n, short) = (acked.len(), during.len());
    eprintln!("replicated(1), failed over: {lost} of {n} acknowledged lost, {short} unconfirmed");
    assert_eq!(lost, 0);
    // With a replica again, what was unconfirmed is confirmed by a repeat, whether it was lost or not.
    let way = Proxy::start(Upstream::Unix(socket(&rig.store))).await;
    let _replica = Replica::follow(way.addr().port(), &SETTINGS).await;
    for (key, _) in &during {
        rig.api.submit_until_stored(key, &job(key)).await;
    }
    let ended = rig.settle_check().await;
    assert_eq!(ended, BTreeMap::from([("succeeded".to_owned(), n + short)]));
    // Nobody was shown the answer that was lost.
    assert_eq!(rig.api.answer(&first).await, "B");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_strict_acknowledged_is_lost_in_a_failover_to_a_replica_that_lagged() {
    let followed = Followed::start("durability = \"strict\"").await;
    followed.stall(true);
    let mut acked = Vec::new();
    for (_, reply) in submits(&followed.rig, "during").await {
        assert_eq!(reply.status, 202, "{}", reply.text());
        acked.push(id_of(&reply));
    }
    let mut rig = followed.fail_over().await;
    let lost = lost(&rig, &acked).await;
    let n = acked.len();
    eprintln!("strict, failed over: {lost} of {n} acknowledged lost");
    // It is what the mode does not promise, and what shows that the fault is one.
    assert_eq!(lost, n);
    rig.start_worker().await;
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unconfirmed_stays_and_a_repeat_confirms_it() {
    let mut rig = Rig::start(options(REPLICATED), 1, 0, 1).await;
    let line = rig.ingress[0]
        .0
        .says(SOON, &["replicated(1)", "no replica follows"])
        .await;
    assert!(line.contains("WARN"), "{line}");
    is_unconfirmed(&submit(&rig, "first").await, "Idempotency-Key");
    let nameless = rig.api.request("POST", "/v1/jobs").json(&job("nameless"));
    let nameless = rig.api.send(nameless).await;
    is_unconfirmed(&nameless, "look at job job_default_");

    let way = Proxy::start(Upstream::Unix(socket(&rig.store))).await;
    let _replica = Replica::follow(way.addr().port(), &SETTINGS).await;
    let first = rig.api.submit_until_stored("first", &job("first")).await;
    let text = nameless.text();
    let named = text.split("look at job ").nth(1).unwrap();
    let named = named.split(' ').next().unwrap();
    let nameless = rig.api.get(named).await;
    assert_eq!(nameless["status"], "queued");
    assert_eq!(rig.pool().await["queued"], 2);

    way.blackhole(Direction::Reply, true);
    let cancel = format!("/v1/jobs/{first}/cancel");
    let post = async || rig.api.send(rig.api.request("POST", &cancel)).await;
    is_unconfirmed(&post().await, "ask again");
    is_unconfirmed(&look(&rig, &format!("/v1/jobs/{first}")).await, "ask again");
    // What has not ended may be looked at.
    assert_eq!(rig.api.get(named).await["status"], "queued");
    way.blackhole(Direction::Reply, false);
    let cancelled = until(SOON, "the cancel is confirmed", async || {
        let reply = post().await;
        (reply.status == 200).then(|| reply.json())
    })
    .await;
    assert_eq!(cancelled["status"], "cancelled", "{cancelled:#}");
    rig.start_worker().await;
    let ended = rig.settle_check().await;
    let ends = [("cancelled".to_owned(), 1), ("succeeded".to_owned(), 1)];
    assert_eq!(ended, BTreeMap::from(ends));
}
