//! Holds each script of `lua/` to its header, and the header to the Rust face. Reads source alone: whether the server
//! takes the scripts is for the tests that have one.

#![allow(clippy::unwrap_used)]

mod recorded;
mod samples;
mod source;

use std::collections::BTreeSet;

use super::script::ALL;
use super::{Call, Misread, Op, Outcome, Step, Value, decode};
use samples::{Visitor, each_step, sample_reply, text};

/// Commands that change nothing, and may stand in a step flagged `no-writes`.
const READS: [&str; 20] = [
    "EXISTS",
    "GET",
    "GETRANGE",
    "HGET",
    "HGETALL",
    "HMGET",
    "INFO",
    "PTTL",
    "STRLEN",
    "TIME",
    "XRANGE",
    "XREVRANGE",
    "ZCARD",
    "ZCOUNT",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZREVRANGEBYSCORE",
    "ZSCORE",
    "XLEN",
];

/// Commands that write. None blocks, and each is O(log n) or bounded by its own arguments.
const WRITES: [&str; 15] = [
    "DEL",
    "HDEL",
    "HINCRBY",
    "HSET",
    "PERSIST",
    "PEXPIRE",
    "PUBLISH",
    "SET",
    "XADD",
    "XDEL",
    "ZADD",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "INCR",
    "ZINCRBY",
];

/// Ranges over a whole set, with what bounds the set.
const WHOLE_SETS: [(&str, &str); 2] = [
    ("'ZRANGE', key('levels'), 0, -1", "ten priorities"),
    (
        "'HGETALL', key('owners')",
        "one entry for each live lease, read for doctor alone",
    ),
];

/// Names that Lua keeps for itself, and what the scripts write instead.
const RENAMED: [(&str, &str); 1] = [("error", "err")];

