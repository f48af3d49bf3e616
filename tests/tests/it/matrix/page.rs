//! The matrix as a page: one table for each fault, steps down and moments across.

use std::fmt::Write as _;

use super::Results;
use super::cells::{Cell, Fault, Moment, Outcome, Row};

const HEAD: &str = "# Fault matrix

What each mutating step of the protocol does when something breaks at each moment of its way. `make matrix` runs every cell and writes
this page; `make test` runs every cell once. Each run is a process of its own with a real store behind a faulty network, on a real
Redis (`appendfsync always`); the same process, or another in its place, then does what a role of Tidegate would do.

A run counts only if all of this held: the step had taken effect whole or not at all at every look, and once in the end; sent once
more it changed nothing; a delivery whose lease had ended changed nothing of its successor's, to the letter; every accepted job reached one
terminal; no slot, lease or byte was held at the end; `doctor` found nothing; the record that the scripts wrote of themselves
agreed with the reference, reply by reply.
";

const LEGEND: &str = "
- **once**: it took effect at its first sending, and nobody had to send it again.
- **sent again**: its caller, its caller's store or another process in its place sent the very same step again; it took effect once.
- **taken over**: the lease ended and another worker finished the job; what the first said after that was refused.
- **not done**: it never ran, or too late to change anything; the job had waited and another worker had it.

`n/m` are runs that held of all runs of the cell. A cell in italics cannot be, and says why.
";

/// The whole page.
pub(crate) fn page(results: &Results) -> String {
    let mut page = format!("{HEAD}{LEGEND}\n{}\n", summary(results));
    for fault in Fault::ALL {
        let moments: Vec<_> = Moment::ALL.iter().map(|moment| moment.label()).collect();
        let _ = write!(
            page,
            "\n## {}\n\n| step | {} |\n|---|{}\n",
            fault.label(),
            moments.join(" | "),
            "---|".repeat(moments.len())
        );
        for row in Row::ALL {
            let cells: Vec<_> = Moment::ALL
                .into_iter()
                .map(|moment| text(Cell { fault, row, moment }, results))
                .collect();
            let _ = writeln!(page, "| {} | {} |", row.label(), cells.join(" | "));
        }
    }
    page
}

/// What of a page is not as [`page`] would write it after runs that all held, figures aside.
pub(crate) fn unlike(text: &str) -> Vec<String> {
    let mut unlike = Vec::new();
    let (mut fault, mut rows) = (None, 0);
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            fault = Fault::ALL.into_iter().find(|fault| fault.label() == title);
            if fault.is_none() {
                unlike.push(line.to_owned());
            }
        }
        let columns: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let row = Row::ALL.into_iter().find(|row| row.label() == columns[0]);
        let (Some(fault), Some(row), true) = (fault, row, line.starts_with('|')) else {
            continue;
        };
        rows += 1;
        if columns.len() != 1 + Moment::ALL.len() {
            unlike.push(line.to_owned());
        }
        for (moment, said) in Moment::ALL.into_iter().zip(&columns[1..]) {
            let cell = Cell { fault, row, moment };
            seen.insert(cell);
            if !holds(cell, said) {
                unlike.push(format!("{cell}: `{said}`"));
            }
        }
    }
    let missing = Cell::all().filter(|cell| !seen.contains(cell));
    unlike.extend(missing.map(|cell| format!("{cell}: missing")));
    if rows != Fault::ALL.len() * Row::ALL.len() {
        unlike.push(format!("{rows} rows"));
    }
    for part in [HEAD, LEGEND] {
        if !text.contains(part) {
            unlike.push(format!("not there: {part}"));
        }
    }
    unlike
}

/// Whether a cell says an outcome, and that all of its runs held; or why it cannot be.
fn holds(cell: Cell, said: &str) -> bool {
    if let Some(why) = cell.cannot_be() {
        return said == format!("*{why}*");
    }
    let Some((outcome, figures)) = said.rsplit_once(' ') else {
        return false;
    };
    let known = Outcome::ALL
        .into_iter()
        .any(|known| outcome.starts_with(known.label()));
    known
        && figures
            .split_once('/')
            .is_some_and(|(held, all)| held == all && held.parse().is_ok_and(|n: usize| n > 0))
}

fn text(cell: Cell, results: &Results) -> String {
    if let Some(why) = cell.cannot_be() {
        return format!("*{why}*");
    }
    let Some(tally) = results.cells.get(&cell) else {
        return "not run".into();
    };
    let held: usize = tally.outcomes.values().sum();
    let words: Vec<String> = match tally.outcomes.len() {
        0 => vec!["none".into()],
        1 => tally.outcomes.keys().map(|o| o.label().into()).collect(),
        _ => tally
            .outcomes
            .iter()
            .map(|(outcome, n)| format!("{} {n}", outcome.label()))
            .collect(),
    };
    format!("{} {held}/{}", words.join(", "), held + tally.wrong.len())
}

/// The figures of all cells in one paragraph.
pub(crate) fn summary(results: &Results) -> String {
    let held = |outcome: Outcome| -> usize {
        results
            .cells
            .values()
            .filter_map(|tally| tally.outcomes.get(&outcome))
            .sum()
    };
    let wrong: usize = results.cells.values().map(|tally| tally.wrong.len()).sum();
    let all: usize = Outcome::ALL.into_iter().map(held).sum::<usize>() + wrong;
    let cannot = Cell::all()
        .filter(|cell| cell.cannot_be().is_some())
        .count();
    let words: Vec<String> = Outcome::ALL
        .into_iter()
        .map(|outcome| format!("{} {}", outcome.label(), held(outcome)))
        .collect();
    format!(
        "{} cells, of which {cannot} cannot be; {all} faults in {} cells, {} held: {}. Refused on the way: {} commands that came \
         after their deadline, {} writes of deliveries that were over.",
        Cell::all().count(),
        results.cells.len(),
        all - wrong,
        words.join(", "),
        results.late,
        results.stale,
    )
}
