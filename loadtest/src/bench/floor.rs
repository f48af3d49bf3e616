//! The floor: three bare scripts (enqueue with a bound check, claim with owner, fence and lease, settle with an owner
//! check) and one plain read. No other guarantee: what any queue on this server costs at the least.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use tidegate_shared::local::LocalServer;

use super::measure::{self, Figure};
use super::resp::{Client, Reply};
use super::{BODY_BYTES, RESULT_BYTES};

const ENQUEUE: &str = "
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 'full' end
redis.call('SET', KEYS[2] .. ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[1], redis.call('INCR', KEYS[3]), ARGV[1])
return 'ok'";

const CLAIM: &str = "
local id = redis.call('ZPOPMIN', KEYS[1])[1]
if not id then return false end
local t = redis.call('TIME')
local fence = redis.call('HINCRBY', KEYS[3] .. id, 'fence', 1)
redis.call('HSET', KEYS[3] .. id, 'owner', ARGV[1])
redis.call('ZADD', KEYS[2], t[1] * 1000 + 30000, id)
return { id, fence, redis.call('GET', KEYS[4] .. id) }";

const SETTLE: &str = "
if redis.call('HGET', KEYS[2] .. ARGV[1], 'owner') ~= ARGV[2] then return 'lost' end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2] .. ARGV[1], KEYS[3] .. ARGV[1])
redis.call('SET', KEYS[4] .. ARGV[1], ARGV[3], 'EX', 600)
return 'ok'";

const WAIT: &str = "floor:marker";

/// The scripts, loaded.
struct Floor {
    client: Client,
    enqueue: String,
    claim: String,
    settle: String,
    body: Vec<u8>,
    result: Vec<u8>,
}

impl Floor {
    async fn open(server: &LocalServer) -> anyhow::Result<Self> {
        let client = Client::connect(&server.url()).await?;
        client.run(&[b"FLUSHALL"]).await?;
        let mut hashes = Vec::new();
        for script in [ENQUEUE, CLAIM, SETTLE] {
            let reply = client.run(&[b"SCRIPT", b"LOAD", script.as_bytes()]).await?;
            hashes.push(reply.text().context("a script's hash")?.to_owned());
        }
        let [enqueue, claim, settle] = hashes.try_into().expect("three scripts were loaded");
        Ok(Self {
            client,
            enqueue,
            claim,
            settle,
            body: measure::filler(BODY_BYTES),
            result: measure::filler(RESULT_BYTES),
        })
    }

    async fn enqueue(&self, id: &str) -> anyhow::Result<()> {
        let reply = self
            .client
            .run(&[
                b"EVALSHA",
                self.enqueue.as_bytes(),
                b"3",
                b"floor:queue",
                b"floor:body:",
                b"floor:seq",
                id.as_bytes(),
                &self.body,
                b"10000000",
            ])
            .await?;
        ensure!(reply.text() == Some("ok"), "enqueue: {reply:?}");
        Ok(())
    }

    async fn claim(&self, owner: &str) -> anyhow::Result<Option<String>> {
        let reply = self
            .client
            .run(&[
                b"EVALSHA",
                self.claim.as_bytes(),
                b"4",
                b"floor:queue",
                b"floor:leases",
                b"floor:job:",
                b"floor:body:",
                owner.as_bytes(),
            ])
            .await?;
        match reply {
            Reply::Nil => Ok(None),
            Reply::Array(items) => {
                let id = items.first().and_then(Reply::text).context("an id")?;
                ensure!(
                    matches!(items.last(), Some(Reply::Bytes(body)) if body.len() == BODY_BYTES),
                    "no body"
                );
                Ok(Some(id.to_owned()))
            }
            other => anyhow::bail!("claim: {other:?}"),
        }
    }

