//! Metadata of jobs, remembered: it never changes, and it lies beside a request that may be megabytes long, which a poll
//! must not fetch each time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_shared::domain::JobId;

/// Jobs remembered; with the bounds of metadata at most some 40 MB, as a rule a hundredth of it.
const MAX_JOBS: usize = 4096;

#[derive(Default)]
struct Known {
    by_id: HashMap<JobId, Arc<str>>,
    oldest_first: VecDeque<JobId>,
}

#[derive(Default)]
pub(crate) struct Metadata(Mutex<Known>);

impl Metadata {
    /// What is remembered: JSON, or empty for none.
    pub(crate) fn get(&self, id: &JobId) -> Option<Arc<str>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .by_id
            .get(id)
            .cloned()
    }

    pub(crate) fn put(&self, id: &JobId, metadata: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.by_id.insert(id.clone(), metadata.into()).is_some() {
            return;
        }
        known.oldest_first.push_back(id.clone());
        if known.oldest_first.len() > MAX_JOBS
            && let Some(oldest) = known.oldest_first.pop_front()
        {
            known.by_id.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_forgets_the_oldest_first() {
        let metadata = Metadata::default();
        let pool = "default".parse().unwrap();
        let ids: Vec<JobId> = (0..=MAX_JOBS).map(|_| JobId::mint(&pool)).collect();
        for id in &ids {
            metadata.put(id, "{}");
            metadata.put(id, "{}");
        }
        assert_eq!(metadata.get(&ids[0]), None);
        assert_eq!(metadata.get(&ids[1]).as_deref(), Some("{}"));
    }
}
