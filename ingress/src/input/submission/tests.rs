#![allow(clippy::unwrap_used)]

use super::*;

const CHAT: &str =
    r#"{ "model" : "m", "messages":[{"role":"user","content":"hi"}], "temperature": 1.0e-400 }"#;

fn with(members: &str) -> Result<Submission, Problem> {
    let comma = if members.is_empty() { "" } else { "," };
    judge(
        format!("{{\"body\":{CHAT}{comma}{members}}}").as_bytes(),
        64,
    )
}

fn refused(members: &str) -> (String, String) {
    let problem = with(members).unwrap_err();
    (
        problem.param().unwrap_or_default().to_owned(),
        problem.code().to_owned(),
    )
}

#[test]
fn the_body_is_kept_byte_for_byte() {
    let submission = with("").unwrap();
    assert_eq!(submission.body, CHAT.as_bytes());
    assert_eq!(submission.model, "m");
    assert_eq!(submission.endpoint, Endpoint::ChatCompletions);
    assert_eq!(
        (
            submission.priority,
            submission.delay_ms,
            submission.deadline_ms,
            submission.timeout_ms
        ),
        (0, 0, 0, 0)
    );
}

#[test]
fn a_model_named_outside_alone_is_put_in_front_and_the_rest_keeps_its_bytes() {
    let body = r#"{ "messages":[{"role":"user","content":"hi"}], "x": 1.50 }"#;
    let submission = judge(
        format!("{{\"model\":\"a \\\"b\\\"\",\"body\":{body}}}").as_bytes(),
        64,
    )
    .unwrap();
    let expected = format!("{{\"model\":\"a \\\"b\\\"\",{}", &body[1..]);
    assert_eq!(String::from_utf8(submission.body).unwrap(), expected);
    assert_eq!(submission.model, "a \"b\"");
    let null = r#"{"model":"a","body":{"model":null,"messages":[{"role":"user","content":"hi"}]}}"#;
    assert_eq!(
        judge(null.as_bytes(), 64).unwrap_err().param(),
        Some("body.model")
    );
}

#[test]
fn a_model_is_named_once_or_twice_alike() {
    assert!(with("\"model\":\"m\"").is_ok());
    assert_eq!(
        refused("\"model\":\"other\""),
        ("model".into(), "invalid_value".into())
    );
    let none = r#"{"pool":"default","body":{"messages":[{"role":"user","content":"hi"}]}}"#;
    let problem = judge(none.as_bytes(), 64).unwrap_err();
    assert_eq!(
        (problem.param(), problem.code()),
        (Some("body.model"), "missing_field")
    );
}

#[test]
fn wrong_members_are_refused_by_name() {
    for (members, param, code) in [
        ("\"priority\":-1", "priority", "invalid_value"),
        ("\"priority\":10", "priority", "invalid_value"),
        ("\"priority\":9007199254740992", "priority", "invalid_value"),
        ("\"priority\":\"1\"", "priority", "invalid_value"),
        ("\"delay_ms\":-1", "delay_ms", "invalid_value"),
        ("\"delay_ms\":2592000001", "delay_ms", "invalid_value"),
        ("\"deadline_ms\":0", "deadline_ms", "invalid_value"),
        (
            "\"delay_ms\":100,\"deadline_ms\":100",
            "deadline_ms",
            "invalid_value",
        ),
        ("\"timeout_ms\":0", "timeout_ms", "invalid_value"),
        ("\"max_attempts\":0", "max_attempts", "invalid_value"),
        ("\"max_attempts\":101", "max_attempts", "invalid_value"),
        ("\"pool\":\"A B\"", "pool", "invalid_value"),
        ("\"class\":\"\"", "class", "invalid_value"),
        ("\"endpoint\":\"/v1/files\"", "endpoint", "invalid_value"),
        (
            "\"webhook_url\":\"https://example.com\"",
            "webhook_url",
            "unsupported_parameter",
        ),
        ("\"metadata\":[]", "metadata", "invalid_value"),
        ("\"metadata\":{\"a\":1}", "metadata.a", "invalid_value"),
        ("\"metadata\":{\"a\":null}", "metadata.a", "invalid_value"),
        ("\"priorty\":1", "priorty", "unsupported_parameter"),
        ("\"priority\":1,\"priority\":2", "priority", "duplicate_key"),
    ] {
        assert_eq!(
            refused(members),
            (param.to_owned(), code.to_owned()),
            "{members}"
        );
    }
    assert!(
        with("\"priorty\":1")
            .unwrap_err()
            .detail()
            .contains("did you mean `priority`")
    );
}

#[test]
fn null_is_absent_where_a_member_is_optional() {
    let nulls: Vec<String> = FIELDS
        .iter()
        .filter(|name| **name != "body")
        .map(|name| format!("\"{name}\":null"))
        .collect();
    assert_eq!(with(&nulls.join(",")).unwrap().body, with("").unwrap().body);
}

#[test]
fn what_is_no_request_is_refused() {
    for (text, code) in [
        ("", "invalid_json"),
        ("[]", "invalid_value"),
        ("{}", "missing_field"),
        ("{\"body\":[]}", "invalid_value"),
        ("{\"body\":null}", "missing_field"),
        ("nope", "invalid_json"),
    ] {
        assert_eq!(
            judge(text.as_bytes(), 64).unwrap_err().code(),
            code,
            "{text}"
        );
    }
    assert_eq!(judge(b"\xff", 64).unwrap_err().code(), "invalid_json");
}

#[test]
fn metadata_is_kept_and_bounded() {
    assert_eq!(
        with(r#""metadata":{"b":"2", "a":"é"}"#).unwrap().metadata,
        r#"{"a":"é","b":"2"}"#
    );
    let many: Vec<String> = (0..17).map(|n| format!("\"k{n}\":\"v\"")).collect();
    assert!(with(&format!("\"metadata\":{{{}}}", many.join(","))).is_err());
    assert!(with(&format!("\"metadata\":{{\"k\":\"{}\"}}", "é".repeat(512))).is_ok());
    assert!(with(&format!("\"metadata\":{{\"k\":\"{}\"}}", "é".repeat(513))).is_err());
    assert!(with(&format!("\"metadata\":{{\"{}\":\"v\"}}", "k".repeat(65))).is_err());
}

#[test]
fn the_digest_is_of_the_bytes() {
    let digest = |members| with(members).unwrap().digest;
    assert_eq!(digest("\"priority\":1"), digest("\"priority\":1"));
    assert_ne!(digest("\"priority\":1"), digest("\"priority\": 1"));
    assert_eq!(digest("").len(), 64);
}