    async fn settle(&self, id: &str, owner: &str) -> anyhow::Result<()> {
        let reply = self
            .client
            .run(&[
                b"EVALSHA",
                self.settle.as_bytes(),
                b"4",
                b"floor:leases",
                b"floor:job:",
                b"floor:body:",
                b"floor:result:",
                id.as_bytes(),
                owner.as_bytes(),
                &self.result,
            ])
            .await?;
        ensure!(reply.text() == Some("ok"), "settle: {reply:?}");
        Ok(())
    }

    async fn read(&self, id: &str) -> anyhow::Result<()> {
        let key = format!("floor:result:{id}");
        let reply = self.client.run(&[b"GET", key.as_bytes()]).await?;
        ensure!(
            matches!(&reply, Reply::Bytes(body) if body.len() == RESULT_BYTES),
            "read: {reply:?}"
        );
        Ok(())
    }
}

/// `jobs` lifecycles with `in_flight` callers, each enqueue → claim → settle → read.
pub(super) async fn lifecycle(
    server: &LocalServer,
    in_flight: usize,
    jobs: u32,
) -> anyhow::Result<Figure> {
    let floor = Arc::new(Floor::open(server).await?);
    let next = Arc::new(AtomicU64::new(0));
    let before = measure::redis_cpu(server.pid())?;
    let started = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..in_flight {
        let (floor, next) = (Arc::clone(&floor), Arc::clone(&next));
        callers.spawn(async move {
            let owner = format!("owner-{caller:04}-0123456789abcd");
            let mut done = 0u32;
            while next.fetch_add(1, Ordering::Relaxed) < u64::from(jobs) {
                floor
                    .enqueue(&format!("{:026x}", rand::random::<u64>()))
                    .await?;
                let id = floor
                    .claim(&owner)
                    .await?
                    .context("a job for each that was enqueued")?;
                floor.settle(&id, &owner).await?;
                floor.read(&id).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(result) = callers.join_next().await {
        done += result??;
    }
    let took = started.elapsed();
    ensure!(done == jobs, "{done} of {jobs} lifecycles");
    Ok(Figure {
        jobs,
        took,
        redis_cpu: measure::redis_cpu(server.pid())? - before,
    })
}

/// From enqueue called to the worker having the job, through a blocking pop of a marker.
pub(super) async fn pickup(server: &LocalServer, count: u32) -> anyhow::Result<Histogram<u64>> {
    let floor = Arc::new(Floor::open(server).await?);
    let blocking = Client::connect(&server.url()).await?;
    let mut histogram = Histogram::new(3)?;
    for n in 0..count {
        let (worker, floor_of_worker) = (blocking.clone(), Arc::clone(&floor));
        let waiting = tokio::spawn(async move {
            worker.run(&[b"BZPOPMIN", WAIT.as_bytes(), b"10"]).await?;
            let id = floor_of_worker.claim("owner-0123456789abcdefghij").await?;
            anyhow::Ok((id.context("the job that was enqueued")?, Instant::now()))
        });
        tokio::time::sleep(Duration::from_millis(2)).await;
        let started = Instant::now();
        floor.enqueue(&format!("{n:026x}")).await?;
        floor
            .client
            .run(&[b"ZADD", WAIT.as_bytes(), b"0", b"work"])
            .await?;
        let (id, got) = waiting.await??;
        histogram.record(measure::micros(got - started))?;
        floor.settle(&id, "owner-0123456789abcdefghij").await?;
    }
    Ok(histogram)
}

/// Memory of the server for each waiting job, beyond its body.
pub(super) async fn bytes_per_waiting_job(server: &LocalServer, count: u32) -> anyhow::Result<f64> {
    let floor = Floor::open(server).await?;
    let before = measure::used_memory(&floor.client).await?;
    for n in 0..count {
        floor.enqueue(&format!("{n:026x}")).await?;
    }
    let after = measure::used_memory(&floor.client).await?;
    floor.client.run(&[b"FLUSHALL"]).await?;
    Ok(measure::each(after.saturating_sub(before), count) - measure::each(BODY_BYTES as u64, 1))
}
