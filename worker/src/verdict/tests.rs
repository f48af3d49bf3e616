#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::backend::upstream::UpstreamDetail;
use crate::backend::{UpstreamError, Usage as CallUsage};

const FACTS: Facts = Facts {
    attempts: 1,
    backoff_ms: 200,
    backoff_max_ms: 60_000,
    request_bytes: 41,
};

fn asked(ending: Ending) -> Option<Settlement> {
    verdict(ending, &FACTS, &mut StdRng::seed_from_u64(1))
}

fn failure(code: FailureCode) -> CallFailure {
    CallFailure {
        code,
        message: "m".into(),
        upstream: None,
        retry_after: None,
        partial: None,
        output_tokens_so_far: 0,
    }
}

fn of(failure: CallFailure) -> Settlement {
    asked(Ending::Called(CallOutcome::Failed(failure))).unwrap()
}

#[test]
fn each_ending_has_its_verdict_reason_and_code() {
    use DeadReason::{AttemptsExhausted, Deadline, Timeout, Unroutable, Upstream};
    use Verdict::{Dead, Fail, Release, Retry};
    let failed = |code| Ending::Called(CallOutcome::Failed(failure(code)));
    let given_up = || {
        Ending::Called(CallOutcome::Cancelled {
            output_tokens_so_far: 0,
        })
    };
    let table = [
        (
            failed(FailureCode::UpstreamError),
            Retry,
            AttemptsExhausted,
            "upstream_error",
        ),
        (
            failed(FailureCode::ConnectFailed),
            Retry,
            AttemptsExhausted,
            "connect_failed",
        ),
        (
            failed(FailureCode::FirstByteTimeout),
            Retry,
            AttemptsExhausted,
            "first_byte_timeout",
        ),
        (
            failed(FailureCode::Stalled),
            Retry,
            AttemptsExhausted,
            "stalled",
        ),
        (failed(FailureCode::Timeout), Retry, Timeout, "timeout"),
        (
            failed(FailureCode::InvalidResponse),
            Retry,
            AttemptsExhausted,
            "invalid_response",
        ),
        (
            failed(FailureCode::IncompleteResponse),
            Retry,
            AttemptsExhausted,
            "incomplete_response",
        ),
        (
            failed(FailureCode::ResponseTooLarge),
            Dead,
            Upstream,
            "response_too_large",
        ),
        (
            Ending::Stopped(Stop::Cancelled, 0),
            Fail,
            AttemptsExhausted,
            "cancelled",
        ),
        (
            Ending::Stopped(Stop::Deadline, 0),
            Dead,
            Deadline,
            "deadline_exceeded",
        ),
        (
            Ending::Stopped(Stop::LeaseOver, 0),
            Release,
            AttemptsExhausted,
            "",
        ),
        (
            Ending::Stopped(Stop::Planned, 0),
            Release,
            AttemptsExhausted,
            "",
        ),
        (given_up(), Release, AttemptsExhausted, ""),
        (
            Ending::Unroutable("none".into()),
            Dead,
            Unroutable,
            "unroutable",
        ),
        (Ending::Panicked, Retry, AttemptsExhausted, "internal"),
    ];
    for (ending, verdict, reason, code) in table {
        let name = format!("{ending:?}");
        let settlement = asked(ending).unwrap();
        assert_eq!(
            (settlement.verdict, settlement.reason),
            (verdict, reason),
            "{name}"
        );
        assert_eq!(
            settlement.error.map_or(String::new(), |e| e.code),
            code,
            "{name}"
        );
        assert!(settlement.result.is_empty(), "{name}");
    }
}

#[test]
fn a_lost_delivery_settles_nothing() {
    assert_eq!(asked(Ending::Stopped(Stop::Lost, 9)), None);
}

#[test]
fn an_answer_is_stored_byte_for_byte_with_what_it_used() {
    let settlement = asked(Ending::Called(CallOutcome::Answered(Answer {
        status: 200,
        body: Bytes::from_static(b"{\"a\": 1.50}"),
        content_type: "application/json".into(),
        usage: CallUsage {
            input_tokens: 3,
            output_tokens: 4,
            total_tokens: 7,
            estimated: false,
        },
        odd_usage: false,
        finish_reasons: vec!["stop".into()],
        streamed: true,
    })))
    .unwrap();
    assert_eq!(settlement.verdict, Verdict::Succeed);
    assert_eq!(settlement.result, "{\"a\": 1.50}");
    assert_eq!(settlement.content_type, "application/json");
    let usage = settlement.usage.unwrap();
    assert_eq!(
        (usage.input_tokens, usage.output_tokens, usage.estimated),
        (3, 4, false)
    );
    assert_eq!(settlement.error, None);
}

#[test]
fn a_refusal_is_final_and_keeps_what_the_server_said() {
    let settlement = asked(Ending::Called(CallOutcome::Refused(UpstreamError {
        code: FailureCode::UpstreamRefused,
        message: "no".into(),
        upstream: UpstreamDetail {
            status: Some(404),
            code: Some("model_not_found".into()),
            ..UpstreamDetail::default()
        },
    })))
    .unwrap();
    let error = settlement.error.unwrap();
    assert_eq!(settlement.verdict, Verdict::Fail);
    assert_eq!(
        (error.code.as_str(), error.upstream_status),
        ("upstream_refused", Some(404))
    );
    assert_eq!(error.upstream_code.as_deref(), Some("model_not_found"));
}

#[test]
fn without_a_hint_the_wait_is_the_jittered_back_off_of_the_attempt() {
    let mut rng = StdRng::seed_from_u64(7);
    for (attempts, cap) in [(0, 200), (1, 400), (2, 800), (30, 60_000)] {
        let facts = Facts { attempts, ..FACTS };
        let waits: Vec<u64> = (0..200)
            .map(|_| {
                let ending =
                    Ending::Called(CallOutcome::Failed(failure(FailureCode::UpstreamError)));
                verdict(ending, &facts, &mut rng).unwrap().delay_ms
            })
            .collect();
        assert!(waits.iter().all(|wait| *wait <= cap), "{attempts}");
        assert!(waits.iter().any(|wait| *wait > cap / 2), "{attempts}");
    }
}

#[test]
fn with_a_hint_nobody_comes_earlier_and_not_all_at_once() {
    let mut rng = StdRng::seed_from_u64(7);
    let mut waits: Vec<u64> = (0..200)
        .map(|_| {
            let failure = CallFailure {
                retry_after: Some(Duration::from_micros(2_000_500)),
                ..failure(FailureCode::UpstreamError)
            };
            let ending = Ending::Called(CallOutcome::Failed(failure));
            verdict(ending, &FACTS, &mut rng).unwrap().delay_ms
        })
        .collect();
    assert!(waits.iter().all(|wait| (2_001..=2_401).contains(wait)));
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 50);
}

#[test]
fn work_that_was_not_answered_is_charged_as_an_estimate() {
    let partial = of(CallFailure {
        output_tokens_so_far: 5,
        ..failure(FailureCode::Stalled)
    });
    let expected = Usage {
        input_tokens: 11,
        output_tokens: 5,
        estimated: true,
    };
    assert_eq!(partial.usage, Some(expected));
    assert_eq!(
        asked(Ending::Stopped(Stop::Cancelled, 5)).unwrap().usage,
        Some(expected)
    );
    assert_eq!(of(failure(FailureCode::ConnectFailed)).usage, None);
}
