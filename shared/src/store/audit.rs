//! A pool's record, where `store.audit` is on.

use super::{Lane, Store, StoreError};
use crate::audit::{Entry, key};
use crate::domain::PoolName;

impl Store {
    /// Entries of a pool's record behind the entry number `after`, at most `count`, in their order.
    ///
    /// Entries carry requests and results whole: `count` times the largest body must fit into memory.
    ///
    /// # Errors
    /// Where the store cannot say, or holds something else.
    pub async fn audit(
        &self,
        pool: &PoolName,
        after: u64,
        count: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        type Row = (String, Vec<(String, Vec<u8>)>);
        let mut range = redis::cmd("XRANGE");
        range
            .arg(key(pool))
            .arg(format!("(0-{after}"))
            .arg("+")
            .arg("COUNT")
            .arg(count);
        let rows: Vec<Row> = self.command_on(&range, Lane::Bulk).await?;
        rows.into_iter()
            .map(|(id, fields)| Entry::from_stream(&id, fields).map_err(StoreError::Corrupt))
            .collect()
    }

    /// Drops the entries up to the number `last`, which the caller has. Later entries go on from where they were.
    ///
    /// # Errors
    /// Where the store cannot say; sent again it does the same.
    pub async fn audit_drop(&self, pool: &PoolName, last: u64) -> Result<(), StoreError> {
        let mut trim = redis::cmd("XTRIM");
        trim.arg(key(pool))
            .arg("MINID")
            .arg("=")
            .arg(format!("0-{}", last.saturating_add(1)));
        self.command_on(&trim, Lane::Bulk).await
    }
}
