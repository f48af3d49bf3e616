//! Choosing among the model servers of a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Backend, BackendError, InFlight};
use super::types::{CallOutcome, CallRequest, Limits, Progress, Timeouts};

/// For so long a server that gave no connection is passed over, if another is there.
const AVOID: Duration = Duration::from_secs(1);

/// Several interchangeable model servers.
#[derive(Debug)]
pub struct Backends {
    all: Vec<Arc<Backend>>,
    /// Where the search begins, so that equals take turns.
    turn: AtomicUsize,
}

/// A server chosen for one call, which counts as under way from the choice on.
#[derive(Debug)]
pub struct Picked<'a> {
    backend: &'a Backend,
    _counted: InFlight<'a>,
}

impl Picked<'_> {
    /// The server.
    pub fn backend(&self) -> &Backend {
        self.backend
    }

    /// Makes the call; see [`Backend::call`].
    pub async fn call(
        self,
        request: &CallRequest<'_>,
        timeouts: Timeouts,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> CallOutcome {
        self.backend
            .call_counted(request, timeouts, progress, cancel)
            .await
    }
}

impl Backends {
    /// The servers at these addresses.
    ///
    /// # Errors
    /// When one of them cannot be a model server's; see [`Backend::new`].
    pub fn new<S: AsRef<str>>(urls: &[S], limits: Limits) -> Result<Self, BackendError> {
        let all = urls
            .iter()
            .map(|url| Backend::new(url.as_ref(), limits).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            all,
            turn: AtomicUsize::new(0),
        })
    }

    /// All servers, in the order given.
    pub fn all(&self) -> &[Arc<Backend>] {
        &self.all
    }

    /// How long every server has asked to be left alone; none where one may be called now, or where there are none.
    /// New work waits for it, so that a busy server's hint holds for the whole pool and not for one job.
    pub fn rest(&self) -> Option<Duration> {
        let now = Instant::now();
        let rests = self.all.iter().map(|backend| backend.rest().left(now));
        rests.min().flatten()
    }

    /// The server with the fewest calls under way, passing over those that gave no connection within the last second,
    /// or that asked to be left alone, unless all did. `None` when there are no servers at all.
    pub fn pick(&self) -> Option<Picked<'_>> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let backend = (0..self.all.len())
            .map(|step| &self.all[start.wrapping_add(step) % self.all.len()])
            .min_by_key(|backend| {
                (
                    is_avoided(backend.connect_failed_at(), now)
                        || backend.rest().left(now).is_some(),
                    backend.in_flight(),
                )
            })?;
        Some(Picked {
            backend,
            _counted: InFlight::enter(backend.count_in_flight()),
        })
    }
}

fn is_avoided(connect_failed_at: Option<Instant>, now: Instant) -> bool {
    connect_failed_at.is_some_and(|at| now.saturating_duration_since(at) < AVOID)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn three() -> Backends {
        Backends::new(
            &["http://a", "http://b", "http://c"],
            Limits {
                max_response_bytes: 1,
            },
        )
        .unwrap()
    }

    #[test]
    fn the_least_busy_server_is_chosen() {
        let backends = three();
        let picked: Vec<_> = (0..6).map(|_| backends.pick().unwrap()).collect();
        assert!(
            backends
                .all()
                .iter()
                .all(|backend| backend.in_flight() == 2)
        );
        let free = picked[4].backend().url().to_owned();
        let mut picked = picked;
        picked.remove(4);
        assert_eq!(backends.pick().unwrap().backend().url(), free);
        drop(picked);
        assert!(
            backends
                .all()
                .iter()
                .all(|backend| backend.in_flight() == 0)
        );
    }

    #[test]
    fn without_servers_there_is_nothing_to_choose() {
        let none = Backends::new::<&str>(
            &[],
            Limits {
                max_response_bytes: 1,
            },
        )
        .unwrap();
        assert!(none.pick().is_none());
    }

    #[test]
    fn the_pool_rests_only_while_every_server_does() {
        let backends = three();
        let now = Instant::now();
        for (n, backend) in backends.all().iter().enumerate() {
            assert_eq!(backends.rest(), None);
            let asked = Duration::from_secs(5 + n as u64);
            backend.rest().note(&super::super::rest::busy(asked), now);
        }
        let left = backends.rest().unwrap();
        assert!(
            left <= Duration::from_secs(5) && left > Duration::from_secs(1),
            "{left:?}"
        );
        let none = Backends::new::<&str>(
            &[],
            Limits {
                max_response_bytes: 1,
            },
        )
        .unwrap();
        assert_eq!(none.rest(), None);
    }

    #[test]
    fn a_failed_connection_is_avoided_for_a_second() {
        let now = Instant::now();
        assert!(!is_avoided(None, now));
        assert!(is_avoided(Some(now), now));
        assert!(is_avoided(Some(now), now + AVOID / 2));
        assert!(!is_avoided(Some(now), now + AVOID));
    }
}
