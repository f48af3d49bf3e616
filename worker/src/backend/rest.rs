//! A server that asked to be left alone.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::types::CallOutcome;

/// A longer hint speaks of one caller's quota or of an outage, not of a busy moment: it delays its own job alone, and
/// the next call finds out. It is also the most that common clients wait.
const LONGEST: Duration = Duration::from_secs(60);

/// Until when a server wants no calls, if it said so.
#[derive(Debug, Default)]
pub(super) struct Rest(Mutex<Option<Instant>>);

impl Rest {
    /// Takes the hint of a 429 or 503. An answer takes none back: its call may have begun before the hint.
    pub(super) fn note(&self, outcome: &CallOutcome, now: Instant) {
        let CallOutcome::Failed(failure) = outcome else {
            return;
        };
        let busy = matches!(failure.upstream_status(), Some(429 | 503));
        if let Some(wait) = failure.retry_after.filter(|wait| busy && *wait <= LONGEST) {
            let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *until = Some(until.map_or(now + wait, |before| before.max(now + wait)));
        }
    }

    /// How long the rest goes on.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (*held)
            .map(|until| until.saturating_duration_since(now))
            .filter(|left| !left.is_zero())
    }
}

/// A 503 with a hint.
#[cfg(test)]
pub(super) fn busy(retry_after: Duration) -> CallOutcome {
    use super::types::{CallFailure, FailureCode};
    use super::upstream::UpstreamDetail;
    CallOutcome::Failed(CallFailure {
        code: FailureCode::UpstreamError,
        message: String::new(),
        upstream: Some(UpstreamDetail {
            status: Some(503),
            ..UpstreamDetail::default()
        }),
        retry_after: Some(retry_after),
        partial: None,
        output_tokens_so_far: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_hint_holds_for_its_time_and_the_longest_of_several_counts() {
        let rest = Rest::default();
        let now = Instant::now();
        assert_eq!(rest.left(now), None);
        rest.note(&busy(s(4)), now);
        rest.note(&busy(s(2)), now);
        assert_eq!(rest.left(now), Some(s(4)));
        assert_eq!(rest.left(now + s(3)), Some(s(1)));
        assert_eq!(rest.left(now + s(4)), None);
    }

    #[test]
    fn a_hint_beyond_the_bound_does_not_hold_up_the_pool() {
        let rest = Rest::default();
        let now = Instant::now();
        rest.note(&busy(s(61)), now);
        assert_eq!(rest.left(now), None);
    }

    #[test]
    fn a_call_that_was_given_up_says_nothing() {
        let rest = Rest::default();
        let now = Instant::now();
        rest.note(&busy(s(4)), now);
        rest.note(
            &CallOutcome::Cancelled {
                output_tokens_so_far: 0,
            },
            now,
        );
        assert_eq!(rest.left(now), Some(s(4)));
    }
}
