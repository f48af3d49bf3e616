//! What becomes of a job.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_loadtest::gpu::Script;
use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::{DeadReason, Endpoint, State};

use crate::rig::{LONG, Rig, chat_body, quick, text_of};

#[tokio::test]
async fn a_job_is_claimed_called_streamed_and_stored() {
    let rig = Rig::start(quick()).await;
    let worker = rig.worker().await;
    let id = rig.chat(&Script::tag("a").text("one two three")).await;
    let (job, result) = rig.success(&id).await;
    assert_eq!(text_of(&result), "one two three");
    assert_eq!(
        (job.attempts, job.fence.0, job.lost_leases, job.stops),
        (1, 1, 0, 0)
    );
    assert_eq!(job.worker.as_deref(), Some(worker.id.as_str()));
    let usage = job.usage.unwrap();
    assert_eq!((usage.output_tokens, usage.estimated), (3, false));
    let calls = rig.gpu.calls();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].stream, "it streams, so that progress is known");
    assert_eq!(
        calls[0].header("x-request-id"),
        Some(id.to_string().as_str())
    );
    let parent = calls[0].header("traceparent").unwrap();
    assert!(
        parent.contains("0af7651916cd43dd8448eb211c80319c"),
        "{parent}"
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_plain_answer_is_stored_byte_for_byte() {
    let rig = Rig::start(quick()).await;
    let _worker = rig.worker().await;
    let body = "{\"id\":\"x\", \"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"h\\u00e9é\"},\"finish_reason\":\"stop\"}],\n \"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3},\"odd\":1.50e0 }";
    let script = Script::tag("raw")
        .plain()
        .raw(body.as_bytes())
        .header("content-type", "application/json");
    let id = rig.chat(&script).await;
    let (_, result) = rig.success(&id).await;
    assert_eq!(String::from_utf8(result).unwrap(), body);
}

#[tokio::test]
async fn completions_and_embeddings_are_called_on_their_own_routes() {
    let rig = Rig::start(quick()).await;
    let _worker = rig.worker().await;
    let completion = json!({"model": "m", "prompt": Script::tag("c").text("yes").to_string()});
    let completion = rig.submit(Endpoint::Completions, completion, |_| ()).await;
    let embedding = json!({"model": "m", "input": "words to embed"});
    let embedding = rig.submit(Endpoint::Embeddings, embedding, |_| ()).await;
    let (_, result) = rig.success(&completion).await;
    let result: Value = serde_json::from_slice(&result).unwrap();
    assert_eq!(result["choices"][0]["text"], "yes");
    let (job, result) = rig.success(&embedding).await;
    let result: Value = serde_json::from_slice(&result).unwrap();
    assert!(
        result["data"][0]["embedding"]
            .as_array()
            .is_some_and(|values| !values.is_empty())
    );
    assert_eq!(job.usage.unwrap().output_tokens, 0);
}

#[tokio::test]
async fn a_refusal_is_final_after_one_call_and_says_what_the_server_said() {
    let rig = Rig::start(quick()).await;
    let _worker = rig.worker().await;
    let body = br#"{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#;
    let id = rig
        .chat(&Script::tag("bad").status(400).body(body.as_slice()))
        .await;
    let job = rig.end(&id).await;
    assert_eq!(
        (job.state, job.dead, job.attempts),
        (State::Failed, None, 1)
    );
    let error = job.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.upstream_status),
        ("upstream_refused", Some(400))
    );
    assert_eq!(
        error.upstream_code.as_deref(),
        Some("context_length_exceeded")
    );
    assert_eq!(error.param.as_deref(), Some("messages"));
    assert!(error.message.contains("too long"));
    assert_eq!(rig.gpu.calls_tagged("bad").len(), 1);
}

#[tokio::test]
async fn a_fault_that_passes_is_tried_again_until_it_succeeds() {
    let rig = Rig::start(quick()).await;
    let _worker = rig.worker().await;
    let id = rig
        .chat(
            &Script::tag("again")
                .status(500)
                .fail_times(2_u32)
                .text("at last"),
        )
        .await;
    let (job, result) = rig.success(&id).await;
    assert_eq!(
        (text_of(&result).as_str(), job.attempts, job.fence.0),
        ("at last", 3, 3)
    );
    assert_eq!(rig.gpu.calls_tagged("again").len(), 3);
    assert_eq!(job.error, None, "a success keeps no earlier failure");
}

