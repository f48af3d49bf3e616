//! A pool's record, where `store.audit` is on.

use super::{Lane, Store, StoreError};
use crate::audit::dump::{self, Dump};
use crate::audit::{Entry, key};
use crate::domain::PoolName;
use crate::protocol::base;

/// Keys that the server reads in one piece of a pool: bodies go along.
const KEYS_AT_ONCE: u32 = 100;

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

    /// Everything that a pool keeps, and the server's clock then, in ms. It is read in pieces: whole only where nothing
    /// happens to the pool meanwhile.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn dump(&self, pool: &PoolName) -> Result<(Dump, u64), StoreError> {
        let (mut whole, mut cursor) = (Dump::default(), "0".to_owned());
        loop {
            let mut piece = redis::cmd("EVAL");
            piece
                .arg(dump::SCRIPT)
                .arg(1)
                .arg(base(pool))
                .arg(&cursor)
                .arg(KEYS_AT_ONCE);
            let (next, rows, raw_now_ms): (String, Vec<dump::Row>, u64) =
                self.command_on(&piece, Lane::Bulk).await?;
            whole.extend(rows);
            if next == "0" {
                return Ok((whole, raw_now_ms));
            }
            cursor = next;
        }
    }

    /// Drops the entries up to the number `last`, which the caller has. Later entries go on from where they were.
    ///
    /// Not where a failover may come: numbers are rewound with the data, so entries that the caller has may then be of a
    /// past that never was, and new ones have the same numbers. There the record is read once, at the end.
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
