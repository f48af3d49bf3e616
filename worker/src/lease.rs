//! The worker's own reckoning of a lease, on the monotonic clock: never longer than the store's.

use std::time::Duration;

use tokio::time::Instant;

/// Below this a margin would be eaten by the scheduler and the closing of the call.
const LEAST_MARGIN: Duration = Duration::from_millis(50);

/// How much before the lease's end the model call is stopped: a twentieth of the lease, at least 50 ms, at most half.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 20).max(LEAST_MARGIN).min(lease / 2)
}

/// When the model call must have stopped if the lease is not extended again.
///
/// The store counted `granted` from when the step ran, and that was after `sent`. It extends no lease beyond `latest`.
pub(crate) fn local_end(
    sent: Instant,
    granted: Duration,
    lease: Duration,
    latest: Instant,
) -> Instant {
    let end = (sent + granted).min(latest);
    end.checked_sub(margin(lease))
        .map_or(sent, |end| end.max(sent))
}

/// The last moment to which the store extends the lease of a delivery claimed at `claimed` or later: one lease past its
/// run's time-out.
pub(crate) fn latest(claimed: Instant, timeout: Duration, lease: Duration) -> Instant {
    // A time-out is at most some days; an instant holds centuries.
    claimed + timeout + lease
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_call_stops_before_the_lease_as_the_store_counts_it_ends() {
        let sent = Instant::now();
        let far = sent + ms(1_000_000);
        for (lease, stops_after) in [(30_000, 28_500), (2_000, 1_900), (500, 450), (60, 30)] {
            assert_eq!(
                local_end(sent, ms(lease), ms(lease), far),
                sent + ms(stops_after),
                "lease {lease}"
            );
        }
    }

    #[test]
    fn a_reply_that_comes_late_leaves_less() {
        let sent = Instant::now();
        let far = sent + ms(1_000_000);
        // A claim sent again brought a delivery that has 700 ms left.
        assert_eq!(local_end(sent, ms(700), ms(2_000), far), sent + ms(600));
        assert_eq!(local_end(sent, ms(0), ms(2_000), far), sent);
    }

    #[test]
    fn a_renewal_promises_nothing_beyond_the_runs_time_out_and_a_lease() {
        let claimed = Instant::now();
        let last = latest(claimed, ms(10_000), ms(2_000));
        let sent = claimed + ms(11_000);
        assert_eq!(
            local_end(sent, ms(2_000), ms(2_000), last),
            claimed + ms(11_900)
        );
        assert_eq!(
            local_end(claimed + ms(20_000), ms(2_000), ms(2_000), last),
            claimed + ms(20_000)
        );
    }
}
