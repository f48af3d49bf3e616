//! Small libraries in C that are loaded into a process under test (`LD_PRELOAD`), and what steers them.
//!
//! They do what no signal and no proxy can: a wall clock that is wrong or steps. Each is compiled with `cc`, which a Rust
//! toolchain has anyway, and kept beside the built programs.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::NamedTempFile;

/// Steers the wall clock of every process that was started with its [`Clock::env`].
#[derive(Debug)]
pub struct Clock {
    file: NamedTempFile,
}

impl Clock {
    /// A clock that is right so far, apart by `shift_ms` milliseconds.
    ///
    /// # Panics
    /// When there is no `cc`, or no place for its file.
    pub fn shifted(shift_ms: i64) -> Self {
        let file = NamedTempFile::new().expect("a file for the shift");
        let clock = Self { file };
        clock.shift(shift_ms);
        clock
    }

    /// Steps the clock: from now on it is apart from the true one by `shift_ms`.
    ///
    /// # Panics
    /// When its file cannot be written.
    pub fn shift(&self, shift_ms: i64) {
        self.file
            .as_file()
            .write_all_at(&shift_ms.to_ne_bytes(), 0)
            .expect("the shift is written");
    }

    /// The environment of a process that goes by this clock.
    pub fn env(&self) -> [(&'static str, String); 2] {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| library("clock", include_str!("preload/clock.c")));
        [
            ("LD_PRELOAD", library.display().to_string()),
            ("PRELOADED_CLOCK", self.file.path().display().to_string()),
        ]
    }
}

/// Knows how much of each file a process that was started with its [`Synced::env`] has on the disk.
#[derive(Debug)]
pub struct Synced {
    notes: NamedTempFile,
    longer: NamedTempFile,
}

impl Default for Synced {
    fn default() -> Self {
        Self::new()
    }
}

impl Synced {
    /// Nothing is synced so far.
    ///
    /// # Panics
    /// When there is no place for its file.
    pub fn new() -> Self {
        let notes = NamedTempFile::new().expect("a file for the notes");
        let longer = NamedTempFile::new().expect("a file for the slowness");
        Self { notes, longer }
    }

    /// A disk that does not keep up: each sync takes so much longer from now on, cut to milliseconds.
    ///
    /// # Panics
    /// When its file cannot be written.
    pub fn slow(&self, longer: Duration) {
        let ms = i64::try_from(longer.as_millis()).expect("a time that a test waits");
        self.longer
            .as_file()
            .write_all_at(&ms.to_ne_bytes(), 0)
            .expect("the slowness is written");
    }

    /// The environment of a process whose syncs are noted.
    pub fn env(&self) -> [(&'static str, String); 3] {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| library("synced", include_str!("preload/synced.c")));
        let notes = self.notes.path().display().to_string();
        let longer = self.longer.path().display().to_string();
        [
            ("LD_PRELOAD", library.display().to_string()),
            ("PRELOADED_SYNCED", notes),
            ("PRELOADED_SYNC_MS", longer),
        ]
    }

    /// How many syncs were completed so far.
    ///
    /// # Panics
    /// When the notes cannot be read.
    pub fn count(&self) -> usize {
        let notes = std::fs::read_to_string(self.notes.path()).expect("the notes are readable");
        notes.lines().count()
    }

    /// Takes from the append-only files of a store in `dir`, which is not running, what a power loss would have taken:
    /// everything after the last sync that was completed. Gives the bytes taken.
    ///
    /// # Panics
    /// When the files cannot be read or cut.
    pub fn lose_power(&self, dir: &Path) -> u64 {
        let notes = std::fs::read_to_string(self.notes.path()).expect("the notes are readable");
        let files = std::fs::read_dir(dir.join("appendonlydir")).expect("an append-only store");
        let mut taken = 0;
        for file in files {
            let path = file.expect("the directory is readable").path();
            let name = path.display().to_string();
            if !name.ends_with(".incr.aof") {
                continue;
            }
            let synced = notes.lines().rev().find_map(|note| {
                let (bytes, of) = note.split_once(' ')?;
                (of == name).then(|| bytes.parse::<u64>().expect("a size"))
            });
            let synced = synced.unwrap_or(0);
            let file = std::fs::OpenOptions::new().write(true).open(&path);
            let file = file.expect("the file can be written");
            taken += file.metadata().expect("it is a file").len() - synced;
            file.set_len(synced).expect("the file can be cut");
        }
        taken
    }
}

/// Compiles `source` to `<target>/<profile>/preload-<name>.so`. Several tests may do so at once: each writes a file of its
/// own and renames it.
pub(crate) fn library(name: &str, source: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own program");
    let built = |dir: &Path| dir.ends_with("debug") || dir.ends_with("release");
    let profile_dir = test
        .ancestors()
        .find(|dir| built(dir))
        .expect("cargo keeps programs in <target>/<profile>");
    let code = profile_dir.join(format!("preload-{name}-{}.c", std::process::id()));
    let made = code.with_extension("so");
    let library = profile_dir.join(format!("preload-{name}.so"));
    std::fs::write(&code, source).expect("the target directory is writable");
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
        .args([&made, &code])
        .output()
        .expect("there is a C compiler, `cc`: it links Rust programs, too");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cc: {said}");
    let _ = std::fs::remove_file(&code);
    std::fs::rename(&made, &library).expect("both are in one directory");
    library
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_shifted_clock_is_seen_by_the_process_and_can_step() {
        let clock = Clock::shifted(-3_600_000);
        let apart_s = || {
            let output = Command::new("date").arg("+%s").envs(clock.env()).output();
            let said = String::from_utf8(output.unwrap().stdout).unwrap();
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            said.trim().parse::<i64>().unwrap() - i64::try_from(now.unwrap().as_secs()).unwrap()
        };
        assert!((-3_601..=-3_599).contains(&apart_s()), "{}", apart_s());
        clock.shift(60_000);
        assert!((59..=61).contains(&apart_s()), "{}", apart_s());
    }
}
