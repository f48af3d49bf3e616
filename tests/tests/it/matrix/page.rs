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
