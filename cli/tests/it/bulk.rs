//! `tidegate dlq`: looking, and deciding about many at once.

use serde_json::{Value, json};

use crate::rig::Dev;

fn counts(value: &Value) -> [u64; 4] {
    ["matched", "done", "skipped", "failed"].map(|name| value[name].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_counted_before_they_are_requeued() {
    let dev = Dev::start(&[]).await;
    let (a, b) = (dev.dead("a").await, dev.dead("b").await);
    let listed = dev.cli(&["dlq", "list", "-o", "name"]).await;
    assert_eq!(listed.stdout, format!("{b}\n{a}\n"));
    let shown = dev.cli(&["dlq", "show", &a, "-o", "json"]).await.ok();
    assert_eq!(shown["reason"], "attempts_exhausted", "{shown:#}");
    assert!(shown["request"]["body"]["messages"].is_array(), "{shown:#}");
    let text = dev.cli(&["dlq", "show", &a]).await;
    assert!(
        text.stdout.contains("attempts_exhausted") && text.stdout.contains("messages"),
        "{text:?}"
    );

    let dry = dev
        .cli(&["dlq", "requeue", "--all", "--dry-run", "-o", "json"])
        .await
        .ok();
    assert_eq!(
        (counts(&dry), &dry["dry_run"]),
        ([2, 0, 0, 0], &json!(true))
    );
    dev.cli(&["dlq", "requeue", "--all"])
        .await
        .fails(2, "--yes");
    let done = dev
        .cli(&[
            "dlq", "requeue", "--all", "--yes", "--rate", "100", "-o", "json",
        ])
        .await
        .ok();
    assert_eq!(counts(&done), [2, 2, 0, 0]);
    for id in [&a, &b] {
        let watched = dev.cli(&["job", "watch", id]).await;
        assert_eq!(watched.code, 0, "a new life: {watched:?}");
    }
    assert_eq!(dev.cli(&["dlq", "list", "-o", "json"]).await.stdout, "[]\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_means_those_for_which_every_term_holds() {
    let dev = Dev::start(&[]).await;
    dev.dead("a").await;
    for (filter, matched) in [
        ("pool=default", 1),
        ("pool=default reason=attempts_exhausted tenant=dev", 1),
        ("reason=poison", 0),
        ("age>1h", 0),
        ("age<1h", 1),
    ] {
        let dry = dev
            .cli(&[
                "dlq",
                "purge",
                "--filter",
                filter,
                "--dry-run",
                "-o",
                "json",
            ])
            .await
            .ok();
        assert_eq!(counts(&dry)[0], matched, "{filter}");
    }
    let none = dev
        .cli(&["dlq", "purge", "--filter", "reason=poison", "-o", "json"])
        .await
        .ok();
    assert_eq!(counts(&none), [0, 0, 0, 0], "nothing to ask about");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_takes_what_it_names_and_says_what_it_could_not() {
    let dev = Dev::start(&[]).await;
    let (a, b) = (dev.dead("a").await, dev.dead("b").await);
    dev.cli(&["dlq", "purge", &a]).await.fails(2, "--yes");
    let done = dev
        .cli(&["dlq", "purge", &a, "--yes", "-o", "json"])
        .await
        .ok();
    assert_eq!(counts(&done), [1, 1, 0, 0]);
    dev.cli(&["dlq", "show", &a]).await.fails(3, "not_found");
    let left = dev
        .cli(&["dlq", "purge", &a, &b, "--yes", "-o", "json"])
        .await;
    assert_eq!(counts(&left.json()), [2, 1, 1, 0], "{left:?}");
    let again = dev.cli(&["dlq", "purge", &b, "--yes", "-o", "json"]).await;
    again.fails(5, "not done");
    assert_eq!(counts(&again.json()), [1, 0, 1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_no_dead_letter_is_skipped_and_no_more_than_max_are_taken() {
    let dev = Dev::start(&[]).await;
    let (_, b) = (dev.dead("a").await, dev.dead("b").await);
    let one = dev
        .cli(&[
            "dlq", "requeue", "--all", "--max", "1", "--yes", "-o", "json",
        ])
        .await
        .ok();
    assert_eq!(counts(&one), [1, 1, 0, 0]);
    assert_eq!(
        dev.cli(&["job", "watch", &b]).await.code,
        0,
        "the newest was taken"
    );
    let skipped = dev.cli(&["dlq", "requeue", &b, "-o", "json"]).await;
    assert_eq!(
        (skipped.code, counts(&skipped.json())),
        (5, [1, 0, 1, 0]),
        "{skipped:?}"
    );
    assert!(
        skipped
            .stderr
            .contains("1 of 1 were not done; no dead letter"),
        "{skipped:?}"
    );
}
