//! Runs the soak over many seeds, or judges the record of a run again.
//!
//! `soak [--seeds N] [--first SEED] [--together N] [--jobs N] [--faults N] [--clients N] [--watch N] [--least N]
//! [--write FILE] [--keep yes]`
//!
//! `soak --replay DIR`

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

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

const KNOWN: [&str; 11] = [
    "seeds", "first", "jobs", "faults", "clients", "least", "write", "replay", "keep", "together",
    "watch",
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
        if !Path::new(dir).is_dir() {
            return Err(format!("{dir}: no such directory"));
        }
        let record = Record::at(Path::new(dir)).map_err(|e| e.to_string())?;
        let verdict = soak::judge(&record).map_err(|e| format!("{dir}: {e}"))?;
        say(&verdict.text());
        say(&format!("\n{}", verdict.figures.table(&verdict.commit)));
        return Ok(verdict.findings.is_empty());
    }
    let (seeds, first) = (number(given, "seeds", 25)?, number(given, "first", 1)?);
    let together = number(given, "together", 2_usize)?.max(1);
    let mut plans = Vec::new();
    for seed in first..first + seeds {
        plans.push(Plan {
            seed,
            jobs: number(given, "jobs", 20_200)?,
            faults: number(given, "faults", 210)?,
            clients: number(given, "clients", 256)?,
            watch_permille: number(given, "watch", 1_000)?,
            // They share the machine: alone, one leaves half of it idle.
            weight: (4 / u32::try_from(together).unwrap_or(4)).max(1),
            sabotage: false,
        });
    }
    let keep = given.contains_key("keep");
    let (sum, commit, good) = all(plans, together, keep)?;
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

/// Runs all plans, so many at once. Gives the sum of their figures, the version that ran, and whether everything held.
fn all(plans: Vec<Plan>, together: usize, keep: bool) -> Result<(Figures, String, bool), String> {
    let plans = Mutex::new(plans.into_iter());
    let next = || plans.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || -> Result<(Figures, String, bool), String> {
        let (mut sum, mut commit, mut good) = (Figures::default(), String::new(), true);
        while let Some(plan) = next() {
            let verdict = one(&plan, keep)?;
            sum.add(&verdict.figures);
            good &= verdict.findings.is_empty();
            commit = verdict.commit;
        }
        Ok((sum, commit, good))
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..together.max(1) {
            let thread = std::thread::Builder::new().spawn_scoped(scope, worker);
            threads.push(thread.map_err(|e| e.to_string())?);
        }
        let (mut sum, mut commit, mut good) = (Figures::default(), String::new(), true);
        for thread in threads {
            let part = thread.join().map_err(|_| "a run broke; see above")??;
            sum.add(&part.0);
            good &= part.2;
            if !part.1.is_empty() {
                commit = part.1;
            }
        }
        Ok((sum, commit, good))
    })
}

/// Runs one plan and judges it. The record of a good run is not kept, unless that is wanted.
fn one(plan: &Plan, keep: bool) -> Result<Verdict, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let dir = soak::directory().join(format!("seed-{}", plan.seed));
    let record = runtime
        .block_on(soak::run(plan, &dir))
        .map_err(|e| e.to_string())?;
    let verdict = soak::judge(&record).map_err(|e| e.to_string())?;
    say(&told(&verdict, &dir));
    if verdict.findings.is_empty() && !keep {
        std::fs::remove_dir_all(&dir).map_err(|e| e.to_string())?;
    }
    Ok(verdict)
}

/// One run in short, and how to see it again where it failed.
fn told(verdict: &Verdict, dir: &Path) -> String {
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
