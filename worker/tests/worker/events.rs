//! A stream that somebody reads along.

use serde_json::Value;
use tidegate_loadtest::gpu::Script;
use tidegate_shared::domain::JobId;
use tidegate_shared::protocol::Follow;

use crate::rig::{BY_HINT, LONG, LOOK_AGAIN, Rig, hints_only, quick, text_of};

async fn follow(rig: &Rig, id: &JobId) {
    let follow = Follow {
        id: id.clone(),
        tenant: None,
    };
    rig.store.follow(&follow).await.unwrap();
}

/// Ids of all events of a job, and the text that they give.
async fn events(rig: &Rig, id: &JobId) -> (Vec<String>, String) {
    let all = rig.store.events(id, None, 10_000).await.unwrap();
    let mut text = String::new();
    for event in &all {
        let data: Value = serde_json::from_slice(&event.data).unwrap();
        text.push_str(
            data["choices"][0]["delta"]["content"]
                .as_str()
                .unwrap_or_default(),
        );
    }
    (all.into_iter().map(|event| event.id).collect(), text)
}

fn numbered(fence: u64, ids: &[String]) {
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(*id, format!("{fence}-{}", n + 1));
    }
}

#[tokio::test]
async fn a_reader_from_the_start_gets_every_piece_once_and_in_order() {
    let rig = Rig::start(quick()).await;
    let id = rig
        .chat(&Script::tag("a").chunks(50_u32).chunk_ms(5_u64))
        .await;
    follow(&rig, &id).await;
    let _worker = rig.worker().await;
    let (_, result) = rig.success(&id).await;
    let (ids, text) = events(&rig, &id).await;
    assert_eq!(text, text_of(&result));
    assert!(ids.len() >= 50);
    numbered(1, &ids);
}

#[tokio::test]
async fn a_reader_that_comes_later_misses_nothing_and_is_served_at_once() {
    let rig = Rig::start(hints_only()).await;
    let _worker = rig.worker().await;
    let id = rig
        .chat(&Script::tag("a").chunks(400_u32).chunk_ms(10_u64))
        .await;
    rig.gpu
        .wait_for(LONG, |call| call.chunks_sent > 20)
        .await
        .unwrap();
    assert_eq!(
        events(&rig, &id).await.0.len(),
        0,
        "nobody reads, nothing is published"
    );
    let mut watch = rig.store.hints().job(&id).await;
    follow(&rig, &id).await;
    let asked = std::time::Instant::now();
    while events(&rig, &id).await.0.is_empty() {
        let _ = tokio::time::timeout(LOOK_AGAIN, watch.next()).await;
    }
    assert!(asked.elapsed() < BY_HINT, "{:?}", asked.elapsed());
    assert!(!rig.job(&id).await.state.is_terminal());
    let (_, result) = rig.success(&id).await;
    let (ids, text) = events(&rig, &id).await;
    assert_eq!(text, text_of(&result));
    numbered(1, &ids);
}
