#![allow(clippy::unwrap_used)]

use axum::body::to_bytes;
use serde_json::Value;

use super::*;

async fn shown(problem: &Problem) -> (HeaderMap, Value) {
    let response = problem.render("5f0c6f39-6d3c-4b5c-9d41-0d0a9a3a2b11");
    let headers = response.headers().clone();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (headers, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn every_code_has_both_shapes_and_its_retry_headers() {
    for &code in Code::ALL {
        let (headers, body) = shown(&Problem::new(code, "why")).await;
        assert_eq!(headers[CONTENT_TYPE], PROBLEM_JSON);
        for member in ["type", "title", "status", "detail", "instance", "error"] {
            assert!(body.get(member).is_some(), "{code:?} lacks {member}");
        }
        for member in ["message", "type", "param", "code"] {
            assert!(
                body["error"].get(member).is_some(),
                "{code:?} lacks error.{member}"
            );
        }
        assert_eq!(body["status"], code.status().as_u16());
        assert_eq!(body["error"]["code"], code.as_str());
        let busy = matches!(code.status().as_u16(), 429 | 503);
        assert!(!busy || headers.contains_key(RETRY_AFTER), "{code:?}");
        let refused = code.status().is_client_error()
            && !matches!(code, Code::NotFinished | Code::RequestTimeout);
        assert_eq!(
            refused,
            headers.get(SHOULD_RETRY).is_some_and(|v| v == "false"),
            "{code:?}"
        );
    }
}

#[tokio::test]
async fn a_result_that_is_not_there_yet_may_be_asked_for_again() {
    let (headers, _) = shown(&Problem::new(Code::NotFinished, "running")).await;
    assert_eq!(headers[SHOULD_RETRY], "true");
    assert_eq!(headers[RETRY_AFTER], "1");
}

#[test]
fn retry_after_is_whole_seconds_from_1_to_60() {
    for (wait_ms, seconds) in [
        (0, 1),
        (1, 1),
        (1000, 1),
        (1001, 2),
        (59_001, 60),
        (10_000_000, 60),
    ] {
        assert_eq!(retry_after_s(wait_ms), seconds, "{wait_ms}");
    }
}

#[test]
fn a_callers_text_is_shown_back_cut() {
    let long = "é".repeat(1000);
    assert_eq!(echo(&long).chars().count(), MAX_ECHO_CHARS + 1);
    assert_eq!(echo("short"), "short");
}

#[test]
fn the_documented_codes_are_these() {
    const DOC: &str = include_str!("../../../docs/API.md");
    let rows = DOC.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let code = cells.next()?.trim_end_matches('`');
        let status: u16 = cells.next()?.parse().ok()?;
        Some((code.to_owned(), status))
    });
    let documented: std::collections::BTreeMap<String, u16> = rows.collect();
    let ours = Code::ALL
        .iter()
        .map(|code| (code.as_str().to_owned(), code.status().as_u16()))
        .collect();
    assert_eq!(documented, ours);
}
