//! Holds docs/PROTOCOL.md to the code: states, steps with their replies, and keys.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::script::{self, Script};
use crate::domain::State;

const DOC: &str = include_str!("../../../docs/PROTOCOL.md");

/// Rows of the table under `heading`, each cell trimmed.
fn table(heading: &str) -> Vec<Vec<String>> {
    let section = DOC.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect()
        })
        .collect()
}

/// Words in backticks.
fn words(cell: &str) -> BTreeSet<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn first_word(row: &[String]) -> String {
    words(&row[0]).into_iter().next().unwrap()
}

#[test]
fn the_documented_states_are_the_codes() {
    let documented: BTreeSet<String> = table("States").iter().map(|row| first_word(row)).collect();
    let ours: BTreeSet<String> = State::ALL.iter().map(|s| s.as_str().to_owned()).collect();
    assert_eq!(documented, ours);
}

#[test]
fn each_step_is_documented_with_the_replies_of_its_header() {
    let rows = table("Steps");
    let documented: Vec<String> = rows.iter().map(|row| first_word(row)).collect();
    let ours: Vec<&str> = script::ALL.iter().map(|s| s.name).collect();
    assert_eq!(
        documented
            .iter()
            .map(String::as_str)
            .collect::<BTreeSet<_>>(),
        ours.iter().copied().collect()
    );
    for row in rows {
        let name = first_word(&row);
        let script: &Script = script::ALL.iter().find(|s| s.name == name).unwrap();
        let tags: BTreeSet<String> = script
            .reply_tags()
            .filter(|tag| !matches!(*tag, "late" | "no_pool"))
            .map(str::to_owned)
            .collect();
        assert_eq!(words(&row[2]), tags, "replies of {name}");
    }
}

#[test]
fn each_key_that_a_script_builds_is_documented() {
    let mut built = BTreeSet::new();
    for script in script::ALL {
        for text in script.libs.iter().map(|lib| lib.1).chain([script.step]) {
            for piece in text.split("key('").skip(1) {
                let name: String = piece
                    .chars()
                    .take_while(|c| c.is_ascii_alphabetic())
                    .collect();
                built.insert(name);
            }
        }
    }
    let documented: BTreeSet<String> = table("Keys").iter().map(|row| first_word(row)).collect();
    assert_eq!(documented, built);
}
