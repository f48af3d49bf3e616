//! Takes the store's record out of the store while the run goes on, so that neither it nor this process grows.

use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::audit::Entry;
use tidegate_shared::config::{StoreConfig, StoreUrl};
use tidegate_shared::domain::PoolName;
use tidegate_shared::shutdown::Tasks;
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::record::Record;

/// Entries read at once: a megabyte or two.
const PAGE: usize = 1_000;
/// Entries of one file.
const PIECE: usize = 20_000;
/// Pause where there was nothing to read, or the store could not say.
const PAUSE: Duration = Duration::from_millis(50);
/// After the end of a run the store has so long to give the rest.
const REST: Duration = Duration::from_secs(30);

/// A running recorder.
#[derive(Debug)]
pub(crate) struct Recorder {
    stop: CancellationToken,
    task: JoinHandle<Result<u64, String>>,
}

impl Recorder {
    /// Begins to take the record of `pool` at the store's own address.
    pub(crate) async fn start(url: &str, pool: PoolName, record: Record) -> Self {
        let config = StoreConfig {
            url: StoreUrl::new(url),
            ..StoreConfig::default()
        };
        let store = Store::open(&config, Arc::new(Metrics::new("soak")))
            .await
            .expect("the address of a private store");
        let stop = CancellationToken::new();
        let drain = Drain {
            store,
            pool,
            record,
            pending: Vec::new(),
            pieces: 0,
            last: 0,
        };
        let tasks = Tasks::new();
        Self {
            task: tasks.spawn(drain.run(stop.clone())),
            stop,
        }
    }

    /// Takes the rest, and gives the number of the last entry.
    pub(crate) async fn finish(self) -> Result<u64, String> {
        self.stop.cancel();
        self.task.await.map_err(|e| e.to_string())?
    }
}

struct Drain {
    store: Store,
    pool: PoolName,
    record: Record,
    pending: Vec<Entry>,
    pieces: u32,
    last: u64,
}

impl Drain {
    async fn run(mut self, stop: CancellationToken) -> Result<u64, String> {
        let mut stopped_at = None;
        loop {
            if stop.is_cancelled() && stopped_at.is_none() {
                stopped_at = Some(Instant::now());
            }
            match self.store.audit(&self.pool, self.last, PAGE).await {
                Ok(entries) if entries.is_empty() => {
                    if stopped_at.is_some() {
                        self.write()?;
                        return Ok(self.last);
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(entries) => self.keep(entries).await?,
                Err(error) => {
                    if stopped_at.is_some_and(|at| at.elapsed() > REST) {
                        return Err(format!("the rest of the record was not to be had: {error}"));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn keep(&mut self, entries: Vec<Entry>) -> Result<(), String> {
        self.last = entries.last().map_or(self.last, |entry| entry.number);
        self.pending.extend(entries);
        // Where the store cannot drop them now, the next page's drop takes them along.
        let _ = self.store.audit_drop(&self.pool, self.last).await;
        if self.pending.len() >= PIECE {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), String> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let entries = std::mem::take(&mut self.pending);
        self.record
            .add_entries(self.pieces, &self.pool, &entries)
            .map_err(|e| format!("the record cannot be written: {e}"))?;
        self.pieces += 1;
        Ok(())
    }
}
