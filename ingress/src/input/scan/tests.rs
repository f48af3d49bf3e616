#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::Value;

use super::*;

const DEPTH: u32 = 64;

fn judge(text: &str) -> Result<(), Fault> {
    scan(text.as_bytes(), DEPTH, None)
}

#[test]
fn what_is_json_is_accepted() {
    for text in [
        "null",
        " true ",
        "[]",
        "{}",
        "[1,2]",
        r#"{"a":{"b":[null,"x",-0.5e-3]}}"#,
        r#""\ud83d\ude00\n""#,
        "1e-400",
        "-0",
        "123456789012345678901234567890",
        "{\"\":1}",
        "[[],{}]",
    ] {
        assert_eq!(judge(text), Ok(()), "{text}");
        assert!(serde_json::from_str::<Value>(text).is_ok(), "{text}");
    }
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        " ",
        "{",
        "[",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "NaN",
        "Infinity",
        "-Infinity",
        "nul",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\n\"",
        "1 2",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "]",
        "}",
        "[}",
        "{]",
        "\u{feff}{}",
        "tru",
        "truex",
        "[1]]",
        "1e400",
        "-1e400",
    ] {
        assert!(judge(text).is_err(), "{text}");
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
    }
    assert!(matches!(
        scan(b"\"\xff\"", DEPTH, None),
        Err(Fault::Encoding { at: 1 })
    ));
}

#[test]
fn a_duplicate_key_is_named_with_its_place() {
    let fault = |text| judge(text).unwrap_err();
    let at = |path: &str| Fault::DuplicateKey {
        path: path.to_owned(),
    };
    assert_eq!(
        fault(r#"{"a":1,"b":{"c":[{"d":1,"d":2}]}}"#),
        at("b.c[0].d")
    );
    assert_eq!(fault(r#"{"a":1,"\u0061":2}"#), at("a"));
    let many: Vec<String> = (0..40).map(|n| format!("\"k{n}\":0")).collect();
    assert_eq!(fault(&format!("{{{},\"k3\":1}}", many.join(","))), at("k3"));
    assert_eq!(judge(&format!("{{{}}}", many.join(","))), Ok(()));
    assert_eq!(judge(r#"[{"a":1},{"a":1}]"#), Ok(()));
}

#[test]
fn a_number_out_of_range_is_named_with_its_place() {
    let long = format!("[0,{}]", "9".repeat(400));
    for (text, path) in [
        (r#"{"max_tokens":1e400}"#, "max_tokens"),
        (long.as_str(), "[1]"),
    ] {
        assert_eq!(
            judge(text),
            Err(Fault::OutOfRange {
                path: path.to_owned()
            })
        );
    }
}

#[test]
fn nesting_is_counted_from_the_body_member() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(judge(&nested(64)), Ok(()));
    assert!(matches!(
        judge(&nested(65)),
        Err(Fault::TooDeep { max_depth: 64, .. })
    ));
    let request = |name: &str, depth| format!("{{\"{name}\":{}}}", nested(depth));
    let based = |text: &str| scan(text.as_bytes(), DEPTH, Some("body"));
    assert_eq!(based(&request("body", 64)), Ok(()));
    assert!(based(&request("body", 65)).is_err());
    assert_eq!(based(&request("metadata", 63)), Ok(()));
    assert!(based(&request("metadata", 64)).is_err());
}

#[test]
fn a_hundred_thousand_brackets_cost_next_to_nothing() {
    let text = format!("{{\"x\":{}", "[".repeat(100_000));
    let started = Instant::now();
    let fault = judge(&text).unwrap_err();
    assert!(
        matches!(&fault, Fault::TooDeep { path, .. } if path.starts_with("x[0][0]") && path.len() < 250)
    );
    assert!(started.elapsed() < Duration::from_secs(1));
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(|f| format!("{f:e}")),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<String>().prop_map(|s| serde_json::to_string(&s).unwrap()),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6)
                .prop_map(|all| format!("[{}]", all.join(" , "))),
            prop::collection::vec(inner, 0..6).prop_map(|all| {
                let members: Vec<String> = all
                    .iter()
                    .enumerate()
                    .map(|(n, v)| format!("\"k{n}\" : {v}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn it_accepts_what_the_parser_accepts(text in json()) {
        prop_assert_eq!(judge(&text), Ok(()));
    }

    #[test]
    fn it_agrees_with_the_parser_on_damaged_texts(text in json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let ours = scan(&bytes, DEPTH, None);
        let theirs = serde_json::from_slice::<Value>(&bytes).is_ok();
        // The parser keeps the last of two equal keys; that is the one thing we refuse and it does not.
        let same = ours.is_ok() == theirs || matches!(ours, Err(Fault::DuplicateKey { .. }));
        prop_assert!(same, "{:?}: ours {:?}, theirs {}", String::from_utf8_lossy(&bytes), ours, theirs);
    }

    #[test]
    fn it_agrees_with_the_parser_on_noise(text in "[\\[\\]{}\",:0-9eE.+\\-\\\\u ntrfalsd8c]{0,24}") {
        let ours = judge(&text);
        let theirs = serde_json::from_str::<Value>(&text).is_ok();
        let same = ours.is_ok() == theirs || matches!(ours, Err(Fault::DuplicateKey { .. }));
        prop_assert!(same, "{:?}: ours {:?}, theirs {}", text, ours, theirs);
    }
}
