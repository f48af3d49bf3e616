//! Keys as such, for `doctor` alone: no step looks for keys.

use super::slots::{Address, Slot};
use super::{Store, StoreError};
use crate::protocol::SCHEMA;

/// Keys that the server looks at in one piece of a walk, so that it holds nobody up.
const AT_ONCE: u32 = 200;

/// Where a walk over the keys of all nodes is.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Nodes that it has begun, or is done with.
    seen: Vec<Address>,
    /// Where it is on the last of them; 0: at its end.
    cursor: u64,
}

impl Store {
    /// The next piece of a walk over our keys: where to go on, none where that was all, and the keys met. A node that
    /// takes another's place meanwhile is walked over too.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn keys_from(
        &self,
        mut walk: Walk,
    ) -> Result<(Option<Walk>, Vec<String>), StoreError> {
        if walk.cursor == 0 {
            let mut nodes = self.0.nodes.primaries().into_iter();
            match nodes.find(|node| !walk.seen.contains(node)) {
                Some(node) => walk.seen.push(node),
                None => return Ok((None, Vec::new())),
            }
        }
        let node = walk.seen.last().expect("one was begun");
        let mut scan = redis::cmd("SCAN");
        scan.arg(walk.cursor)
            .arg("MATCH")
            .arg(format!("tg{SCHEMA}:*"))
            .arg("COUNT")
            .arg(AT_ONCE);
        let connection = self.0.shared.get_at(node, self.0.timeout).await?;
        let (cursor, keys) = connection.run(self.0.timeout, &scan).await?;
        walk.cursor = cursor;
        Ok((Some(walk), keys))
    }

    /// Time until the server drops a key by itself, in ms; -1: never, -2: there is no such key.
    ///
    /// # Errors
    /// Where the store cannot say.
    pub async fn ttl_ms(&self, key: &str) -> Result<i64, StoreError> {
        self.command(redis::cmd("PTTL").arg(key)).await
    }
}

/// Where a plain command goes: to the node of its first key, which is the first argument of all that we use but `EVAL`. One
/// without a key of ours goes to the directory's.
pub(super) fn slot_of(command: &redis::Cmd) -> Slot {
    let mut words = command.args_iter();
    let key = match words.next() {
        Some(redis::Arg::Simple(b"EVAL")) => words.nth(2),
        _ => words.next(),
    };
    match key {
        Some(redis::Arg::Simple(key)) if key.starts_with(b"tg") => Slot::of_key(key),
        _ => Slot::of_key(super::directory::key("pools").as_bytes()),
    }
}
