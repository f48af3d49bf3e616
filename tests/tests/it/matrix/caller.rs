//! A caller process and what it says.

use std::process::Stdio;
use std::time::Duration;

use tidegate_tests::Ask;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A caller that says nothing for so long has failed: its command time-out, a restart of the store and a busy machine fit in.
const SAYS: Duration = Duration::from_secs(20);

/// A running caller. It is killed with this value.
pub(crate) struct Caller {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    input: ChildStdin,
    /// A step was sent and not answered.
    waits: bool,
}

/// An answer of a caller.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The step's reply in a few words.
    Said(String),
    /// The store could not say.
    Trouble(String),
}

impl Caller {
    /// Starts a caller that reaches the store at `url` and knows the pool's clock.
    pub(crate) async fn start(url: &str, timeout_ms: u64, pool: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_step-caller"))
            .args([url, &timeout_ms.to_string(), pool])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the caller starts");
        let input = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut caller = Self {
            child,
            lines,
            input,
            waits: false,
        };
        assert_eq!(caller.line().await, "ready");
        caller
    }

    async fn line(&mut self) -> String {
        match tokio::time::timeout(SAYS, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            other => panic!("the caller should say something: {other:?}"),
        }
    }

    /// Tells it to send `ask`, and waits for nothing.
    pub(crate) async fn tell(&mut self, ask: &Ask) {
        assert!(!self.waits, "one at a time");
        let line = serde_json::to_string(ask).unwrap() + "\n";
        self.input.write_all(line.as_bytes()).await.unwrap();
        self.waits = true;
    }

    /// What it says to the step that it was told.
    pub(crate) async fn answer(&mut self) -> Answer {
        assert!(self.waits, "it was told something");
        let line = self.line().await;
        self.waits = false;
        match line.split_once(' ') {
            Some(("ok", said)) => Answer::Said(said.to_owned()),
            Some(("error", what)) => Answer::Trouble(what.to_owned()),
            _ => panic!("`{line}` is no answer"),
        }
    }

    /// Whether a step was told and its answer not read.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Ends it as a crash would.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Freezes it, or lets it go on.
    pub(crate) async fn freeze(&self, freeze: bool) {
        let pid = self.child.id().expect("it runs").to_string();
        let flag = if freeze { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([flag, &pid]).status().await;
        assert!(sent.is_ok_and(|status| status.success()), "{flag} {pid}");
    }
}
