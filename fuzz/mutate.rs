//! Inputs for the fuzz tests of every crate: what is in `fuzz/corpus/<target>`, damaged at random.
//!
//! A crate takes this file in with `#[path]`, so that nothing but its tests depends on it. Every input found to break
//! something belongs in the corpus, under a name that says what it is. `FUZZ_CASES` asks for more than a default run has.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

/// Cases of a target in a default run: a second or two each in a debug build.
const CASES: u32 = 4_000;
/// Most damages of one input.
const DAMAGES: usize = 6;

/// What parsers get wrong: the edges of numbers, of nesting, of text, of lines and of framing.
const PIECES: [&[u8]; 36] = [
    b"0",
    b"-0",
    b"-1",
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"9007199254740993",
    b"18446744073709551616",
    b"1.5",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b"\"\"",
    b"[]",
    b"{}",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[[[[[[[[[[[[[[[[",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\0",
    b"\r",
    b"\n",
    b"\n\n",
    b"data: ",
    b"data: [DONE]\n\n",
    b":",
    b",",
    b"\xc1",
];

/// One damage.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Cut(Index),
    Remove(Index, u8),
    Insert(Index, Vec<u8>),
    Repeat(Index, u8, u16),
    Splice(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let piece = select(&PIECES[..]).prop_map(<[u8]>::to_vec);
    prop_oneof![
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, 1 << bit)),
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), any::<u8>()).prop_map(|(at, len)| Damage::Remove(at, len)),
        (any::<Index>(), piece).prop_map(|(at, piece)| Damage::Insert(at, piece)),
        (any::<Index>(), 1..32_u8, 2..200_u16)
            .prop_map(|(at, len, times)| Damage::Repeat(at, len, times)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Damage::Splice(from, to)),
    ]
}

fn apply(input: &mut Vec<u8>, damage: &Damage) {
    let place = |at: &Index, len: usize| at.index(len + 1);
    match damage {
        Damage::Flip(at, bits) => {
            if let Some(byte) = (!input.is_empty()).then(|| at.index(input.len())) {
                input[byte] ^= bits;
            }
        }
        Damage::Cut(at) => input.truncate(place(at, input.len())),
        Damage::Remove(at, len) => {
            let from = place(at, input.len());
            let to = (from + usize::from(*len)).min(input.len());
            input.drain(from..to);
        }
        Damage::Insert(at, piece) => {
            let at = place(at, input.len());
            input.splice(at..at, piece.iter().copied());
        }
        Damage::Repeat(at, len, times) => {
            let from = place(at, input.len());
            let to = (from + usize::from(*len)).min(input.len());
            let piece = input[from..to].repeat(usize::from(*times));
            input.splice(from..from, piece);
        }
        Damage::Splice(from, to) => {
            let (from, to) = (place(from, input.len()), place(to, input.len()));
            let piece = input[from.min(to)..from.max(to)].to_vec();
            input.splice(to..to, piece);
        }
    }
}

/// The files of `fuzz/corpus/<target>`, by name.
pub(crate) fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", dir.display());
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// Gives `check` every input of the target's corpus as it is, then damaged ones. A panic of `check` is a failure; the
/// message has the smallest input found.
pub(crate) fn fuzz(target: &str, check: impl Fn(&[u8])) {
    let seeds = corpus(target);
    for seed in &seeds {
        check(seed);
    }
    let cases = std::env::var("FUZZ_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(CASES);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let inputs = (select(seeds), prop::collection::vec(damage(), 1..=DAMAGES)).prop_map(
        |(mut input, damages)| {
            for damage in &damages {
                apply(&mut input, damage);
            }
            input
        },
    );
    let outcome = TestRunner::new(config).run(&inputs, |input| {
        check(&input);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{target}: {error}");
    }
}
