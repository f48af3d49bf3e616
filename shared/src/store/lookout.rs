//! Keeps what is known of the nodes: a task for each listed address asks it, over and over and whenever somebody met a node
//! that does not serve.
//!
//! One of them may be cut off and speak of the past, so each tells the epoch of what it says, which rises with each
//! failover; the highest of those that answer is believed. The answer of one that no longer answers is forgotten, yet what
//! was last believed stays until somebody knows better.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo, RedisError, Value};
use tokio_util::task::AbortOnDropHandle;

use super::gate::Need;
use super::nodes::{Known, View};
use super::slots::{Address, SlotMap};
use crate::config::StoreMode;

/// How often each listed address is asked while nobody doubts: an old primary that still answers is left within it.
const EVERY: Duration = Duration::from_secs(1);
/// Least time between two questions to the same one.
const LEAST: Duration = Duration::from_millis(50);
/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(1);

/// What each listed address last said, with its epoch.
type Said = Arc<Mutex<Vec<Option<(u64, View)>>>>;

/// Starts to look; there is nothing to look for where the one node is listed.
pub(super) fn start(known: &Arc<Known>) -> Vec<AbortOnDropHandle<()>> {
    if known.mode == StoreMode::Single {
        return Vec::new();
    }
    let said: Said = Arc::new(Mutex::new(vec![None; known.listed.len()]));
    known
        .listed
        .iter()
        .enumerate()
        .map(|(number, info)| {
            let task = look(Arc::clone(known), number, info.clone(), Arc::clone(&said));
            #[expect(
                clippy::disallowed_methods,
                reason = "no role owns it: it ends with the last handle of the store"
            )]
            AbortOnDropHandle::new(tokio::spawn(task))
        })
        .collect()
}

async fn look(known: Arc<Known>, number: usize, info: ConnectionInfo, said: Said) {
    let mut doubts = known.doubts.subscribe();
    let mut kept = None;
    loop {
        let answer = ask(&known, &info, &mut kept).await;
        match &answer {
            Ok(_) => {}
            Err(error) => {
                kept = None;
                known.unknown(&format!("{}: {error}", info.addr()));
            }
        }
        let best = {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            said[number] = answer.ok();
            let all = said.iter().flatten();
            all.max_by_key(|(epoch, _)| *epoch).cloned()
        };
        if let Some((_, view)) = best {
            known.see(view);
        }
        tokio::time::sleep(LEAST).await;
        // Whether or not somebody doubts: the sender lives as long as `known`.
        let _ = tokio::time::timeout(EVERY, doubts.changed()).await;
    }
}

/// Asks over the kept connection, or over a new one that is then kept.
async fn ask(
    known: &Known,
    info: &ConnectionInfo,
    kept: &mut Option<MultiplexedConnection>,
) -> Result<(u64, View), RedisError> {
    let connection = match kept {
        Some(connection) => connection,
        None => {
            let address: Address = info.addr().to_string().into();
            let made = known.connect(&address, Need::Other, listed(known, info), async |_| Ok(()));
            kept.insert(made.await?)
        }
    };
    let answer = async {
        match known.mode {
            StoreMode::Cluster => cluster(connection, info).await,
            StoreMode::Sentinel | StoreMode::Single => {
                sentinel(connection, &known.master_name).await
            }
        }
    };
    tokio::time::timeout(ANSWER, answer)
        .await
        .unwrap_or_else(|_| Err((redis::ErrorKind::Io, "no answer in time").into()))
}

/// How a listed address is met: a Sentinel has no databases, a node of the cluster is met like every other.
fn listed(known: &Known, info: &ConnectionInfo) -> ConnectionInfo {
    match known.mode {
        StoreMode::Cluster => known.with_login(info),
        StoreMode::Sentinel | StoreMode::Single => {
            let settings = info.redis_settings().clone().set_db(0);
            info.clone().set_redis_settings(settings)
        }
    }
}

/// `get-master-addr-by-name` names the promoted server as soon as it is one, `MASTER` gives the epoch.
async fn sentinel(
    connection: &mut MultiplexedConnection,
    name: &str,
) -> Result<(u64, View), RedisError> {
    let mut both = redis::pipe();
    both.cmd("SENTINEL")
        .arg("get-master-addr-by-name")
        .arg(name);
    both.cmd("SENTINEL").arg("MASTER").arg(name);
    let (address, fields): (Option<(String, u16)>, Vec<String>) =
        both.query_async(connection).await?;
    let unknown = (
        redis::ErrorKind::InvalidClientConfig,
        "it knows no primary of store.master_name",
    );
    let (host, port) = address.ok_or(unknown)?;
    let epoch = fields
        .chunks_exact(2)
        .find(|pair| pair[0] == "config-epoch")
        .and_then(|pair| pair[1].parse().ok())
        .unwrap_or(0);
    Ok((epoch, View::One(format!("{host}:{port}").into())))
}

async fn cluster(
    connection: &mut MultiplexedConnection,
    asked: &ConnectionInfo,
) -> Result<(u64, View), RedisError> {
    let mut both = redis::pipe();
    both.cmd("CLUSTER").arg("INFO");
    both.cmd("CLUSTER").arg("SLOTS");
    let (info, slots): (String, Value) = both.query_async(connection).await?;
    let epoch = info
        .lines()
        .find_map(|line| line.trim().strip_prefix("cluster_current_epoch:"))
        .and_then(|epoch| epoch.parse().ok())
        .unwrap_or(0);
    let host = match asked.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    };
    let map = SlotMap::read(&slots, host);
    let map = map.ok_or((redis::ErrorKind::UnexpectedReturnType, "no table of slots"))?;
    Ok((epoch, View::Slots(map)))
}
