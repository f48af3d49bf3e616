//! Dead letters: each says why, keeps its whole request, and may be given a new life.

use serde_json::{Value, json};
use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Allow, LONG, Options, Rig, SOON, chat, job};

use crate::common::{call, sequence};
use crate::poison::request_body;

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_every_reason_are_listed_shown_and_requeued() {
    let options = Options {
        max_lost_leases: 1,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 1, 1, 1).await;
    let exhausted = Script::tag("exhausted")
        .fail_times(3_u32)
        .status(500_u16)
        .text("well");
    let late = sequence(&[
        Script::tag("late").sleep_ms(30_000_u64),
        Script::tag("late").text("well"),
    ]);
    let deadly = sequence(&[
        Script::tag("deadly").hold(),
        Script::tag("deadly").text("well"),
    ]);
    let mut letters = Vec::new();
    for (reason, code, script, more) in [
        (
            "attempts_exhausted",
            "attempts_exhausted",
            exhausted.to_string(),
            json!({}),
        ),
        (
            "timeout",
            "timeout",
            late,
            json!({"timeout_ms": 700, "max_attempts": 1}),
        ),
        ("poison", "poison", deadly, json!({})),
    ] {
        let mut submission = job(&script);
        submission["metadata"] = json!({"why": reason});
        for (name, value) in more.as_object().unwrap() {
            submission[name] = value.clone();
        }
        letters.push((reason, code, script, rig.api.submit(&submission).await));
    }
    call(&rig, "deadly", 1).await;
    for (_, _, _, id) in &letters[..2] {
        rig.api.ends(id, SOON).await;
    }
    rig.kill_worker(0);

    for (reason, code, script, id) in &letters {
        let done = rig.api.ends(id, LONG).await;
        assert_eq!(
            (&done["status"], &done["dead"]),
            (&json!("failed"), &json!(true)),
            "{done:#}"
        );
        let shown_code = done["error"]["code"].as_str().unwrap_or_default();
        // The last error of an exhausted job may be the upstream's own.
        assert!(
            shown_code == *code || *reason == "attempts_exhausted",
            "{done:#}"
        );
        let shown = rig.cli(&["dlq", "show", id, "-o", "json"]).await;
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let letter = shown.json();
        assert_eq!(letter["reason"], *reason, "{letter:#}");
        assert_eq!(letter["id"], **id);
        assert_eq!(request_body(&letter), chat(script), "{letter:#}");
        assert_eq!(letter["metadata"]["why"], *reason, "{letter:#}");
        assert!(
            letter["died_at_ms"].as_u64().is_some_and(|ms| ms > 0),
            "{letter:#}"
        );
        assert!(letter["signature"].is_string(), "{letter:#}");
    }
    let listed = rig.cli(&["dlq", "list", "-o", "json"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let listed = listed.json();
    let listed = listed.as_array().expect("a list is an array alone");
    assert_eq!(listed.len(), 3, "{listed:#?}");
    for (reason, _, _, id) in &letters {
        let entry = listed.iter().find(|l| l["id"] == **id);
        assert_eq!(
            entry.map(|l| &l["reason"]),
            Some(&json!(reason)),
            "{listed:#?}"
        );
    }

    rig.start_worker().await;
    for (_, _, _, id) in &letters {
        rig.api.forget_terminal(id);
        let requeued = rig.cli(&["dlq", "requeue", id, "--yes"]).await;
        assert_eq!(requeued.code, Some(0), "{requeued:?}");
        let done = rig.api.ends(id, LONG).await;
        assert_eq!(done["status"], "succeeded", "{done:#}");
        assert_eq!(done["attempts"], 1, "a new life counts afresh: {done:#}");
        assert_eq!(rig.api.answer(id).await, "well");
        assert_ne!(done["dead"], true, "{done:#}");
    }
    let listed = rig.cli(&["dlq", "list", "-o", "json"]).await;
    assert_eq!(listed.json(), json!([]));
    // What is no dead letter is left as it is, and said.
    let again = rig.cli(&["dlq", "requeue", &letters[0].3, "--yes"]).await;
    assert_ne!(again.code, Some(0), "{again:?}");
    let unknown = rig
        .cli(&["dlq", "show", "job_default_aaaaaaaaaaaaaaaaaaaaaaaaaa"])
        .await;
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    let allow = Allow {
        peak_above_slots: 1,
        ..Allow::default()
    };
    rig.settle_check_allowing(allow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_reached_straight_at_the_store_while_no_ingress_is_up() {
    let mut rig = Rig::start(Options::default(), 1, 1, 1).await;
    let mut submission = job(Script::tag("d")
        .fail_times(1_u32)
        .status(500_u16)
        .text("well"));
    submission["max_attempts"] = json!(1);
    let id = rig.api.submit(&submission).await;
    rig.api.ends(&id, SOON).await;
    let at = rig.stop_ingress(0);
    assert!(rig.gone[at].ended(SOON).await.success());

    let listed = rig.store_cli(&["dlq", "list", "-o", "json"]).await.json();
    assert_eq!(listed[0]["id"], *id, "{listed:#}");
    let letter: Value = rig
        .store_cli(&["dlq", "show", &id, "-o", "json"])
        .await
        .json();
    assert_eq!(letter["request"], rig_request(&letter), "{letter:#}");
    let requeued = rig.store_cli(&["dlq", "requeue", &id, "--yes"]).await;
    assert_eq!(requeued.code, Some(0), "{requeued:?}");
    rig.api.forget_terminal(&id);
    rig.start_ingress().await;
    assert_eq!(rig.api.ends(&id, SOON).await["status"], "succeeded");
    rig.settle_check().await;
}

fn rig_request(letter: &Value) -> Value {
    assert!(letter["request"].is_object(), "{letter:#}");
    letter["request"].clone()
}
