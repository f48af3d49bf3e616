//! Waiting for something to become true, bounded.

use std::future::Future;
use std::time::{Duration, Instant};

/// What should happen at once gets so long on a busy machine.
pub const SOON: Duration = Duration::from_secs(10);
/// What takes a lease, a drain or a restart gets so long.
pub const LONG: Duration = Duration::from_secs(40);

/// How often a state that nobody announces is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Looks until `look` gives something.
///
/// # Panics
/// When it does not within `limit`; the message says `what` was waited for.
pub async fn until<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(LOOK).await;
    }
}
