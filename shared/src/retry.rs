//! Waiting between tries: the only module that names the `backoff` crate.
//!
//! `backoff` is unmaintained (RUSTSEC-2025-0012, and through it `instant`, RUSTSEC-2024-0384). Nothing of it shows in
//! this module's interface, so replacing it is a change of this file alone.

use std::future::Future;
use std::time::Duration;

use backoff::ExponentialBackoffBuilder;
use backoff::backoff::Backoff;
use rand::Rng;
use tokio::time::Instant;

/// How long to wait before each further try: exponential, factor 2, full jitter, capped.
///
/// The wait before try n is uniform in `[0, min(max, initial × 2ⁿ⁻¹)]`: "full jitter" of the AWS Architecture Blog,
/// "Exponential Backoff And Jitter" (2015), which spreads a herd the most for the least total work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    initial: Duration,
    max: Duration,
}

/// Beyond this many doublings every sane base has met every sane cap; bounds the work of one call.
const MAX_DOUBLINGS: u32 = 63;

impl Retry {
    /// Waits from up to `initial` to up to `max`; a smaller `max` counts as `initial`.
    pub fn new(initial: Duration, max: Duration) -> Self {
        Self {
            initial,
            max: max.max(initial),
        }
    }

    /// For commands of the store: 20 ms doubling to 500 ms, so that a fail-over of one or two seconds costs a handful
    /// of tries and none of them waits long after its end.
    pub fn store() -> Self {
        Self::new(Duration::from_millis(20), Duration::from_millis(500))
    }

    /// The wait after the failure of try `attempt` (from 1; 0 counts as 1), drawn anew at each call.
    pub fn delay(&self, attempt: u32) -> Duration {
        let cap = self.cap(attempt);
        // The crate draws from `interval ± factor × interval`: half the cap with factor 1 is the whole of [0, cap].
        let mut policy = ExponentialBackoffBuilder::new()
            .with_initial_interval(cap / 2)
            .with_max_interval(cap / 2)
            .with_randomization_factor(1.0)
            .with_multiplier(1.0)
            .with_max_elapsed_time(None)
            .build();
        policy.next_backoff().unwrap_or(cap).min(cap)
    }

    /// The longest wait after the failure of try `attempt` (from 1).
    fn cap(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(MAX_DOUBLINGS);
        let factor = 1_u64 << doublings;
        let initial_us = u64::try_from(self.initial.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(initial_us.saturating_mul(factor)).min(self.max)
    }
}

/// What a try's failure means for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryError<E> {
    /// Trying again cannot help.
    Permanent(E),
    /// Trying again may help.
    Transient(E),
}

impl<E> RetryError<E> {
    /// The failure itself.
    pub fn into_inner(self) -> E {
        match self {
            Self::Permanent(error) | Self::Transient(error) => error,
        }
    }
}

/// Runs `op` until it succeeds, fails for good, or the next try would start at or after `deadline` (monotonic).
///
/// The first try always runs. A try that is running at the deadline is not cut off: an operation has its own time-out,
/// and one that is cut off in the middle may have taken effect.
///
/// # Errors
/// The failure of the last try, which says whether it was permanent.
pub async fn retry_until<T, E, Op, Fut>(
    deadline: Instant,
    policy: Retry,
    mut op: Op,
) -> Result<T, RetryError<E>>
where
    Op: FnMut() -> Fut,
    Fut: Future<Output = Result<T, RetryError<E>>>,
{
    let mut attempt = 0_u32;
    loop {
        attempt = attempt.saturating_add(1);
        let error = match op().await {
            Ok(value) => return Ok(value),
            Err(permanent @ RetryError::Permanent(_)) => return Err(permanent),
            Err(transient @ RetryError::Transient(_)) => transient,
        };
        let wait = policy.delay(attempt);
        match Instant::now().checked_add(wait) {
            Some(next) if next < deadline => tokio::time::sleep_until(next).await,
            _ => return Err(error),
        }
    }
}

