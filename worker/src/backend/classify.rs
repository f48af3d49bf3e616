//! Which answers of a model server are final and which are worth another try: one table.
//!
//! Final is what the server would say again to the same request. Transient is what depends on its load or its luck. The
//! statuses follow RFC 9110, 529 (overloaded) is in common use among model servers.

use super::types::FailureCode;

/// Whether the same request may fare better later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finality {
    /// Never: the job fails now.
    Final,
    /// Perhaps: the job is tried again while it has attempts.
    Transient,
}

/// One row: the statuses `first..=last`, how they are taken, and why.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Lowest status of the row.
    pub first: u16,
    /// Highest status of the row.
    pub last: u16,
    /// Final or transient.
    pub finality: Finality,
    /// The code the job gets.
    pub code: FailureCode,
    /// The reason, for people.
    pub why: &'static str,
}

const fn row(
    first: u16,
    last: u16,
    finality: Finality,
    code: FailureCode,
    why: &'static str,
) -> Row {
    Row {
        first,
        last,
        finality,
        code,
        why,
    }
}

use FailureCode::{UpstreamError as Error, UpstreamRefused as Refused};
use Finality::{Final, Transient};

/// The table. The first row that holds a status decides; every status from 300 on is held by one.
pub const TABLE: &[Row] = &[
    row(
        300,
        399,
        Final,
        Error,
        "redirects are not followed: the address of a model server is set by its operator",
    ),
    row(
        408,
        408,
        Transient,
        Error,
        "the server gave up waiting for the request",
    ),
    row(
        409,
        409,
        Transient,
        Error,
        "a conflict with other work of the server",
    ),
    row(425, 425, Transient, Error, "too early"),
    row(
        429,
        429,
        Transient,
        Error,
        "busy or over a rate limit (but see FINAL_REASONS)",
    ),
    row(
        499,
        499,
        Transient,
        Error,
        "a proxy's word for: the connection was closed meanwhile",
    ),
    row(
        400,
        499,
        Final,
        Refused,
        "the request itself is wrong, not allowed, or its model is not here",
    ),
    row(501, 501, Final, Refused, "the server cannot do this at all"),
    row(
        500,
        599,
        Transient,
        Error,
        "the server failed or is overloaded",
    ),
    // 600 and up are no HTTP; a server that sends them is broken, perhaps not for long.
    row(600, u16::MAX, Transient, Error, "not a status of HTTP"),
];

/// Codes or types that make a 429 final: waiting does not fill an account.
pub const FINAL_REASONS: &[&str] = &["insufficient_quota"];

/// What to make of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Final or transient.
    pub finality: Finality,
    /// The code the job gets.
    pub code: FailureCode,
}

/// Judges an error answer by its status and by the `code` and `type` in its body. Total: a status below 300, which is
/// no error, is taken as a transient fault.
pub fn classify(status: u16, code: Option<&str>, kind: Option<&str>) -> Verdict {
    let says_final = |word: Option<&str>| word.is_some_and(|word| FINAL_REASONS.contains(&word));
    if status == 429 && (says_final(code) || says_final(kind)) {
        return Verdict {
            finality: Final,
            code: Refused,
        };
    }
    TABLE
        .iter()
        .find(|row| (row.first..=row.last).contains(&status))
        .map_or(
            Verdict {
                finality: Transient,
                code: Error,
            },
            |row| Verdict {
                finality: row.finality,
                code: row.code,
            },
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_statuses_are_final() {
        for status in [
            400, 401, 402, 403, 404, 405, 406, 410, 413, 414, 415, 418, 421, 422, 431, 451, 501,
        ] {
            assert_eq!(
                classify(status, None, None),
                Verdict {
                    finality: Final,
                    code: Refused
                },
                "{status}"
            );
        }
    }

    #[test]
    fn transient_statuses_are_retried() {
        for status in [
            408, 409, 425, 429, 499, 500, 502, 503, 504, 505, 507, 529, 599, 600, 999,
        ] {
            assert_eq!(
                classify(status, None, None),
                Verdict {
                    finality: Transient,
                    code: Error
                },
                "{status}"
            );
        }
    }

    #[test]
    fn a_redirect_is_final_and_the_servers_fault() {
        for status in [300, 301, 302, 303, 307, 308, 399] {
            assert_eq!(
                classify(status, None, None),
                Verdict {
                    finality: Final,
                    code: Error
                },
                "{status}"
            );
        }
    }

    #[test]
    fn a_429_for_want_of_quota_is_final_by_code_or_by_type() {
        let refused = Verdict {
            finality: Final,
            code: Refused,
        };
        assert_eq!(classify(429, Some("insufficient_quota"), None), refused);
        assert_eq!(classify(429, None, Some("insufficient_quota")), refused);
        assert_eq!(
            classify(429, Some("rate_limit_exceeded"), Some("requests")).finality,
            Transient
        );
        assert_eq!(
            classify(503, Some("insufficient_quota"), None).finality,
            Transient
        );
    }

    #[test]
    fn a_400_for_context_length_is_final() {
        assert_eq!(
            classify(400, Some("context_length_exceeded"), None).finality,
            Final
        );
    }

    #[test]
    fn every_status_from_300_on_has_a_row() {
        for status in 300..=u16::MAX {
            assert!(
                TABLE
                    .iter()
                    .any(|row| (row.first..=row.last).contains(&status)),
                "{status}"
            );
        }
    }
}