#[tokio::test]
async fn a_fault_that_stays_makes_a_dead_letter_after_the_last_attempt() {
    let rig = Rig::start(quick()).await;
    let _worker = rig.worker().await;
    for (tag, script, code) in [
        ("500", Script::tag("500").status(500), "upstream_error"),
        ("none", Script::tag("none").refuse(), "connect_failed"),
        (
            "cut",
            Script::tag("cut").text("a b c d").cut_chunks(2_u32),
            "incomplete_response",
        ),
    ] {
        let id = rig.chat(&script).await;
        let job = rig.end(&id).await;
        assert_eq!(
            (job.state, job.dead),
            (State::Failed, Some(DeadReason::AttemptsExhausted)),
            "{tag}"
        );
        assert_eq!(
            (job.attempts, rig.gpu.calls_tagged(tag).len()),
            (3, 3),
            "{tag}"
        );
        let error = job.error.unwrap();
        assert_eq!(error.code, code, "{tag}");
        assert_eq!(error.partial.is_some(), tag == "cut", "{tag}");
        assert_eq!(rig.store.result(&id).await.unwrap(), None, "{tag}");
    }
}

#[tokio::test]
async fn a_hint_to_wait_holds_for_the_job_and_for_new_work_of_its_pool() {
    let rig = Rig::start(quick()).await;
    let _worker = rig.worker().await;
    let busy = Script::tag("busy")
        .status(503)
        .header("retry-after", "1")
        .fail_times(1_u32)
        .text("later");
    let id = rig.chat(&busy).await;
    rig.until(&id, |job| job.state == State::Scheduled).await;
    let other = rig.chat(&Script::tag("other")).await;
    rig.success(&id).await;
    rig.success(&other).await;
    let calls = rig.gpu.calls_tagged("busy");
    assert_eq!(calls.len(), 2);
    let hint_ends_ms = calls[0].finished_ms.unwrap() + 1_000;
    assert!(calls[1].arrived_ms >= hint_ends_ms, "{calls:#?}");
    let other = &rig.gpu.calls_tagged("other")[0];
    // The hint counts from when the answer was read, which is at or after the end the server noted.
    assert!(other.arrived_ms >= hint_ends_ms, "{other:#?}");
}

#[tokio::test]
async fn a_run_past_its_time_out_is_closed_and_dead_once_no_attempt_is_left() {
    let rig = Rig::start(quick()).await;
    let _worker = rig.worker().await;
    let body = chat_body(&Script::tag("slow").chunk_ms(100_u64).chunks(1_000_u32));
    let id = rig
        .submit(Endpoint::ChatCompletions, body, |submit| {
            submit.timeout_ms = 300;
            submit.max_attempts = 2;
        })
        .await;
    let job = rig.end(&id).await;
    assert_eq!(
        (job.state, job.dead, job.attempts),
        (State::Failed, Some(DeadReason::Timeout), 2)
    );
    let error = job.error.unwrap();
    assert_eq!(error.code, "timeout");
    assert!(error.partial.is_some(), "the part that came is kept");
    rig.gpu
        .wait_for(LONG, |call| call.seq == 2 && call.ended())
        .await
        .unwrap();
    assert!(rig.gpu.calls().iter().all(|call| call.closed_by_caller));
    assert_eq!(rig.store.snapshot(&rig.pool).await.unwrap().slots_used, 0);
}

#[tokio::test]
async fn a_deadline_that_comes_while_it_runs_closes_the_call() {
    let rig = Rig::start(quick()).await;
    let _worker = rig.worker().await;
    let body = chat_body(&Script::tag("held").hold());
    let id = rig
        .submit(Endpoint::ChatCompletions, body, |submit| {
            submit.deadline_ms = 500
        })
        .await;
    let job = rig.end(&id).await;
    assert_eq!(
        (job.state, job.dead),
        (State::Failed, Some(DeadReason::Deadline))
    );
    assert_eq!(job.code.as_deref(), Some("deadline_exceeded"));
    let call = rig.gpu.wait_for(LONG, |call| call.ended()).await.unwrap();
    assert!(call.closed_by_caller);
}

#[tokio::test]
async fn an_answer_beyond_the_bound_is_dead_after_one_call() {
    let rig = Rig::start(quick()).await;
    let _worker = rig
        .worker_with(&rig.redis.url(), |config| {
            config.worker.max_response_bytes = 4_096
        })
        .await;
    let id = rig.chat(&Script::tag("big").bytes(100_000_u64)).await;
    let job = rig.end(&id).await;
    assert_eq!((job.dead, job.attempts), (Some(DeadReason::Upstream), 1));
    assert_eq!(job.code.as_deref(), Some("response_too_large"));
    assert_eq!(rig.gpu.calls().len(), 1);
}

