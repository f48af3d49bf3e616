//! Readiness: whether the store does what a role asks of it.

use std::collections::BTreeSet;

use super::slots::{Address, Slot};
use super::{Store, StoreError, Trouble};
use crate::domain::PoolName;
use crate::protocol::{Expire, base};

/// Names tried until one belongs to a node; of three nodes each has every third, of a thousand every thousandth.
const NAMES: u32 = 100_000;

impl Store {
    /// Runs a real script on every node that has a known pool or the directory. It is one that may write, on a pool that
    /// nobody has, so nothing changes: a replica, and a server that takes no writes, refuse it before it begins.
    ///
    /// # Errors
    /// Where a script cannot run.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let pools = self.pools().await?;
        let slots = pools.iter().map(slot_of_pool);
        let directory = Slot::of_key(super::directory::key("pools").as_bytes());
        let mut nodes = BTreeSet::new();
        for slot in slots.chain([directory]) {
            let node = self.0.nodes.primary_now(slot);
            nodes.insert(node.ok_or_else(|| self.0.nodes.lost())?);
        }
        for node in &nodes {
            self.ready_at(node).await?;
        }
        Ok(())
    }

    async fn ready_at(&self, node: &Address) -> Result<(), StoreError> {
        let served =
            |name: &PoolName| self.0.nodes.primary_now(slot_of_pool(name)).as_ref() == Some(node);
        let pool = (0..NAMES)
            .map(|number| {
                let name = format!("readiness-{number}");
                name.parse().expect("it is a pool's name")
            })
            .find(served)
            .ok_or_else(|| StoreError::Unavailable {
                trouble: Trouble::ClusterDown,
                detail: format!("{node} serves no slots any more"),
            })?;
        let probe = Expire {
            pool,
            limit: 1,
            lineage: String::new(),
        };
        match self.run(&probe).await {
            Ok(_) | Err(StoreError::NoPool(_)) => Ok(()),
            Err(StoreError::Unavailable { trouble, detail }) => Err(StoreError::Unavailable {
                trouble,
                detail: format!("{node}: {detail}"),
            }),
            Err(error) => Err(error),
        }
    }
}

fn slot_of_pool(pool: &PoolName) -> Slot {
    Slot::of_key(base(pool).as_bytes())
}
