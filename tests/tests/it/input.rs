//! Case 1: bodies that are nested or large cost nobody else anything.

use std::time::{Duration, Instant};

use tidegate_loadtest::gpu::Script;
use tidegate_tests::{Options, Reply, Rig, SOON, job};

use crate::common::{call, ran_just_once, refused_naming};

const MAX_BODY: usize = 9_000_000;
const PROMPT: usize = 8_000_000;

async fn post_text(rig: &Rig, text: String) -> (Reply, Duration) {
    let start = Instant::now();
    let request = rig
        .api
        .request("POST", "/v1/jobs")
        .header("content-type", "application/json")
        .body(text);
    let reply = rig.api.send(request).await;
    if reply.status == 202 {
        rig.api.note(&reply.json());
    }
    (reply, start.elapsed())
}

fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

/// A submission whose body has these members too.
fn with(members: &str) -> String {
    format!(
        r#"{{"model":"m","body":{{"model":"m","messages":[{{"role":"user","content":"hi"}}],{members}}}}}"#
    )
}

async fn records(rig: &Rig) -> String {
    rig.redis(&["--raw", "EVAL", "local n, c = 0, '0' repeat local p = redis.call('SCAN', c, 'COUNT', 1000) c = p[1] for _, k in ipairs(p[2]) do if string.find(k, ':job:', 1, true) or string.find(k, ':envelope:', 1, true) or string.find(k, ':idem', 1, true) then n = n + 1 end end until c == '0' return n", "0"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn deeply_nested_bodies_are_refused_at_once_and_leave_no_trace() {
    let options = Options {
        max_body_bytes: MAX_BODY as u64,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 2, 3, 1).await;
    let running = rig
        .api
        .submit(&job(Script::tag("running")
            .sleep_ms(5_000_u64)
            .text("well")))
        .await;
    call(&rig, "running", 1).await;
    let (records_before, pool_before) = (records(&rig).await, rig.pool().await["queued"].clone());

    let deep_field = with(&format!(r#""x":{}"#, nested(100_000)));
    let deep_tools = with(&format!(r#""tools":{}"#, nested(3_000)));
    let mut content = String::new();
    for _ in 0..10_000 {
        content.push_str(r#"{"a":"#);
    }
    content.push('1');
    content.push_str(&"}".repeat(10_000));
    let deep_content = format!(
        r#"{{"model":"m","body":{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}}}"#
    );
    // Not even closed.
    let open = with(&format!(r#""x":{}"#, "[".repeat(100_000)));
    for (what, text) in [
        ("field", &deep_field),
        ("tools", &deep_tools),
        ("content", &deep_content),
        ("open", &open),
    ] {
        let (reply, took) = post_text(&rig, text.clone()).await;
        assert_eq!(reply.code(), "too_deep", "{what}: {}", reply.text());
        refused_naming(&reply, 400, "64");
        assert!(took < Duration::from_secs(1), "{what}: {took:?}");
    }
    let over = with(&format!(r#""x":"{}""#, "a".repeat(MAX_BODY)));
    let over = over[..MAX_BODY - 3].to_owned() + "\"}}" + " ";
    assert_eq!(over.len(), MAX_BODY + 1);
    let (reply, _) = post_text(&rig, over.clone()).await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (413, "body_too_large"),
        "{}",
        reply.text()
    );

    assert_eq!(
        records(&rig).await,
        records_before,
        "a refusal left something"
    );
    assert_eq!(rig.pool().await["queued"], pool_before);

    let flat = with(&format!(r#""x":[{}0]"#, "0,".repeat(100_000)));
    let (reply, _) = post_text(&rig, flat).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let (reply, _) = post_text(&rig, over[..MAX_BODY].to_owned()).await;
    assert_eq!(reply.status, 202, "at the limit: {}", reply.text());
    ran_just_once(&rig.api.ends(&running, SOON).await);
    rig.settle_check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_of_eight_megabytes_delays_nobody() {
    let options = Options {
        max_body_bytes: MAX_BODY as u64,
        weight: 3,
        ..Options::default()
    };
    let mut rig = Rig::start(options, 1, 1, 1).await;
    let watched = rig.api.submit(&job(Script::tag("watched").hold())).await;
    call(&rig, "watched", 1).await;
    let text = "word ".repeat(PROMPT / 5);
    let submission = job(format!("{text}{}", Script::tag("large").text("read")));
    let request = rig
        .api
        .request("POST", "/v1/jobs")
        .header("content-type", "application/json")
        .body(submission.to_string());
    let large = rig.api.clone();
    let submit = tokio::spawn(async move { large.send(request).await });
    let base = rig.ingress[0].1.clone();
    let mut times = Vec::new();
    while !submit.is_finished() {
        let start = Instant::now();
        let alive = rig.api.plain(&format!("{base}/healthz")).await.unwrap();
        assert_eq!(alive.status, 200);
        times.push(start.elapsed());
        let start = Instant::now();
        rig.api.get(&watched).await;
        times.push(start.elapsed());
    }
    times.sort();
    // Two may wait for a processor of a busy machine, where the parse is only one of many that want it.
    let slowest = times[times.len().saturating_sub(3)];
    assert!(times.len() > 6, "too quick to tell: {times:?}");
    assert!(slowest < Duration::from_millis(200), "{times:?}");
    let submitted = submit.await.unwrap();
    assert_eq!(submitted.status, 202, "{}", submitted.text());
    rig.api.note(&submitted.json());
    let id = submitted.json()["id"].as_str().unwrap().to_owned();
    rig.gpu.release("watched");
    ran_just_once(&rig.api.ends(&id, SOON).await);
    assert_eq!(
        rig.gpu.calls_tagged("large")[0].body_bytes / 1_000_000,
        PROMPT / 1_000_000
    );
    rig.settle_check().await;
}
