#![allow(clippy::unwrap_used)]

use super::*;

fn chat(member: &str) -> Result<Option<String>, Problem> {
    let comma = if member.is_empty() { "" } else { "," };
    let text =
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}]{comma}{member}}}"#);
    judge(Endpoint::ChatCompletions, &text, "body")
}

fn with_messages(messages: &str) -> Result<Option<String>, Problem> {
    judge(
        Endpoint::ChatCompletions,
        &format!(r#"{{"model":"m","messages":{messages}}}"#),
        "body",
    )
}

#[test]
fn numbers_at_the_edge_of_their_range_are_refused_by_name_or_pass() {
    for (name, value, passes) in [
        ("max_tokens", "0", false),
        ("max_tokens", "-1", false),
        ("max_tokens", "1", true),
        ("max_tokens", "2147483648", true),
        ("max_tokens", "9223372036854775808", false),
        ("max_tokens", "9007199254740991", true),
        ("max_tokens", "9007199254740992", false),
        ("max_tokens", "1.5", false),
        ("max_tokens", "\"100\"", false),
        ("max_tokens", "true", false),
        ("max_tokens", "null", true),
        ("max_completion_tokens", "0", false),
        ("max_completion_tokens", "null", true),
        ("n", "0", false),
        ("n", "1", true),
        ("n", "8", true),
        ("n", "10000", false),
        ("top_logprobs", "20", true),
        ("top_logprobs", "16384", false),
        ("temperature", "1e-400", true),
        ("temperature", "-0.1", false),
        ("temperature", "2", true),
        ("temperature", "2.1", false),
        ("temperature", "\"NaN\"", false),
        ("top_p", "1.1", false),
        ("seed", "-1", true),
        ("seed", "9223372036854775808", false),
    ] {
        let verdict = chat(&format!("\"{name}\":{value}"));
        assert_eq!(verdict.is_ok(), passes, "{name} = {value}");
        if let Err(problem) = verdict {
            assert_eq!(
                problem.param(),
                Some(format!("body.{name}").as_str()),
                "{name} = {value}"
            );
            assert_eq!(problem.code(), "invalid_value");
        }
    }
}

#[test]
fn legal_shapes_with_nulls_and_unknowns_pass() {
    for member in [
        "",
        "\"stop\":null",
        "\"stop\":[\"a\"]",
        "\"tools\":null",
        "\"tools\":[]",
        "\"x_unknown\":{\"a\":[1]}",
        "\"stream\":false",
        "\"stream\":null",
        "\"n\":null",
        "\"logprobs\":true",
    ] {
        assert_eq!(chat(member), Ok(Some("m".into())), "{member}");
    }
    for messages in [
        r#"[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}]"#,
        r#"[{"role":"assistant","tool_calls":[{"id":"c"}]}]"#,
        r#"[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}]"#,
        r#"[{"role":"developer","content":"x"}]"#,
        r#"[{"role":"user","content":""}]"#,
        r#"[{"role":"tool","content":"x","tool_call_id":"c"}]"#,
        r#"[{"role":"critic"}]"#,
    ] {
        assert!(with_messages(messages).is_ok(), "{messages}");
    }
}

#[test]
fn illegal_empty_ones_are_refused_by_name() {
    for (messages, param, code) in [
        ("null", "body.messages", "missing_field"),
        ("[]", "body.messages", "invalid_value"),
        ("{}", "body.messages", "invalid_value"),
        ("[1]", "body.messages[0]", "invalid_value"),
        (
            r#"[{"content":"x"}]"#,
            "body.messages[0].role",
            "missing_field",
        ),
        (
            r#"[{"role":"","content":"x"}]"#,
            "body.messages[0].role",
            "invalid_value",
        ),
        (
            r#"[{"role":1,"content":"x"}]"#,
            "body.messages[0].role",
            "invalid_value",
        ),
        (
            r#"[{"role":"user","content":[]}]"#,
            "body.messages[0].content",
            "invalid_value",
        ),
        (
            r#"[{"role":"user","content":[1]}]"#,
            "body.messages[0].content[0]",
            "invalid_value",
        ),
        (
            r#"[{"role":"user","content":null}]"#,
            "body.messages[0].content",
            "missing_field",
        ),
        (
            r#"[{"role":"user","content":5}]"#,
            "body.messages[0].content",
            "invalid_value",
        ),
        (
            r#"[{"role":"assistant","content":null}]"#,
            "body.messages[0].content",
            "missing_field",
        ),
        (
            r#"[{"role":"assistant","content":null,"tool_calls":[]}]"#,
            "body.messages[0].content",
            "missing_field",
        ),
    ] {
        let problem = with_messages(messages).unwrap_err();
        assert_eq!(
            (problem.param(), problem.code()),
            (Some(param), code),
            "{messages}"
        );
    }
    let problem = judge(Endpoint::ChatCompletions, r#"{"model":"m"}"#, "body").unwrap_err();
    assert_eq!(
        (problem.param(), problem.code()),
        (Some("body.messages"), "missing_field")
    );
    assert_eq!(
        judge(Endpoint::ChatCompletions, "[]", "body")
            .unwrap_err()
            .code(),
        "invalid_value"
    );
}

#[test]
fn streaming_is_refused_with_the_way_to_go() {
    let problem = chat("\"stream\":true").unwrap_err();
    assert_eq!(
        (problem.param(), problem.code()),
        (Some("body.stream"), "unsupported_parameter")
    );
    assert!(problem.detail().contains("/events"));
}

#[test]
fn a_prompt_is_text_or_numbers_and_never_empty() {
    for (endpoint, name) in [
        (Endpoint::Completions, "prompt"),
        (Endpoint::Embeddings, "input"),
    ] {
        let verdict = |value: &str| {
            judge(
                endpoint,
                &format!(r#"{{"model":"m","{name}":{value}}}"#),
                "body",
            )
        };
        for value in ["\"x\"", "[\"a\",\"b\"]", "[1,2]", "[[1,2],[3]]"] {
            assert!(verdict(value).is_ok(), "{name} {value}");
        }
        for value in [
            "\"\"",
            "[]",
            "[\"\"]",
            "[[]]",
            "null",
            "5",
            "true",
            "[null]",
            "[-1]",
            "[1.5]",
            "[[\"x\"]]",
        ] {
            assert!(verdict(value).is_err(), "{name} {value}");
        }
    }
    assert!(
        judge(
            Endpoint::Embeddings,
            r#"{"input":"x","n":0,"max_tokens":null}"#,
            "body"
        )
        .is_ok()
    );
}
