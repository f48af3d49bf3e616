//! A small reader of the scripts' source: as much of Lua as the house style of `lua/` needs.

use std::collections::{BTreeMap, BTreeSet};

/// The first word of a header's line.
pub(super) fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or("")
}

/// The source without comments.
pub(super) fn code(text: &str) -> String {
    let mut body = String::with_capacity(text.len());
    for line in text.lines() {
        body.push_str(line.split("--").next().unwrap_or(""));
        body.push('\n');
    }
    body
}

/// The words between single quotes.
pub(super) fn quoted(text: &str) -> Vec<String> {
    text.split('\'')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// `redis.call(...)` of the source, each with its arguments.
pub(super) fn redis_calls(body: &str) -> Vec<String> {
    body.match_indices("redis.call(")
        .map(|(at, opening)| {
            let start = at + opening.len();
            let (mut depth, mut in_word) = (1, false);
            let length = body[start..]
                .find(|c| {
                    in_word ^= c == '\'';
                    depth += match c {
                        '(' if !in_word => 1,
                        ')' if !in_word => -1,
                        _ => 0,
                    };
                    depth == 0
                })
                .expect("every call is closed");
            body[at..=start + length].to_owned()
        })
        .collect()
}

/// Splits at commas that stand in no brackets.
fn split_list(text: &str) -> Vec<String> {
    let (mut items, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().expect("it starts with one").push(c);
    }
    items
        .into_iter()
        .map(|item| item.trim().to_owned())
        .collect()
}

/// The locals that hold arguments, by the argument's number: `local a, b = tonumber(ARGV[1]), ARGV[2]`.
pub(super) fn argument_locals(step: &str) -> BTreeMap<usize, String> {
    let mut locals = BTreeMap::new();
    for line in code(step).lines() {
        let Some((names, values)) = line
            .strip_prefix("local ")
            .and_then(|rest| rest.split_once(" = "))
        else {
            continue;
        };
        for (name, value) in split_list(names).into_iter().zip(split_list(values)) {
            let value = value
                .strip_prefix("tonumber(")
                .and_then(|v| v.strip_suffix(')'))
                .unwrap_or(&value);
            let Some(number) = value
                .strip_prefix("ARGV[")
                .and_then(|v| v.strip_suffix(']'))
            else {
                continue;
            };
            let number = number.parse().expect("locals are read by number");
            assert!(
                locals.insert(number, name).is_none(),
                "ARGV[{number}] is read twice"
            );
        }
    }
    locals
}

/// The tags that the step may reply: the first item of each list that it returns.
pub(super) fn reply_tags(step: &str) -> BTreeSet<String> {
    let body = code(step);
    let mut tags = BTreeSet::new();
    for opening in ["return {", "local reply = {"] {
        for (at, _) in body.match_indices(opening) {
            let first = split_list(&body[at + opening.len()..]).remove(0);
            if first == "tag" {
                tags.extend(assigned(&body, "tag"));
            } else {
                let condition_free = first
                    .rsplit_once(" and ")
                    .map_or(first.as_str(), |(_, values)| values);
                tags.extend(quoted(condition_free));
            }
        }
    }
    tags
}

/// The second items of the lists that the step returns.
pub(super) fn reply_seconds(step: &str) -> Vec<String> {
    let body = code(step);
    ["return {", "local reply = {"]
        .into_iter()
        .flat_map(|opening| body.match_indices(opening))
        .map(|(at, opening)| {
            let mut depth = 1;
            let inside = body[at + opening.len()..].split(|c| {
                depth += match c {
                    '{' => 1,
                    '}' => -1,
                    _ => 0,
                };
                depth == 0
            });
            let items = split_list(inside.into_iter().next().unwrap_or(""));
            items.into_iter().nth(1).unwrap_or_default()
        })
        .collect()
}

/// The words assigned to a local, anywhere.
fn assigned(body: &str, name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for line in body.lines().map(str::trim) {
        let Some((names, values)) = line.split_once(" = ") else {
            continue;
        };
        let names = split_list(names.strip_prefix("local ").unwrap_or(names));
        if let Some(place) = names.iter().position(|n| n == name) {
            words.extend(
                split_list(values)
                    .get(place)
                    .map(|value| quoted(value))
                    .unwrap_or_default(),
            );
        }
    }
    words
}

#[test]
fn the_reader_sees_what_a_script_says() {
    let step = "-- a comment with return { 'no' }\nlocal a, b = tonumber(ARGV[1]), ARGV[2]\nlocal tag, x = 'lost', 'y'\n\
                tag = c and 'won' or 'drawn'\nif a then return { 'late', int(1) } end\nlocal reply = { tag, x }\n";
    assert_eq!(
        argument_locals(step),
        BTreeMap::from([(1, "a".to_owned()), (2, "b".to_owned())])
    );
    let tags: BTreeSet<String> = ["late", "lost", "won", "drawn"].map(str::to_owned).into();
    assert_eq!(reply_tags(step), tags);
    let calls = redis_calls("redis.call('ZCOUNT', '(' .. int(1), '+inf')");
    assert_eq!(calls, ["redis.call('ZCOUNT', '(' .. int(1), '+inf')"]);
    let calls = redis_calls("x(redis.call('GET', key('a' .. int(1))), redis.call('TIME'))");
    assert_eq!(
        calls,
        [
            "redis.call('GET', key('a' .. int(1)))",
            "redis.call('TIME')"
        ]
    );
}