#[tokio::test]
async fn without_a_model_server_a_job_is_dead_as_unroutable() {
    let rig = Rig::start(PoolConfig {
        backends: Vec::new(),
        ..quick()
    })
    .await;
    let _worker = rig.worker().await;
    let id = rig.chat(&Script::tag("a")).await;
    let job = rig.end(&id).await;
    assert_eq!(
        (job.state, job.dead),
        (State::Failed, Some(DeadReason::Unroutable))
    );
    assert_eq!(job.code.as_deref(), Some("unroutable"));
}

#[tokio::test]
async fn a_workers_own_model_server_goes_before_the_pools() {
    let rig = Rig::start(PoolConfig {
        backends: vec!["http://127.0.0.1:9".into()],
        ..quick()
    })
    .await;
    let own = rig.gpu.url();
    let _worker = rig
        .worker_with(&rig.redis.url(), |config| {
            config.worker.backends = vec![own]
        })
        .await;
    let id = rig.chat(&Script::tag("a").text("mine")).await;
    assert_eq!(text_of(&rig.success(&id).await.1), "mine");
}

#[tokio::test]
async fn many_jobs_keep_to_the_slots_and_are_called_once_each() {
    let rig = Rig::start(quick()).await;
    let _workers = [rig.worker().await, rig.worker().await];
    let mut ids = Vec::new();
    for n in 0..60 {
        ids.push(
            rig.chat(&Script::tag(format!("n{n}")).sleep_ms(10_u64).text("x"))
                .await,
        );
    }
    for id in &ids {
        let (job, _) = rig.success(id).await;
        assert_eq!((job.attempts, job.fence.0), (1, 1));
    }
    assert_eq!(rig.gpu.calls().len(), 60);
    assert!(rig.gpu.peak() <= 4, "{}", rig.gpu.peak());
}

#[tokio::test]
async fn a_workers_own_concurrency_holds_over_all_its_pools_and_neither_starves() {
    let rig = Rig::start(quick()).await;
    let other = Rig {
        redis: tidegate_shared::local::LocalServer::start(Default::default()).unwrap(),
        store: rig.store.clone(),
        gpu: tidegate_loadtest::gpu::Server::start(Default::default())
            .await
            .unwrap(),
        pool: "other".parse().unwrap(),
    };
    other.apply(quick()).await;
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(
            rig.chat(&Script::tag(format!("a{n}")).sleep_ms(20_u64))
                .await,
        );
    }
    let late = other.chat(&Script::tag("late")).await;
    let _worker = rig
        .worker_with(&rig.redis.url(), |config| {
            config.worker.pools = vec!["default".into(), "other".into()];
            config.worker.concurrency = 1;
        })
        .await;
    other.success(&late).await;
    let first_done = futures_done(&rig, &ids).await;
    assert!(
        first_done < 20,
        "the second pool had its turn before the first was empty"
    );
    for id in &ids {
        rig.success(id).await;
    }
    assert_eq!((rig.gpu.peak(), other.gpu.peak()), (1, 1));
}

/// How many of the jobs are terminal now.
async fn futures_done(rig: &Rig, ids: &[tidegate_shared::domain::JobId]) -> usize {
    let mut done = 0;
    for id in ids {
        done += usize::from(rig.job(id).await.state.is_terminal());
    }
    done
}

#[tokio::test]
async fn a_delayed_job_is_called_when_it_is_due_and_not_before() {
    let rig = Rig::start(quick()).await;
    let _worker = rig.worker().await;
    let body = chat_body(&Script::tag("due"));
    let id = rig
        .submit(Endpoint::ChatCompletions, body, |submit| {
            submit.delay_ms = 600
        })
        .await;
    let (job, _) = rig.success(&id).await;
    let started_ms = job.started_at_ms.unwrap();
    let due_ms = job.due_at_ms.unwrap();
    assert!(started_ms >= due_ms, "never before it is due");
    assert!(
        started_ms < due_ms + 5_000,
        "{} ms late",
        started_ms - due_ms
    );
}

#[tokio::test]
async fn new_settings_of_the_pool_are_followed_without_a_restart() {
    let rig = Rig::start(PoolConfig {
        slots: 0,
        ..quick()
    })
    .await;
    let _worker = rig.worker().await;
    let id = rig.chat(&Script::tag("a")).await;
    rig.apply(quick()).await;
    let started = std::time::Instant::now();
    rig.success(&id).await;
    assert!(started.elapsed() < Duration::from_secs(8));
}
