//! The matrix of faults: each mutating step, at each moment of its way, under each fault. The list of cells is made
//! from the three lists in [`cells`]; what cannot be is said by one rule there, so no cell can be forgotten.
//!
//! `MATRIX_ROUNDS` in the environment runs each cell so often, `MATRIX_PAGE` names the file that the table is written to:
//! `make matrix` sets both. `MATRIX_CELL` runs only the cells whose name has it, such as `renew / after the reply`.

mod caller;
mod calm;
mod cells;
mod ending;
mod lane;
mod page;
mod run;
mod scene;
mod takeover;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::FutureExt as _;

use calm::Calm;
use cells::{Cell, Outcome, Row};
use lane::Lane;
use run::{Bad, Ran};

/// Cells that run at once where nothing else does, each on a server of its own: most of a cell is waiting.
const LANES: usize = 8;
/// Cells that run at once beside other tests, which want their share of the machine.
const LANES_BESIDE: usize = 4;
/// Times that a cell is run again after the machine was too slow for it.
const STALLS: usize = 5;

/// Runs after which a word is said of how far it is.
const SAID_EVERY: usize = 360;

/// What all runs of one cell gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) outcomes: BTreeMap<Outcome, usize>,
    pub(crate) wrong: Vec<String>,
}

/// What all runs gave.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) cells: BTreeMap<Cell, Tally>,
    pub(crate) late: u64,
    pub(crate) stale: u64,
    pub(crate) stalled: usize,
    pub(crate) runs: usize,
}

type Queue = Arc<Mutex<VecDeque<(Cell, usize)>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_step_at_each_moment_under_each_fault_is_done_once_or_not_at_all() {
    let rounds = variable("ROUNDS").map_or(1, |text| text.parse().expect("ROUNDS is a number"));
    let only = variable("CELL");
    let wanted = |cell: &Cell| {
        only.as_ref()
            .is_none_or(|text| cell.to_string().contains(text))
    };
    let todo: VecDeque<_> = (0..rounds)
        .flat_map(|round| Cell::all().map(move |cell| (cell, round)))
        .filter(|(cell, _)| cell.cannot_be().is_none() && wanted(cell))
        .collect();
    let all = todo.len();
    let started = Instant::now();
    let calm = Arc::new(calm().await);
    let queue: Queue = Arc::new(Mutex::new(todo));
    let results = Arc::new(Mutex::new(Results::default()));
    let lanes = if rounds > 1 { LANES } else { LANES_BESIDE };
    let lanes: Vec<_> = (0..lanes)
        .map(|number| {
            tokio::spawn(work(
                number,
                Arc::clone(&queue),
                Arc::clone(&calm),
                Arc::clone(&results),
            ))
        })
        .collect();
    for lane in lanes {
        lane.await.unwrap();
    }
    let results = Arc::into_inner(results).unwrap().into_inner().unwrap();
    println!("{}", page::summary(&results));
    println!(
        "{all} runs in {:.0} s, {} made again because the machine was too slow for the moment",
        started.elapsed().as_secs_f64(),
        results.stalled
    );
    let wrong: Vec<String> = results
        .cells
        .iter()
        .flat_map(|(cell, tally)| {
            tally
                .wrong
                .iter()
                .map(move |what| format!("{cell}: {what}"))
        })
        .collect();
    if only.is_none() {
        assert!(results.late > 0, "no command came after its deadline");
        assert!(results.stale > 0, "no stale delivery wrote");
    }
    if let Some(path) = variable("PAGE") {
        std::fs::write(path, page::page(&results)).unwrap();
    }
    assert!(
        wrong.is_empty(),
        "{} of {all} runs:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The page in docs is of these very cells: none is missing, none is blank, none failed or was run less often than it says.
#[test]
fn the_page_of_the_matrix_has_every_cell() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FAULT_MATRIX.md");
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(page::unlike(&text), Vec::<String>::new());
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("MATRIX_{name}")).ok()
}

/// What every step does where nothing goes wrong.
async fn calm() -> BTreeMap<Row, Calm> {
    let mut lane = Lane::start(LANES).await;
    let mut all = BTreeMap::new();
    for row in Row::ALL {
        all.insert(row, Calm::of(&mut lane, row).await);
    }
    all
}

/// One lane: cells from the queue until it is empty.
async fn work(
    number: usize,
    queue: Queue,
    calm: Arc<BTreeMap<Row, Calm>>,
    results: Arc<Mutex<Results>>,
) {
    let mut lane = Lane::start(number).await;
    loop {
        let next = queue.lock().unwrap().pop_front();
        let Some((cell, round)) = next else { return };
        let mut stalls = 0;
        let ran = loop {
            let ran = one(&mut lane, cell, round, &calm[&cell.row]).await;
            match ran {
                Err(Bad::Stalled(_)) if stalls < STALLS => stalls += 1,
                Ok(ran) if !cell.may_end(ran.outcome) => {
                    break Err(Bad::Wrong(format!("it ended as {:?}", ran.outcome)));
                }
                other => break other,
            }
        };
        let mut results = results.lock().unwrap();
        results.stalled += stalls;
        results.runs += 1;
        if results.runs.is_multiple_of(SAID_EVERY) {
            println!("{} runs", results.runs);
        }
        match ran {
            Ok(ran) => {
                results.late += ran.late;
                results.stale += ran.stale;
                let tally = results.cells.entry(cell).or_default();
                *tally.outcomes.entry(ran.outcome).or_default() += 1;
            }
            Err(bad) => {
                println!("{cell}, round {round}: {bad}");
                let tally = results.cells.entry(cell).or_default();
                tally.wrong.push(format!("round {round}: {bad}"));
            }
        }
    }
}

/// One run; what panics in it is its failure. The server may be down then.
async fn one(lane: &mut Lane, cell: Cell, round: usize, calm: &Calm) -> Result<Ran, Bad> {
    let number = lane.number;
    let ran = AssertUnwindSafe(run::run(lane, cell, round, calm))
        .catch_unwind()
        .await;
    match ran {
        Ok(ran) => ran,
        Err(panic) => {
            *lane = Lane::start(number).await;
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Bad::Wrong(text.unwrap_or_default()))
        }
    }
}
