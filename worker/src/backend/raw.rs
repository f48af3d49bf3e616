//! JSON read one level at a time, every value kept as the text it came as.
//!
//! Nothing here turns a number into a float and back, so `1e3`, `-0.10000000000000001` and 2⁶⁴ come out as they went in.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of one object in the order they came, values as their own text.
#[derive(Debug)]
pub(super) struct RawObject<'a> {
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> RawObject<'a> {
    /// Reads one complete object; white space around it is allowed, anything else is an error.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// The object inside a value, or `None` where the value is something else.
    pub(super) fn of(value: &'a RawValue) -> Option<Self> {
        serde_json::from_str(value.get()).ok()
    }

    /// The value of a member; of a repeated name the last one, as parsers do.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.members
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| *value)
    }

    /// All members in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.members
            .iter()
            .map(|(key, value)| (key.as_ref(), *value))
    }

    /// How many members there are, repeated names counted each time.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }
}

impl<'de> Deserialize<'de> for RawObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = RawObject<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    members.push((key, map.next_value::<&'de RawValue>()?));
                }
                Ok(RawObject { members })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// The items of an array value, or `None` where the value is something else.
pub(super) fn items(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// The text inside the quotes of a string value, escapes kept as they are. Two such texts joined are again the inside
/// of a valid JSON string, also when a surrogate pair was split between them.
pub(super) fn string_inside(value: &RawValue) -> Option<&str> {
    value.get().strip_prefix('"')?.strip_suffix('"')
}

/// Whether the value is `null`.
pub(super) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// Whether a value counts as true where any value may stand: all but `null`, `false`, zero and what is empty.
pub(super) fn is_truthy(value: &RawValue) -> bool {
    match value.get() {
        "null" | "false" | "\"\"" => false,
        text if text.starts_with('{') => RawObject::of(value).is_none_or(|object| object.len() > 0),
        text if text.starts_with('[') => items(value).is_none_or(|items| !items.is_empty()),
        text => text.parse::<f64>() != Ok(0.0),
    }
}

/// A whole number ≥ 0 that a value spells in any way (`3`, `3.0`, `3e0`), up to 2⁵³.
pub(super) fn whole_number(value: &RawValue) -> Option<u64> {
    /// Up to here every whole number has a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let text = value.get();
    if let Ok(number) = text.parse::<u64>() {
        return Some(number);
    }
    if !text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    let whole = (0.0..=EXACT).contains(&number) && number.fract() == 0.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole and within 0..=2^53"
    )]
    whole.then_some(number as u64)
}

/// Writes a name as a JSON string.
pub(super) fn write_key(out: &mut Vec<u8>, key: &str) {
    serde_json::to_writer(&mut *out, key)
        .expect("a string is always JSON, and memory takes every write");
    out.push(b':');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn members_keep_their_order_and_their_text() {
        let text = br#" { "b" : 1e3 , "a":-0.10000000000000001,"\u0062":[ 1 , 2 ] } "#;
        let object = RawObject::parse(text).unwrap();
        let members: Vec<_> = object
            .iter()
            .map(|(key, value)| (key, value.get()))
            .collect();
        assert_eq!(
            members,
            [
                ("b", "1e3"),
                ("a", "-0.10000000000000001"),
                ("b", "[ 1 , 2 ]")
            ]
        );
        assert_eq!(object.get("b").unwrap().get(), "[ 1 , 2 ]");
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for text in [
            "",
            "[]",
            "1",
            "{",
            "{}x",
            "{\"a\":NaN}",
            "{\"a\":1,}",
            "{\"a\":-Infinity}",
        ] {
            assert!(RawObject::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(RawObject::parse(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn truth_is_judged_as_clients_judge_it() {
        for text in ["null", "false", "0", "0.0", "\"\"", "{}", "[]", "{ }"] {
            assert!(!is_truthy(&raw(text)), "{text}");
        }
        for text in ["true", "1", "\"x\"", "{\"a\":1}", "[0]", "\"0\""] {
            assert!(is_truthy(&raw(text)), "{text}");
        }
    }

    #[test]
    fn whole_numbers_are_read_in_every_spelling() {
        for (text, number) in [
            ("0", 0),
            ("7", 7),
            ("7.0", 7),
            ("1e3", 1_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(whole_number(&raw(text)), Some(number), "{text}");
        }
        for text in ["-1", "1.5", "null", "\"7\"", "true", "1e400", "[1]"] {
            assert_eq!(whole_number(&raw(text)), None, "{text}");
        }
    }
}
