//! Keys as such, for `doctor` alone: no step looks for keys.

use super::{Store, StoreError};
use crate::protocol::SCHEMA;

/// Keys that the server looks at in one piece of a walk, so that it holds nobody up.
const AT_ONCE: u32 = 200;

impl Store {
    /// A piece of a walk over our keys: where to go on (0: that was all), and the keys met.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn keys_from(&self, cursor: u64) -> Result<(u64, Vec<String>), StoreError> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(format!("tg{SCHEMA}:*"))
            .arg("COUNT")
            .arg(AT_ONCE);
        self.command(&scan).await
    }

    /// Time until the server drops a key by itself, in ms; -1: never, -2: there is no such key.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn ttl_ms(&self, key: &str) -> Result<i64, StoreError> {
        self.command(redis::cmd("PTTL").arg(key)).await
    }
}
