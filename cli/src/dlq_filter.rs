//! `--filter 'pool=P error=E age>1h'`: which dead letters are meant. Pure.

use crate::dlq::Letter;
use crate::text::parse_span_ms;

/// Every term must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Equals(Field, String),
    /// Died longer ago, in ms.
    Older(u64),
    /// Died less long ago, in ms.
    Younger(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Pool,
    Error,
    Reason,
    Tenant,
    Model,
    Class,
}

impl Field {
    const ALL: [(&'static str, Self); 6] = [
        ("pool", Self::Pool),
        ("error", Self::Error),
        ("reason", Self::Reason),
        ("tenant", Self::Tenant),
        ("model", Self::Model),
        ("class", Self::Class),
    ];

    fn of(self, letter: &Letter) -> Option<&str> {
        match self {
            Self::Pool => letter["pool"].as_str(),
            Self::Error => letter["error"]["code"].as_str(),
            Self::Reason => letter["reason"].as_str(),
            Self::Tenant => letter["tenant"].as_str(),
            Self::Model => letter["model"].as_str(),
            Self::Class => letter["class"].as_str(),
        }
    }
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// The term that is none, and what would be.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let terms = text
            .split_whitespace()
            .map(term)
            .collect::<Result<Vec<_>, _>>()?;
        if terms.is_empty() {
            return Err("is empty; to mean all dead letters give --all".into());
        }
        Ok(Self { terms })
    }

    /// The pool that all meant are in, where the filter names one.
    pub(crate) fn pool(&self) -> Option<&str> {
        self.terms.iter().find_map(|term| match term {
            Term::Equals(Field::Pool, pool) => Some(pool.as_str()),
            _ => None,
        })
    }

    /// Whether a dead letter is meant, at `now_ms` since 1970.
    pub(crate) fn matches(&self, letter: &Letter, now_ms: u64) -> bool {
        let age = letter["died_at_ms"]
            .as_u64()
            .map(|died| now_ms.saturating_sub(died));
        self.terms.iter().all(|term| match term {
            Term::Equals(field, value) => field.of(letter) == Some(value),
            Term::Older(than) => age.is_some_and(|age| age > *than),
            Term::Younger(than) => age.is_some_and(|age| age < *than),
        })
    }
}

fn term(text: &str) -> Result<Term, String> {
    for (operator, make) in [('>', Term::Older as fn(u64) -> Term), ('<', Term::Younger)] {
        if let Some((name, value)) = text.split_once(operator) {
            return match name {
                "age" => parse_span_ms(value)
                    .map(make)
                    .map_err(|right| format!("`{text}`: the age {right}")),
                _ => Err(format!("`{text}`: only `age` is compared with {operator}")),
            };
        }
    }
    let known = || Field::ALL.map(|(name, _)| name).join(", ");
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!(
            "`{text}` must be FIELD=VALUE, age>SPAN or age<SPAN; fields: {}",
            known()
        ));
    };
    match Field::ALL.iter().find(|(field, _)| *field == name) {
        Some((_, field)) if !value.is_empty() => Ok(Term::Equals(*field, value.to_owned())),
        Some(_) => Err(format!("`{text}` has no value")),
        None => Err(format!(
            "`{text}`: there is no field `{name}`; fields: {}",
            known()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_terms_must_hold() {
        let filter = Filter::parse("pool=a error=timeout age>1h").expect("parses");
        assert_eq!(filter.pool(), Some("a"));
        let letter = |pool: &str, code: &str, died: u64| json!({"pool": pool, "error": {"code": code}, "died_at_ms": died});
        let now = 10_000_000;
        assert!(filter.matches(&letter("a", "timeout", now - 3_600_001), now));
        assert!(!filter.matches(&letter("a", "timeout", now - 3_600_000), now));
        assert!(!filter.matches(&letter("b", "timeout", 0), now));
        assert!(!filter.matches(&letter("a", "poison", 0), now));
        assert!(!filter.matches(&json!({"pool": "a", "error": {"code": "timeout"}}), now));
    }

    #[test]
    fn what_is_no_filter_is_refused_by_its_term() {
        for (text, says) in [
            ("", "--all"),
            ("pool", "FIELD=VALUE"),
            ("pool=", "no value"),
            ("colour=red", "no field `colour`"),
            ("age>1", "whole number with a unit"),
            ("pool>1h", "only `age`"),
        ] {
            let refusal = Filter::parse(text).expect_err(text);
            assert!(refusal.contains(says), "{text}: {refusal}");
        }
    }
}
