//! Hash slots of a cluster: which one a key belongs to, and which node serves it. Pure.

use std::sync::Arc;

/// Slots of every cluster ("Redis cluster specification").
const SLOTS: u16 = 16_384;

/// A hash slot. All keys of a pool have one, those of the directory another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(u16);

impl Slot {
    /// The slot of a key: of what stands in its first pair of braces where that is not empty, else of the whole key.
    pub(super) fn of_key(key: &[u8]) -> Self {
        let tag = key.iter().position(|&b| b == b'{').and_then(|open| {
            let rest = &key[open + 1..];
            let close = rest.iter().position(|&b| b == b'}')?;
            (close > 0).then(|| &rest[..close])
        });
        Self(crc16(tag.unwrap_or(key)) % SLOTS)
    }
}

/// CRC16 XMODEM, polynomial 0x1021, as the cluster specification asks for.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    })
}

/// A node's address, `host:port` or the path of a socket.
pub(super) type Address = Arc<str>;

/// Who serves which slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap(Vec<Range>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    primary: Address,
}

impl SlotMap {
    /// Reads a reply to `CLUSTER SLOTS`. `asked` is the host that replied: a node that does not know how others reach it
    /// leaves its host out. None where the reply is none of ours.
    pub(super) fn read(reply: &redis::Value, asked: &str) -> Option<Self> {
        let redis::Value::Array(rows) = reply else {
            return None;
        };
        let mut ranges = Vec::new();
        for row in rows {
            let redis::Value::Array(row) = row else {
                return None;
            };
            let [first, last, redis::Value::Array(primary), ..] = row.as_slice() else {
                return None;
            };
            let [host, port, ..] = primary.as_slice() else {
                return None;
            };
            let host: String = match host {
                redis::Value::Nil => String::new(),
                host => redis::from_redis_value_ref(host).ok()?,
            };
            let host = if host.is_empty() { asked } else { &host };
            let port: u16 = redis::from_redis_value_ref(port).ok()?;
            ranges.push(Range {
                first: redis::from_redis_value_ref(first).ok()?,
                last: redis::from_redis_value_ref(last).ok()?,
                primary: format!("{host}:{port}").into(),
            });
        }
        Some(Self(ranges))
    }

    /// The primary that serves a slot; none where the cluster has none for it.
    pub(super) fn primary(&self, slot: Slot) -> Option<&Address> {
        let range = self
            .0
            .iter()
            .find(|range| (range.first..=range.last).contains(&slot.0))?;
        Some(&range.primary)
    }

    /// Whether a node is a primary with slots.
    pub(super) fn serves(&self, address: &Address) -> bool {
        self.0.iter().any(|range| range.primary == *address)
    }

    /// Every primary, once, in order.
    pub(super) fn primaries(&self) -> Vec<Address> {
        let mut all: Vec<Address> = self
            .0
            .iter()
            .map(|range| Arc::clone(&range.primary))
            .collect();
        all.sort();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use redis::Value;

    #[test]
    fn a_key_has_the_slot_that_the_specification_gives_it() {
        assert_eq!(crc16(b"123456789"), 0x31C3, "the specification's example");
        let slot = |key: &str| Slot::of_key(key.as_bytes());
        assert_eq!(slot("{user1000}.following"), slot("{user1000}.followers"));
        assert_eq!(
            slot("foo{}{bar}").0,
            crc16(b"foo{}{bar}") % SLOTS,
            "empty braces count as none"
        );
        assert_eq!(slot("foo{{bar}}zap").0, crc16(b"{bar") % SLOTS);
        assert_eq!(slot("foo{bar").0, crc16(b"foo{bar") % SLOTS);
        assert_eq!(slot("tg1:{gpu}:leases"), slot("{gpu}"));
    }

    fn node(host: &str, port: i64) -> Value {
        let host = if host.is_empty() {
            Value::Nil
        } else {
            Value::BulkString(host.as_bytes().to_vec())
        };
        Value::Array(vec![host, Value::Int(port)])
    }

    #[test]
    fn a_slot_is_served_by_the_primary_of_its_range() {
        let row = |first, last, nodes: Vec<Value>| {
            let mut row = vec![Value::Int(first), Value::Int(last)];
            row.extend(nodes);
            Value::Array(row)
        };
        let reply = Value::Array(vec![
            row(0, 99, vec![node("a", 1), node("replica", 2)]),
            row(100, 16_000, vec![node("", 3)]),
            row(16_001, 16_100, vec![node("a", 1)]),
        ]);
        let map = SlotMap::read(&reply, "asked").unwrap();
        let primary = |slot| map.primary(Slot(slot)).map(|address| &**address);
        assert_eq!(primary(0), Some("a:1"));
        assert_eq!(primary(100), Some("asked:3"), "a host left out");
        assert_eq!(primary(16_050), Some("a:1"));
        assert_eq!(primary(16_383), None);
        let all: Vec<_> = map.primaries().iter().map(ToString::to_string).collect();
        assert_eq!(all, ["a:1", "asked:3"]);
        assert_eq!(SlotMap::read(&Value::Okay, "asked"), None);
    }
}
