//! Runs the soak over many seeds, or judges the record of a run again.
//!
//! `soak [--seeds N] [--first SEED] [--jobs N] [--faults N] [--clients N] [--least N] [--write FILE]`
//! `soak --replay DIR`

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_tests::soak::{self, Figures, Plan, Record, Verdict};

/// What a document has around the figures.
const BEGIN: &str = "<!-- soak: written by `make soak` -->";
const END: &str = "<!-- soak: end -->";

fn main() -> ExitCode {
    match arguments().and_then(|given| act(&given)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            say(&format!("soak: {what}"));
            ExitCode::from(2)
        }
    }
}

type Given = BTreeMap<String, String>;

const KNOWN: [&str; 8] = [
    "seeds", "first", "jobs", "faults", "clients", "least", "write", "replay",
];

fn arguments() -> Result<Given, String> {
    let mut given = Given::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let name = word.strip_prefix("--").filter(|name| KNOWN.contains(name));
        let name = name.ok_or_else(|| format!("`{word}` is none of --{}", KNOWN.join(", --")))?;
        let value = words
            .next()
            .ok_or_else(|| format!("--{name} needs a value"))?;
        given.insert(name.to_owned(), value);
    }
    Ok(given)
}

fn number<T: std::str::FromStr>(given: &Given, name: &str, otherwise: T) -> Result<T, String> {
    match given.get(name) {
        None => Ok(otherwise),
        Some(text) => text
            .parse()
            .map_err(|_| format!("--{name} {text}: not a number that fits")),
    }
}

fn act(given: &Given) -> Result<bool, String> {
    if let Some(dir) = given.get("replay") {
        let record = Record::at(Path::new(dir)).map_err(|e| e.to_string())?;
        let verdict = soak::judge(&record).map_err(|e| format!("{dir}: {e}"))?;
        say(&verdict.text());
        say(&format!("\n{}", verdict.figures.table(&verdict.commit)));
        return Ok(verdict.findings.is_empty());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let (seeds, first) = (number(given, "seeds", 25)?, number(given, "first", 1)?);
    let mut sum = Figures::default();
    let mut commit = String::new();
    let mut good = true;
    for seed in first..first + seeds {
        let plan = Plan {
            seed,
            jobs: number(given, "jobs", 20_500)?,
            faults: number(given, "faults", 220)?,
            clients: number(given, "clients", 200)?,
            watch_permille: 1_000,
            sabotage: false,
        };
        let dir = soak::directory().join(format!("seed-{seed}"));
        let record = runtime
            .block_on(soak::run(&plan, &dir))
            .map_err(|e| e.to_string())?;
        let verdict = soak::judge(&record).map_err(|e| e.to_string())?;
        say(&told(&verdict, &dir));
        sum.add(&verdict.figures);
        commit = verdict.commit.clone();
        if verdict.findings.is_empty() {
            std::fs::remove_dir_all(&dir).map_err(|e| e.to_string())?;
        } else {
            good = false;
        }
    }
    let missed = sum.missed(number(given, "least", 100)?);
    let table = sum.table(&commit);
    say(&table);
    if let Some(path) = given.get("write") {
        write_into(Path::new(path), &table)?;
    }
    for window in &missed {
        say(&format!("too rarely met: {window}"));
    }
    Ok(good && missed.is_empty())
}

/// One run in short, and how to see it again where it failed.
fn told(verdict: &Verdict, dir: &PathBuf) -> String {
    let figures = &verdict.figures;
    let short = format!(
        "seed {}: {} accepted, {} faults, {} s, {} findings",
        verdict.plan.seed,
        figures.accepted,
        figures.faults(),
        figures.run_ms / 1_000,
        verdict.findings.len()
    );
    if verdict.findings.is_empty() {
        return short;
    }
    format!("{short}\n{}\n{}", verdict.text(), verdict.again(dir))
}

/// Puts the figures into a document, in place of those that are there.
fn write_into(path: &Path, table: &str) -> Result<(), String> {
    let named = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| named(&e))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| named(&format!("no `{BEGIN}` and `{END}`")))?;
    let whole = format!("{before}{BEGIN}\n\n{table}\n{END}{after}");
    std::fs::write(path, whole).map_err(|e| named(&e))
}

fn say(line: &str) {
    // Where nobody reads it any more there is nobody to tell.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
