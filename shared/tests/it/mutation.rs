//! Each guard of the scripts is taken out in turn, and something must notice.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidegate_shared::domain::WorkerId;
use tidegate_shared::protocol::script;

use crate::direct;
use crate::program::program;
use crate::rig::Rig;
use crate::run::Run;
use crate::seen::Seen;

const GUARDS: &str = include_str!("guards.txt");
/// Programs tried on each guard; `PROPTEST_CASES` asks for more, and for other programs each time.
const PROGRAMS: usize = 2048;
/// Guards tried at once, each on a server of its own.
const AT_ONCE: usize = 4;

/// A condition of a script, and what stands there when it is taken out.
#[derive(Debug, Default)]
struct Guard {
    name: String,
    /// Below `lua/`, without `.lua`.
    file: String,
    text: String,
    instead: String,
    /// The program of the fixed sequence to try first.
    first: usize,
}

fn guards() -> Vec<Guard> {
    let (mut all, mut file) = (Vec::<Guard>::new(), String::new());
    for line in GUARDS.lines().skip_while(|line| !line.starts_with('[')) {
        let part = |rest: &str| rest.strip_prefix(' ').unwrap_or(rest).to_owned() + "\n";
        if let Some(name) = line.strip_prefix('[') {
            file = name.trim_end_matches(']').to_owned();
        } else if let Some(rest) = line.strip_prefix('-') {
            all.last_mut().unwrap().text += &part(rest);
        } else if let Some(rest) = line.strip_prefix('+') {
            all.last_mut().unwrap().instead += &part(rest);
        } else if !line.is_empty() {
            let (name, first) = line.split_once(" @").unwrap_or((line, "1"));
            all.push(Guard {
                name: name.to_owned(),
                file: file.clone(),
                first: first.parse().unwrap(),
                ..Guard::default()
            });
        }
    }
    for guard in &mut all {
        guard.text.pop();
        guard.instead.pop();
    }
    all
}

/// The text of a file of `lua/`.
fn text_of(file: &str) -> &'static str {
    let all = script::ALL.iter();
    match file.strip_prefix("lib/") {
        Some(lib) => all
            .flat_map(|script| script.libs)
            .find_map(|(name, text)| (*name == lib).then_some(*text)),
        None => all
            .filter(|script| script.name == file)
            .map(|script| script.step)
            .next(),
    }
    .unwrap_or_else(|| panic!("no lua/{file}.lua"))
}

impl Guard {
    /// Scripts without this guard.
    fn taken_out(&self) -> Rig {
        let whole = text_of(&self.file);
        assert_eq!(
            whole.matches(&self.text).count(),
            1,
            "{}: lua/{}.lua has not one `{}`",
            self.name,
            self.file,
            self.text
        );
        let without = whole.replace(&self.text, &self.instead);
        Rig::start_with(|_, source| source.replace(whole, &without))
    }

    /// What noticed that it was gone. With `fresh`, other programs than the last time.
    fn noticed(&self, most: usize, fresh: bool) -> Option<String> {
        let mut rig = self.taken_out();
        if let Err(check) = direct::checks(&mut rig, &self.file) {
            return Some(check);
        }
        let fixed = || TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = match fresh {
            true => TestRunner::default(),
            false => TestRunner::new_with_rng(Config::default(), fixed()),
        };
        let workers = [WorkerId::mint(), WorkerId::mint(), WorkerId::mint()];
        let (any, mut seen) = (program(), Seen::new());
        let mut programs = Vec::new();
        // To make one is nothing beside running it.
        let mut notices = |number: usize| {
            while programs.len() < number {
                programs.push(any.new_tree(&mut runner).unwrap().current());
            }
            let run = Run::program(&mut rig, &workers, &programs[number - 1], &mut seen);
            run.is_err().then(|| format!("program {number}"))
        };
        let first = if fresh { 1 } else { self.first };
        notices(first).or_else(|| (1..=most).filter(|n| *n != first).find_map(notices))
    }
}

#[test]
fn the_scripts_as_they_are_pass_each_check() {
    let mut rig = Rig::start();
    for guard in guards() {
        direct::checks(&mut rig, &guard.file).unwrap();
    }
}

#[test]
fn each_guard_of_the_scripts_is_missed_when_it_is_gone() {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|v| v.parse().ok());
    let guards = guards();
    let (next, noticed) = (AtomicUsize::new(0), Mutex::new(vec![None; guards.len()]));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((at, guard)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    guards.get(at).map(|guard| (at, guard))
                } {
                    let found = guard.noticed(asked.unwrap_or(PROGRAMS), asked.is_some());
                    noticed.lock().unwrap()[at] = found;
                }
            });
        }
    });
    let noticed = noticed.into_inner().unwrap();
    let (mut table, mut unnoticed) = (String::new(), Vec::new());
    for (guard, found) in guards.iter().zip(&noticed) {
        let by = found.as_deref().unwrap_or("NOTHING");
        let _ = writeln!(table, "{:50} {:12} {by}", guard.name, guard.file);
        if found.is_none() {
            unnoticed.push(&guard.name);
        }
    }
    println!(
        "{:50} {:12} noticed by\n{table}{} guards",
        "guard",
        "lua/",
        guards.len()
    );
    assert!(unnoticed.is_empty(), "nothing notices: {unnoticed:#?}");
}
