//! Every step where nothing goes wrong: what the cells are compared with.

use super::cells::Row;
use super::lane::Lane;
use super::run::{first_word, lease_ms, set};
use super::view::{self, View};

/// What the pool looks like before a step and after it, where nothing goes wrong.
pub(crate) struct Calm {
    pub(super) before: View,
    pub(super) after: View,
}

impl Calm {
    /// Runs `row` without a fault, twice: the second time it changes nothing.
    pub(crate) async fn of(lane: &mut Lane, row: Row) -> Self {
        let (scene, _proxy) = set(lane, row, lease_ms(row, None)).await.0;
        let look = async || view::normal(&scene.store, &scene.pool, &scene.jobs).await;
        let before = look().await;
        let said = scene.ask.send(&scene.store).await.unwrap();
        assert_eq!(first_word(&said), row.done(), "{row:?}");
        let after = look().await;
        assert_ne!(before, after, "{row:?} changes nothing that is looked at");
        let again = scene.ask.send(&scene.store).await.unwrap();
        assert_eq!(first_word(&again), row.done_before(), "{row:?}");
        assert_eq!(after, look().await, "{row:?} sent twice");
        Self { before, after }
    }
}
