//! The MessagePack that `cmsgpack` writes inside a script: strings of any bytes, and lists of them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use crate::protocol::Value;

/// A reply as the script returned it.
struct Packed(Value);

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Packed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or a list")
            }

            fn visit_str<E>(self, text: &str) -> Result<Packed, E> {
                Ok(Packed(Value::Bytes(text.as_bytes().to_vec())))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Packed, E> {
                Ok(Packed(Value::Bytes(bytes.to_vec())))
            }

            fn visit_i64<E>(self, n: i64) -> Result<Packed, E> {
                Ok(Packed(Value::Int(n)))
            }

            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Packed, E> {
                i64::try_from(n)
                    .map(|n| Packed(Value::Int(n)))
                    .map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Packed, A::Error> {
                let mut list = Vec::new();
                while let Some(Packed(item)) = items.next_element()? {
                    list.push(item);
                }
                Ok(Packed(Value::Array(list)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Reads what a script packed.
pub(super) fn value(bytes: &[u8]) -> Result<Value, String> {
    rmp_serde::from_slice::<Packed>(bytes)
        .map(|Packed(value)| value)
        .map_err(|e| e.to_string())
}

/// Reads a packed list of strings.
pub(super) fn strings(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let Value::Array(items) = value(bytes)? else {
        return Err("no list".into());
    };
    items
        .into_iter()
        .map(|item| match item {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(format!("{other:?} is no string")),
        })
        .collect()
}
