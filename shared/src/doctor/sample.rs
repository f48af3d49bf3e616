//! A sample of keys, against how long each may live.

use super::invariant::{Against, Invariant, Tally};
use super::keys::{self, Life};
use super::{Finding, job};
use crate::domain::PoolName;
use crate::protocol::Inspect;
use crate::store::{Store, StoreError, Walk};

/// Keys looked at.
const KEYS: usize = 2_000;

/// A sample of keys: each is bounded, or has a TTL, or belongs to a job that is owed.
pub(super) async fn ttls(store: &Store, tally: &mut Tally) -> Result<Finding, StoreError> {
    let (mut walk, mut looked_at, mut strange) = (Some(Walk::default()), 0, Vec::new());
    while let Some(from) = walk.take().filter(|_| looked_at < KEYS) {
        let (next, names) = store.keys_from(from).await?;
        for key in names {
            looked_at += 1;
            if let Some(against) = key_life(store, &key).await? {
                strange.push(key.clone());
                tally.note(&key, against);
            }
        }
        walk = next;
    }
    let which = if walk.is_none() && looked_at < KEYS {
        "all"
    } else {
        "a sample of"
    };
    Ok(match strange.first() {
        None => Finding::pass(
            "keys.ttl",
            format!("{which} {looked_at} keys are bounded or have a TTL"),
        ),
        Some(first) => Finding::warn(
            "keys.ttl",
            format!(
                "{} of {looked_at} keys are not bounded and have no TTL, such as `{first}`",
                strange.len()
            ),
            "see I9 and I10",
        ),
    })
}

async fn key_life(store: &Store, key: &str) -> Result<Option<Against>, StoreError> {
    let stays = |ttl_ms: i64| ttl_ms == -1;
    Ok(match keys::life(key) {
        Life::Bounded => None,
        Life::Unknown => Some(Against::warn(Invariant::I10, "no key of ours")),
        Life::Expires => {
            stays(store.ttl_ms(key).await?).then(|| Against::fail(Invariant::I10, "it has no TTL"))
        }
        Life::WithJob {
            pool,
            id,
            is_record,
        } => {
            if !stays(store.ttl_ms(key).await?) {
                return Ok(None);
            }
            let Ok(pool) = pool.parse() else {
                return Ok(Some(Against::warn(Invariant::I10, "no key of ours")));
            };
            with_job(store, key, pool, &id, is_record).await?
        }
    })
}

/// A job's key without a TTL: the job must be owed, and in the indexes.
async fn with_job(
    store: &Store,
    key: &str,
    pool: PoolName,
    id: &str,
    is_record: bool,
) -> Result<Option<Against>, StoreError> {
    let step = Inspect {
        pool,
        index: format!("job:{id}"),
        start: 0,
        count: 1,
    };
    let reply = match store.inspect(&step).await {
        Ok(reply) => reply,
        Err(StoreError::NoPool(_)) => {
            return Ok(Some(Against::fail(Invariant::I9, "its pool is gone")));
        }
        Err(error) => return Err(error),
    };
    let Some(fact) = reply.facts.into_iter().next() else {
        return Ok(None);
    };
    let indexed = fact.places.iter().any(|place| place == "jobs");
    // A job that ended in the meantime has given its keys a TTL, or taken them along.
    if !stays_now(store, key).await? {
        return Ok(None);
    }
    let owed = job::has_record(&fact) && !fact.fields.contains_key("ended_at");
    Ok(if is_record && !indexed {
        Some(Against::fail(Invariant::I9, "a record that no index has"))
    } else if !owed {
        Some(Against::fail(
            Invariant::I10,
            "its job is not owed, and it has no TTL",
        ))
    } else {
        None
    })
}

async fn stays_now(store: &Store, key: &str) -> Result<bool, StoreError> {
    Ok(store.ttl_ms(key).await? == -1)
}
