//! Everything that a run leaves behind, as files: what it was asked, what was done to it, what its clients saw, what the
//! store recorded, and how things stood at the end. The verdict follows from these files alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_shared::audit::{self, Entry};
use tidegate_shared::domain::PoolName;

use super::fault::{Due, Fault};
use super::history::{self, Event, Shown};

/// What a run is asked to be. The same plan is the same workload and the same schedule of faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Everything that is drawn follows from it.
    pub seed: u64,
    /// Jobs that clients submit.
    pub jobs: u32,
    /// Faults over the run.
    pub faults: u32,
    /// Stories that go on at once.
    pub clients: usize,
    /// Of a thousand clients, how many wait for the end of their job.
    pub watch_permille: u64,
    /// Share of the machine, 1 to 4: runs that share it go on at once.
    pub weight: u32,
    /// Half-way something takes a lease away behind the system's back: the run must fail.
    #[serde(default)]
    pub sabotage: bool,
}

/// A fault as it was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deed {
    /// Milliseconds since the run began, on a monotonic clock.
    pub at_ms: u64,
    /// The store's clock then, in milliseconds.
    pub raw_ms: u64,
    /// Last entry of the record before it; none where the store could not be asked.
    pub entry: Option<u64>,
    /// The fault.
    pub fault: Fault,
    /// The process that it hit; empty where it hit none.
    pub victim: String,
    /// Connections, waiting clients or blocked workers that it met; 0 where nothing of the sort is counted.
    pub met: u64,
    /// The end of a fault that lasts, not its beginning.
    pub over: bool,
}

/// What the proxy did to messages of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// The kind of the fault.
    pub kind: String,
    /// Messages it met.
    pub count: u64,
}

/// A process of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Role and number.
    pub label: String,
    /// Most resident memory, in KiB; 0 where it is gone.
    pub peak_kb: u64,
    /// What it said of a panic; empty without one.
    pub panic: String,
    /// How it ended, where nobody told it to; empty where it did not.
    pub ended: String,
}

/// How things stood at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Why the run could not be brought to its end; empty where it was.
    pub stuck: String,
    /// Milliseconds of the whole run, and from the last heal until nothing was owed.
    pub run_ms: u64,
    /// As above.
    pub settle_ms: u64,
    /// Every job with its terminal, twice, as the lists show them; none: it was not over.
    pub lists: Vec<BTreeMap<String, Option<Shown>>>,
    /// `pool show`
    pub pool: Value,
    /// `doctor`
    pub doctor: Value,
    /// Keys of the pool by kind.
    pub keys: BTreeMap<String, u64>,
    /// Keys without an end.
    pub lasting: Vec<String>,
    /// Calls that the model server saw.
    pub model_calls: u64,
    /// Most of them at once.
    pub model_peak: u64,
    /// Most deliveries that killed and frozen workers may have had beside their successors'.
    pub overlap: u64,
    /// Processes.
    pub processes: Vec<Process>,
    /// Errors that the store's server answered, by kind.
    pub errors: BTreeMap<String, u64>,
    /// What the proxy met.
    pub proxy: Vec<Met>,
    /// Lines that the processes logged, by what they say.
    pub said: BTreeMap<String, u64>,
    /// Tasks of clients that ended in a panic of the test itself.
    pub broken_clients: Vec<String>,
}

/// A run's directory.
#[derive(Clone, Debug)]
pub struct Record {
    dir: PathBuf,
}

impl Record {
    /// The record in `dir`, which is made where it is not there.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn at(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        Ok(Self { dir: dir.into() })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn write<T: Serialize>(&self, name: &str, what: &T) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(self.dir.join(name))?);
        serde_json::to_writer(&mut file, what)?;
        file.flush()
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<T> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{name}: {e}"));
        let file = File::open(self.dir.join(name)).map_err(named)?;
        Ok(serde_json::from_reader(BufReader::new(file))?)
    }

    /// Notes what is about to be run, and the version of the sources that runs it.
    pub(crate) fn begin(&self, plan: &Plan, schedule: &[Due]) -> io::Result<()> {
        for old in std::fs::read_dir(&self.dir)? {
            let old = old?;
            if old.file_name().to_string_lossy().starts_with("audit-") {
                std::fs::remove_file(old.path())?;
            }
        }
        self.write("plan.json", plan)?;
        self.write("schedule.json", &schedule)?;
        self.write("commit.json", &commit())
    }

    pub(crate) fn end(
        &self,
        deeds: &[Deed],
        events: &[Event],
        observed: &Observed,
    ) -> io::Result<()> {
        self.write("deeds.json", &deeds)?;
        history::save(&self.dir.join("history.jsonl"), events)?;
        self.write("observed.json", observed)
    }

    /// What was run.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn plan(&self) -> io::Result<Plan> {
        self.read("plan.json")
    }

    /// Which version of the sources ran.
    ///
    /// # Errors
    /// As [`Record::plan`].
    pub fn commit(&self) -> io::Result<String> {
        self.read("commit.json")
    }

    pub(crate) fn deeds(&self) -> io::Result<Vec<Deed>> {
        self.read("deeds.json")
    }

    pub(crate) fn history(&self) -> io::Result<Vec<Event>> {
        history::load(&self.dir.join("history.jsonl"))
    }

    pub(crate) fn observed(&self) -> io::Result<Observed> {
        self.read("observed.json")
    }

    /// Writes the next piece of the store's record.
    pub(crate) fn add_entries(
        &self,
        piece: u32,
        pool: &PoolName,
        entries: &[Entry],
    ) -> io::Result<()> {
        audit::save(&self.dir.join(format!("audit-{piece:05}")), pool, entries)
    }

    /// The pieces of the store's record, in their order.
    ///
    /// # Errors
    /// Where the directory cannot be read.
    pub fn pieces(&self) -> io::Result<Vec<PathBuf>> {
        let mut pieces = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("audit-") {
                pieces.push(entry.path());
            }
        }
        pieces.sort();
        Ok(pieces)
    }
}

/// Name of the commit, `-dirty` behind it where files differ; `unknown` outside a checkout.
fn commit() -> String {
    let described = std::process::Command::new("git")
        .args([
            "describe",
            "--always",
            "--dirty",
            "--abbrev=12",
            "--exclude=*",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match described {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".into(),
    }
}
