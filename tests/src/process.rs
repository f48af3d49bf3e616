//! One process of the rig, with everything it says kept.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::wait::until;

/// Says where a role listens, before the address.
const LISTENS: &str = "listening on ";
/// A role that does not listen by then has failed.
const START: Duration = Duration::from_secs(30);
/// Lines shown of a process that misbehaved.
const TAIL: usize = 40;

/// A signal that the rig sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Planned stop.
    Term,
    /// As Ctrl-C.
    Int,
    /// Freezes.
    Stop,
    /// Thaws.
    Cont,
}

impl Signal {
    fn flag(self) -> &'static str {
        match self {
            Self::Term => "-TERM",
            Self::Int => "-INT",
            Self::Stop => "-STOP",
            Self::Cont => "-CONT",
        }
    }
}

/// Sends a signal to a process of ours.
///
/// # Panics
/// When it cannot be sent.
pub(crate) fn send(pid: u32, signal: Signal) {
    let mut kill = Command::new("kill");
    let sent = kill.args([signal.flag(), &pid.to_string()]).status();
    let reached = sent.is_ok_and(|status| status.success());
    assert!(reached, "{signal:?} did not reach {pid}");
}

type Lines = Arc<Mutex<Vec<String>>>;

/// A running role. It is killed with this value.
#[derive(Debug)]
pub struct Proc {
    /// Role and number, unique in its rig.
    pub label: String,
    /// Where it listens, once it said so.
    pub url: String,
    child: Child,
    out: Lines,
    err: Lines,
    /// Set where the rig itself ended it or told it to end.
    told_to_end: bool,
}

impl Proc {
    /// Starts `command`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(label: impl Into<String>, mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?} does not start: {e}"));
        let (out, err) = (Lines::default(), Lines::default());
        keep(child.stdout.take().expect("piped"), Arc::clone(&out));
        keep(child.stderr.take().expect("piped"), Arc::clone(&err));
        Self {
            label: label.into(),
            url: String::new(),
            child,
            out,
            err,
            told_to_end: false,
        }
    }

    /// The address that it says it listens on, as `http://HOST:PORT`.
    ///
    /// # Panics
    /// When it ends, or does not say so in time.
    pub async fn listening(&mut self) -> String {
        let start = Instant::now();
        loop {
            if let Some(url) = self.listens() {
                return url;
            }
            self.must_run();
            assert!(
                start.elapsed() < START,
                "{} does not say where it listens:\n{}",
                self.label,
                self.tail()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The address that it said it listens on; none where it did not say so yet.
    pub(crate) fn listens(&mut self) -> Option<String> {
        let lines = [snapshot(&self.out), snapshot(&self.err)].concat();
        let url = lines.iter().find_map(|line| {
            let at = line.find(LISTENS)? + LISTENS.len();
            let url: String = line[at..]
                .chars()
                .take_while(|c| !c.is_whitespace() && !"\"'`,\u{1b}".contains(*c))
                .collect();
            url.starts_with("http://").then_some(url)
        })?;
        self.url.clone_from(&url);
        Some(url)
    }

    /// Its id in the system.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn signal(&mut self, signal: Signal) {
        if matches!(signal, Signal::Term | Signal::Int) {
            self.told_to_end = true;
        }
        send(self.pid(), signal);
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        self.told_to_end = true;
        // It may have ended already; either way it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end, which the rig asked for.
    ///
    /// # Panics
    /// When it still runs after `limit`.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(
                start.elapsed() < limit,
                "{} still runs {limit:?} after it was told to end:\n{}",
                self.label,
                self.tail()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// # Panics
    /// When it ended and nobody told it to.
    pub fn must_run(&mut self) {
        if self.told_to_end {
            return;
        }
        if let Ok(Some(status)) = self.child.try_wait() {
            panic!(
                "{} ended by itself ({status}):\n{}",
                self.label,
                self.tail()
            );
        }
    }

    /// How it ended and what it said last, where nobody told it to end.
    pub(crate) fn ended_by_itself(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(Some(status)) if !self.told_to_end => {
                Some(format!("{} ({status}):\n{}", self.label, self.tail()))
            }
            _ => None,
        }
    }

    /// How it ended; none where it runs.
    pub(crate) fn exit(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Lines of its standard error that contain `words`.
    pub(crate) fn lines_with(&self, words: &str) -> usize {
        let lines = self.err.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(words)).count()
    }

    /// The line with which it said that something in it panicked.
    pub(crate) fn panic_line(&self) -> Option<String> {
        let lines = [snapshot(&self.out), snapshot(&self.err)].concat();
        lines.into_iter().find(|line| line.contains("panicked"))
    }

    /// # Panics
    /// When it said that something in it panicked.
    pub fn must_not_have_panicked(&self) {
        if let Some(line) = self.panic_line() {
            panic!("{}: {line}\n{}", self.label, self.tail());
        }
    }

    /// Everything it wrote to its standard error.
    pub fn stderr(&self) -> String {
        snapshot(&self.err).join("\n")
    }

    /// Waits until its standard error has a line with all of `words`.
    ///
    /// # Panics
    /// When there is none within `limit`.
    pub async fn says(&self, limit: Duration, words: &[&str]) -> String {
        let what = format!("{} says {words:?}", self.label);
        until(limit, &what, async || {
            snapshot(&self.err)
                .into_iter()
                .find(|line| words.iter().all(|word| line.contains(word)))
        })
        .await
    }

    /// The last lines of its standard error.
    pub fn tail(&self) -> String {
        let lines = snapshot(&self.err);
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        self.kill();
    }
}

fn snapshot(lines: &Lines) -> Vec<String> {
    lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps what is written to `from`. The thread ends with the pipe, which ends with the process.
fn keep(from: impl Read + Send + 'static, lines: Lines) {
    let reader = move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(text);
            line.clear();
        }
    };
    std::thread::Builder::new()
        .name("output".into())
        .spawn(reader)
        .expect("there is a thread for each pipe");
}
