//! The program under test, and a running `tidegate dev` for what needs one.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tidegate_loadtest::gpu;

/// A command that does not end by then hangs; far above what a busy machine takes.
const COMMAND: Duration = Duration::from_secs(60);

/// What a command gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The same, of a command that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        self.json()
    }

    /// It ended so, and said this on standard error.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, says: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(says), "`{says}` is not in {self:?}");
    }
}

/// The program, in an environment without settings of the product.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("TIDEGATE_") || text.starts_with("OTEL_") {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) async fn run(command: Command) -> Ran {
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND, command.output())
        .await
        .unwrap_or_else(|_| panic!("{command:?} does not end"))
        .unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs the program with these arguments and no server around.
pub(crate) async fn tidegate(arguments: &[&str]) -> Ran {
    let mut command = program();
    command.args(arguments);
    run(command).await
}

/// A long-running process of the program; it is stopped with this value.
pub(crate) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Reads its lines until one begins with `start`, and gives the rest of that.
    pub(crate) fn line(&mut self, start: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            let read = self.out.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended without `{start}`: {seen}");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
            seen.push_str(&line);
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end and gives its exit code.
    pub(crate) async fn ended(&mut self) -> i32 {
        let start = std::time::Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(start.elapsed() < COMMAND, "it does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        // In order first: `dev` has a store of its own to take along.
        self.signal("TERM");
        for _ in 0..500 {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `tidegate dev` with a scripted model server.
pub(crate) struct Dev {
    pub(crate) running: Running,
    pub(crate) gpu: gpu::Server,
    pub(crate) url: String,
    pub(crate) key: String,
}

/// The model that the scripted server names.
pub(crate) const MODEL: &str = "test-model";

impl Dev {
    pub(crate) async fn start(more: &[&str]) -> Self {
        let config = gpu::Config {
            models: vec![MODEL.into()],
            ..gpu::Config::default()
        };
        let gpu = gpu::Server::start(config).await.unwrap();
        let mut command = program();
        command
            .args(["dev", "--headless", "--port", "0", "--upstream", &gpu.url()])
            .args([
                "--set",
                "pools.default.backoff_ms=10",
                "--set",
                "pools.default.backoff_max_ms=20",
            ])
            .args(more);
        let mut running = Running::spawn(command);
        let url = running.line("listening on ");
        let key = running.line("api key");
        Self {
            running,
            gpu,
            url,
            key,
        }
    }

    /// A command of the line with the printed address and key.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command
            .env("TIDEGATE_URL", &self.url)
            .env("TIDEGATE_API_KEY", &self.key)
            .args(arguments);
        command
    }

    pub(crate) async fn cli(&self, arguments: &[&str]) -> Ran {
        run(self.command(arguments)).await
    }

    /// Submits a job with this prompt, waits for its end, and gives it.
    pub(crate) async fn job(&self, prompt: &str, more: &[&str]) -> Value {
        let mut arguments = vec![
            "job", "submit", "--model", MODEL, "--prompt", prompt, "--wait", "30", "-o", "json",
        ];
        arguments.extend_from_slice(more);
        self.cli(&arguments).await.json()
    }

    /// Submits a job that becomes a dead letter at once, and gives its id.
    pub(crate) async fn dead(&self, tag: &str) -> String {
        let script = gpu::Script::tag(tag)
            .fail_times(1_u32)
            .status(500_u16)
            .text("well");
        let job = self
            .job(&script.to_string(), &["--max-attempts", "1"])
            .await;
        assert_eq!(
            (&job["status"], &job["dead"]),
            (&"failed".into(), &true.into()),
            "{job:#}"
        );
        job["id"].as_str().unwrap().to_owned()
    }
}
