//! Parameters of a query: each known, each once.

use std::collections::BTreeMap;

use super::fields::meant;
use crate::error::{Code, Problem};

/// Parameters by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads a query that may hold the parameters `known`.
    pub(crate) fn read(raw: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut all = BTreeMap::new();
        for pair in raw
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
        {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                return Err(Problem::new(
                    Code::InvalidValue,
                    "the query is not valid percent-encoded UTF-8",
                ));
            };
            if !known.contains(&name.as_str()) {
                let hint = match meant(&name, known) {
                    Some(meant) => format!("is no parameter here; did you mean `{meant}`?"),
                    None if known.is_empty() => "is no parameter here; there is none".into(),
                    None => format!("is no parameter here; there are {}", known.join(", ")),
                };
                return Err(Problem::field(Code::UnsupportedParameter, name, hint));
            }
            if all.insert(name.clone(), value).is_some() {
                return Err(Problem::field(
                    Code::DuplicateKey,
                    name,
                    "is a parameter that may stand once",
                ));
            }
        }
        Ok(Self(all))
    }

    /// A parameter; one without a value counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// An integer within `min..=max`.
    pub(crate) fn integer(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, Problem> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        match text.parse::<u64>() {
            Ok(value) if (min..=max).contains(&value) => Ok(Some(value)),
            _ => Err(Problem::field(
                Code::InvalidValue,
                name,
                format!("must be an integer from {min} to {max}"),
            )),
        }
    }

    /// A parameter read by `parse`, which says what would be right.
    pub(crate) fn parsed<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        parse(text)
            .map(Some)
            .map_err(|right| Problem::field(Code::InvalidValue, name, format!("must be {right}")))
    }
}

/// Percent-decoding as forms do it.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parameters_are_known_and_stand_once() {
        let query = Query::read(
            Some("limit=5&after=a%2Db+c&class="),
            &["limit", "after", "class"],
        )
        .unwrap();
        assert_eq!(query.get("after"), Some("a-b c"));
        assert_eq!(query.get("class"), None);
        assert_eq!(query.integer("limit", 1, 100), Ok(Some(5)));
        for (raw, code) in [
            ("limt=5", "unsupported_parameter"),
            ("limit=5&limit=6", "duplicate_key"),
            ("after=%zz", "invalid_value"),
            ("after=%ff", "invalid_value"),
        ] {
            assert_eq!(
                Query::read(Some(raw), &["limit", "after"])
                    .unwrap_err()
                    .code(),
                code,
                "{raw}"
            );
        }
    }

    #[test]
    fn a_number_stays_in_its_bounds() {
        for bad in ["0", "-1", "101", "1000000000", "x", "1.5"] {
            let query = Query::read(Some(&format!("limit={bad}")), &["limit"]).unwrap();
            assert!(query.integer("limit", 1, 100).is_err(), "{bad}");
        }
    }
}