/// The wait of a job after its attempt number `attempt` (from 1), in milliseconds: uniform in
/// `[0, min(max_ms, base_ms × 2ᵃᵗᵗᵉᵐᵖᵗ⁻¹)]`, full jitter as in [`Retry`]. Pure but for `rng`.
pub fn job_backoff_ms(base_ms: u64, max_ms: u64, attempt: u32, rng: &mut impl Rng) -> u64 {
    let doublings = attempt.saturating_sub(1).min(MAX_DOUBLINGS);
    let cap = base_ms.saturating_mul(1_u64 << doublings).min(max_ms);
    rng.random_range(0..=cap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_lies_under_its_doubling_cap_and_uses_the_whole_range() {
        let policy = Retry::new(ms(100), ms(1000));
        for (attempt, cap) in [
            (0, 100),
            (1, 100),
            (2, 200),
            (3, 400),
            (4, 800),
            (5, 1000),
            (u32::MAX, 1000),
        ] {
            let waits: Vec<Duration> = (0..400).map(|_| policy.delay(attempt)).collect();
            assert!(
                waits.iter().all(|wait| *wait <= ms(cap)),
                "attempt {attempt}"
            );
            assert!(
                waits.iter().any(|wait| *wait < ms(cap / 4)),
                "attempt {attempt}: full jitter reaches down"
            );
            assert!(
                waits.iter().any(|wait| *wait > ms(cap * 3 / 4)),
                "attempt {attempt}: full jitter reaches up"
            );
        }
    }

    #[test]
    fn a_cap_below_the_initial_wait_counts_as_the_initial_wait() {
        assert_eq!(Retry::new(ms(50), ms(10)), Retry::new(ms(50), ms(50)));
        assert_eq!(
            Retry::new(Duration::ZERO, Duration::ZERO).delay(9),
            Duration::ZERO
        );
    }

    #[test]
    fn a_jobs_wait_doubles_to_its_cap_and_repeats_for_a_seed() {
        for (attempt, cap) in [
            (1, 500),
            (2, 1000),
            (3, 2000),
            (8, 60_000),
            (u32::MAX, 60_000),
        ] {
            let mut rng = StdRng::seed_from_u64(7);
            let waits: Vec<u64> = (0..200)
                .map(|_| job_backoff_ms(500, 60_000, attempt, &mut rng))
                .collect();
            assert!(waits.iter().all(|wait| *wait <= cap), "attempt {attempt}");
            assert!(
                waits.iter().any(|wait| *wait > cap / 2),
                "attempt {attempt}"
            );
            let again = job_backoff_ms(500, 60_000, attempt, &mut StdRng::seed_from_u64(7));
            assert_eq!(waits[0], again);
        }
        assert_eq!(job_backoff_ms(0, 0, 3, &mut StdRng::seed_from_u64(1)), 0);
        assert!(job_backoff_ms(u64::MAX, u64::MAX, 60, &mut StdRng::seed_from_u64(1)) > 0);
    }

    #[tokio::test]
    async fn a_transient_failure_is_tried_again_until_it_succeeds() {
        let mut tries = 0;
        let deadline = Instant::now() + ms(60_000);
        let answer: Result<u32, RetryError<&str>> =
            retry_until(deadline, Retry::new(ms(1), ms(2)), || {
                tries += 1;
                let result = if tries < 4 {
                    Err(RetryError::Transient("loading"))
                } else {
                    Ok(tries)
                };
                async move { result }
            })
            .await;
        assert_eq!(answer, Ok(4));
    }

    #[tokio::test]
    async fn a_permanent_failure_is_tried_once() {
        let mut tries = 0;
        let answer: Result<(), _> =
            retry_until(Instant::now() + ms(60_000), Retry::store(), || {
                tries += 1;
                async { Err(RetryError::Permanent("refused")) }
            })
            .await;
        assert_eq!((answer, tries), (Err(RetryError::Permanent("refused")), 1));
    }

    #[tokio::test]
    async fn no_try_starts_after_the_deadline_and_the_last_failure_is_told() {
        let deadline = Instant::now() + ms(50);
        let mut starts = Vec::new();
        let answer: Result<(), _> = retry_until(deadline, Retry::new(ms(1), ms(4)), || {
            starts.push(Instant::now());
            async { Err(RetryError::Transient("down")) }
        })
        .await;
        assert_eq!(answer, Err(RetryError::Transient("down")));
        // A timer may fire a little late, on a busy machine too, but the plan never goes past the deadline.
        assert!(starts.len() > 1, "it was tried again: {starts:?}");
        assert!(Instant::now() < deadline + ms(10_000));
        let mut late = 0;
        let _: Result<(), RetryError<()>> =
            retry_until(Instant::now(), Retry::new(ms(60_000), ms(60_000)), || {
                late += 1;
                async { Err(RetryError::Transient(())) }
            })
            .await;
        assert_eq!(late, 1, "the first try always runs");
    }
}