#[test]
fn every_step_binds_what_its_header_lists() {
    struct Check(BTreeSet<&'static str>);
    impl Visitor for Check {
        fn visit<S: Step>(&mut self, step: &S) {
            let script = S::SCRIPT;
            // `Call::arg` compares each name with the header; here it is that none is left out.
            let Call { args, base, .. } = step.bind(7);
            let names: Vec<_> = script.arg_names().collect();
            let repeats = names.last().is_some_and(|last| last.ends_with("..."));
            if repeats {
                assert!(
                    args.len() >= names.len(),
                    "{}: {} of {names:?}",
                    script.name,
                    args.len()
                );
            } else {
                assert_eq!(args.len(), names.len(), "{}: {names:?}", script.name);
            }
            assert_eq!(base, "tg1:{gpu}", "{}", script.name);
            let keys: Vec<_> = script.header("KEYS").map(source::first_word).collect();
            assert_eq!(keys, ["base"], "{}", script.name);
            assert_eq!(
                names.first() != Some(&"deadline"),
                S::READS,
                "{}: a step without a deadline says so",
                script.name
            );
            if !S::READS {
                assert_eq!(args[0], b"7", "{}", script.name);
            }
            self.0.insert(script.name);
        }
    }
    let mut check = Check(BTreeSet::new());
    each_step(&mut check);
    let all: BTreeSet<_> = ALL.iter().map(|script| script.name).collect();
    assert_eq!(check.0, all, "every step has a sample");
}

#[test]
fn every_argument_is_read_under_its_own_name() {
    for script in ALL {
        let names: Vec<_> = script.arg_names().collect();
        let locals = source::argument_locals(script.step);
        for (index, name) in names.iter().enumerate() {
            let at = index + 1;
            if name.ends_with("...") {
                let from = format!("for i = {at}, #ARGV");
                assert!(
                    script.step.contains(&from),
                    "{}: `{name}` is not read from {at} on",
                    script.name
                );
                continue;
            }
            let local = RENAMED
                .iter()
                .find(|(header, _)| header == name)
                .map_or(*name, |&(_, local)| local);
            assert_eq!(
                locals.get(&at).map(String::as_str),
                Some(local),
                "{}: ARGV[{at}]",
                script.name
            );
        }
        let fixed = names.iter().filter(|name| !name.ends_with("...")).count();
        assert_eq!(locals.len(), fixed, "{}: {locals:?}", script.name);
    }
}

#[test]
fn every_step_replies_the_tags_of_its_header() {
    for script in ALL {
        let listed: BTreeSet<_> = script.reply_tags().map(str::to_owned).collect();
        assert_eq!(source::reply_tags(script.step), listed, "{}", script.name);
        assert!(!listed.is_empty(), "{}", script.name);
    }
}

#[test]
fn every_reply_says_which_send_it_answers() {
    for script in ALL {
        for second in source::reply_seconds(script.step) {
            assert!(
                second.starts_with("echo(") && second.ends_with(')'),
                "{}: `{second}`",
                script.name
            );
        }
        let lib = script.libs.first().unwrap();
        let taken = source::code(lib.1).find("local op = table.remove(ARGV)");
        assert!(
            lib.0 == "base" && taken.is_some(),
            "{}: it is taken off before any argument is read",
            script.name
        );
    }
}

#[test]
fn every_reply_of_a_header_is_understood() {
    struct Check;
    impl Visitor for Check {
        fn visit<S: Step>(&mut self, step: &S) {
            for line in S::SCRIPT.header("REPLY") {
                let op = Op::mint();
                let (tag, value) = sample_reply(S::SCRIPT, line, &op);
                let (_, outcome) =
                    decode(step, &op, value).unwrap_or_else(|e| panic!("`{line}`: {e}"));
                match tag {
                    "late" => assert!(matches!(outcome, Outcome::Late)),
                    "no_pool" => assert!(matches!(outcome, Outcome::NoPool)),
                    _ => assert!(matches!(outcome, Outcome::Done(_)), "`{line}`"),
                }
            }
            let name = S::SCRIPT.name;
            let op = Op::mint();
            let odd = Value::Array(vec![text("surprise"), text(&format!("1 {op}"))]);
            let refused = decode(step, &op, odd);
            assert!(
                matches!(refused, Err(Misread::Corrupt(_))),
                "{name}: an unknown tag is refused"
            );
            let line = S::SCRIPT.header("REPLY").last().unwrap();
            for others in [
                sample_reply(S::SCRIPT, line, &Op::mint()).1,
                Value::Array(vec![text("surprise"), text("1")]),
                Value::Array(Vec::new()),
                text("OK"),
                Value::Int(1),
                Value::Nil,
            ] {
                let refused = decode(step, &op, others);
                assert!(
                    matches!(refused, Err(Misread::Foreign { .. })),
                    "{name}: a reply to another send is refused"
                );
            }
        }
    }
    each_step(&mut Check);
}

#[test]
fn every_header_is_complete_and_uses_what_it_names() {
    for script in ALL {
        let flags = script
            .header("FLAGS")
            .next()
            .unwrap_or_else(|| panic!("{}: no FLAGS", script.name));
        assert!(
            matches!(flags, "" | "allow-oom" | "no-writes"),
            "{}: `{flags}`",
            script.name
        );
        let uses: Vec<_> = script
            .header("USES")
            .flat_map(str::split_whitespace)
            .collect();
        let libs: Vec<_> = script.libs.iter().map(|&(name, _)| name).collect();
        assert_eq!(uses, libs, "{}", script.name);
        assert!(
            script.step.starts_with(&format!("-- {}: ", script.name)),
            "{}",
            script.name
        );
        let first = script.source().lines().next().unwrap().to_owned();
        assert_eq!(
            first.trim_end(),
            format!("#!lua {}", flags_word(flags)).trim_end(),
            "{}",
            script.name
        );
    }
}

fn flags_word(flags: &str) -> String {
    if flags.is_empty() {
        String::new()
    } else {
        format!("flags={flags}")
    }
}

#[test]
fn a_step_that_arrives_late_refuses_before_it_writes() {
    for script in ALL {
        let body = source::code(script.step);
        let first_write = WRITES
            .iter()
            .filter_map(|name| body.find(&format!("'{name}'")))
            .min();
        let kept = [first_write, body.find("keep(P)")]
            .into_iter()
            .flatten()
            .min();
        if script.arg_names().next() == Some("deadline") {
            let refuses = body
                .find("if now > deadline then return { 'late', echo(now) } end")
                .unwrap_or_else(|| panic!("{}: does not refuse when late", script.name));
            assert!(
                kept.is_none_or(|write| refuses < write),
                "{}: writes first",
                script.name
            );
        }
        if script.reply_tags().any(|tag| tag == "no_pool") {
            let refuses = body
                .find("if not P then return { 'no_pool', echo(now) } end")
                .unwrap();
            assert!(
                kept.is_none_or(|write| refuses < write),
                "{}: writes first",
                script.name
            );
        }
    }
}

#[test]
fn steps_use_listed_commands_alone_and_read_no_unbounded_range() {
    for (name, text) in every_file() {
        let body = source::code(text);
        for banned in [
            "tostring(",
            "redis.pcall",
            "math.random",
            "os.",
            "redis.log",
            "cjson",
            "cmsgpack",
        ] {
            assert!(!body.contains(banned), "{name}: {banned}");
        }
        for call in source::redis_calls(&body) {
            let command = source::quoted(&call).into_iter().next().unwrap_or_default();
            assert!(
                READS.contains(&command.as_str()) || WRITES.contains(&command.as_str()),
                "{name}: `{command}` is not in the list"
            );
            assert_eq!(
                command == "TIME",
                call.contains("'TIME'") && name == "lib/clock",
                "{name}: TIME is read once, in lib/clock"
            );
            let bounded = match command.as_str() {
                "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE" => call.contains("'LIMIT'"),
                "XRANGE" | "XREVRANGE" => call.contains("'COUNT'"),
                "ZRANGE" => !call.contains("-1)") || !call.contains("0, -1"),
                // A record has a bounded number of fields.
                "HGETALL" => call.contains("key('job:'"),
                // What is over, seen once and gone: paid by what put it there.
                "ZREMRANGEBYSCORE" => ["suspects", "spent", "workers"]
                    .iter()
                    .any(|set| call.contains(&format!("key('{set}')"))),
                _ => true,
            };
            assert!(
                bounded || WHOLE_SETS.iter().any(|(known, _)| call.contains(known)),
                "{name}: unbounded: {call}"
            );
        }
    }
}

#[test]
fn a_step_flagged_as_reading_has_no_write_of_its_own() {
    for script in ALL
        .iter()
        .filter(|script| script.header("FLAGS").next() == Some("no-writes"))
    {
        let body = source::code(script.step);
        for call in source::redis_calls(&body) {
            let command = source::quoted(&call).into_iter().next().unwrap();
            assert!(
                READS.contains(&command.as_str()),
                "{}: {command}",
                script.name
            );
        }
        assert!(
            !body.contains("keep(P)") && !body.contains("wake()") && !body.contains("finish("),
            "{}",
            script.name
        );
    }
}

/// Every step and every shared piece, once.
fn every_file() -> Vec<(String, &'static str)> {
    let mut files: Vec<(String, &'static str)> =
        ALL.iter().map(|s| (s.name.to_owned(), s.step)).collect();
    let libs: BTreeSet<_> = ALL
        .iter()
        .flat_map(|script| script.libs.iter().copied())
        .collect();
    files.extend(
        libs.into_iter()
            .map(|(name, text)| (format!("lib/{name}"), text)),
    );
    files
}
