//! Members of a JSON object as raw text: what is not looked at keeps its bytes, number for number.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::error::{Code, Problem, echo};

/// Integers beyond it are not exact in every client and server (2^53).
pub(crate) const EXACT: i128 = 1 << 53;

/// A JSON value by its kind. Built on text that was scanned, so its first byte decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    Text(&'a str),
    Array(&'a str),
    Object(&'a str),
}

impl<'a> Kind<'a> {
    /// The kind of a value's text.
    pub(crate) fn of(raw: &'a RawValue) -> Self {
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'n') | None => Self::Null,
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'"') => Self::Text(text),
            Some(b'[') => Self::Array(text),
            Some(b'{') => Self::Object(text),
            Some(_) => Self::Number(text),
        }
    }

    /// Its name for a person.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// An object's members; `at` is its path, for refusals.
pub(crate) struct Fields<'a> {
    at: String,
    members: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    /// Reads an object. `what` names it to the caller, `at` is its path: empty for the request's own.
    pub(crate) fn read(text: &'a str, at: &str, what: &str) -> Result<Self, Problem> {
        let refused = || Problem::new(Code::InvalidValue, format!("{what} must be a JSON object"));
        if !text.starts_with('{') {
            return Err(refused());
        }
        let members = serde_json::from_str(text).map_err(|_| refused())?;
        Ok(Self {
            at: at.to_owned(),
            members,
        })
    }

    /// The path of a member.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.at.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.at)
        }
    }

    /// Names of all members.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// A member's text; null counts as absent.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.members
            .get(name)
            .copied()
            .filter(|raw| raw.get() != "null")
    }

    /// A member by its kind; null counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<Kind<'a>> {
        self.raw(name).map(Kind::of)
    }

    /// Refuses a member.
    pub(crate) fn refuse(&self, name: &str, detail: impl Into<String>) -> Problem {
        Problem::field(Code::InvalidValue, self.path(name), detail)
    }

    /// Refuses a member that is absent.
    pub(crate) fn missing(&self, name: &str, detail: impl Into<String>) -> Problem {
        Problem::field(Code::MissingField, self.path(name), detail)
    }

    /// A string of 1 to `max_chars` characters.
    pub(crate) fn text(&self, name: &str, max_chars: usize) -> Result<Option<String>, Problem> {
        let Some(kind) = self.get(name) else {
            return Ok(None);
        };
        let Kind::Text(quoted) = kind else {
            return Err(self.refuse(name, format!("must be a string, not {}", kind.name())));
        };
        let text = unquote(quoted).ok_or_else(|| self.refuse(name, "must be a string"))?;
        if text.is_empty() || text.chars().count() > max_chars {
            return Err(self.refuse(
                name,
                format!("must be a string of 1 to {max_chars} characters"),
            ));
        }
        Ok(Some(text))
    }

    /// An integer within `min..=max`.
    pub(crate) fn integer(
        &self,
        name: &str,
        min: i128,
        max: i128,
    ) -> Result<Option<i128>, Problem> {
        let Some(kind) = self.get(name) else {
            return Ok(None);
        };
        let wrong = |is: &str| {
            self.refuse(
                name,
                format!("must be an integer from {min} to {max}, not {is}"),
            )
        };
        let Kind::Number(text) = kind else {
            return Err(wrong(kind.name()));
        };
        match integer(text) {
            Some(value) if (min..=max).contains(&value) => Ok(Some(value)),
            _ => Err(wrong(&echo(text))),
        }
    }

    /// A number within `min..=max`.
    pub(crate) fn number(&self, name: &str, min: f64, max: f64) -> Result<(), Problem> {
        let Some(kind) = self.get(name) else {
            return Ok(());
        };
        let wrong = |is: &str| {
            self.refuse(
                name,
                format!("must be a number from {min} to {max}, not {is}"),
            )
        };
        let Kind::Number(text) = kind else {
            return Err(wrong(kind.name()));
        };
        match text.parse::<f64>() {
            Ok(value) if (min..=max).contains(&value) => Ok(()),
            _ => Err(wrong(&echo(text))),
        }
    }
}

/// The text inside quotes.
pub(crate) fn unquote(quoted: &str) -> Option<String> {
    serde_json::from_str(quoted).ok()
}

/// The elements of an array.
pub(crate) fn elements(text: &str) -> Vec<&RawValue> {
    serde_json::from_str(text).unwrap_or_default()
}

/// The integer that a number stands for, however it is written; none where it is none, or far out of range.
pub(crate) fn integer(text: &str) -> Option<i128> {
    if let Ok(value) = text.parse::<i128>() {
        return Some(value);
    }
    let value: f64 = text.parse().ok()?;
    #[allow(clippy::cast_precision_loss, reason = "2^53 is exact")]
    let exact = value.fract() == 0.0 && value.abs() <= EXACT as f64;
    #[allow(clippy::cast_possible_truncation, reason = "whole, and within 2^53")]
    exact.then_some(value as i128)
}

/// The name among `known` that `name` was probably meant to be.
pub(crate) fn meant<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    // Two slips of the finger; more would be another word.
    const SLIPS: usize = 2;
    let near = known
        .iter()
        .map(|known| (distance(name, known), *known))
        .min()?;
    (near.0 <= SLIPS && near.0 < near.1.len()).then_some(near.1)
}

/// Levenshtein's distance, in characters; far apart where the lengths are.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = substituted.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_one_however_it_is_written() {
        for (text, value) in [
            ("1", Some(1)),
            ("-1", Some(-1)),
            ("1.0", Some(1)),
            ("1e2", Some(100)),
            ("1.5", None),
            ("9223372036854775808", Some(1 << 63)),
            ("1e300", None),
            ("1e-400", Some(0)),
        ] {
            assert_eq!(integer(text), value, "{text}");
        }
    }

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["priority", "deadline_ms", "body"];
        assert_eq!(meant("priorty", &known), Some("priority"));
        assert_eq!(meant("dealine_ms", &known), Some("deadline_ms"));
        assert_eq!(meant("webhook", &known), None);
    }
}
