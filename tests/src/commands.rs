//! Commands of the line, of the store's own client, and figures read from outside.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::rig::Rig;

/// A command of the line gets so long.
const COMMAND: Duration = Duration::from_secs(60);

/// What a command of the line gave.
#[derive(Clone, Debug)]
pub struct CliReply {
    /// Exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl CliReply {
    /// Standard output as JSON.
    ///
    /// # Panics
    /// When it is not.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}\n{}", self.stdout, self.stderr))
    }
}

impl Rig {
    pub(crate) async fn mint_key(&self, tenant: &str, scopes: &[&str]) -> String {
        let mut arguments = vec!["key", "create", "--tenant", tenant, "-o", "json"];
        for scope in scopes {
            arguments.extend(["--scope", scope]);
        }
        let minted = self.store_cli(&arguments).await;
        assert_eq!(minted.code, Some(0), "{minted:?}");
        let key = minted.json()["key"].as_str().map(str::to_owned);
        key.expect("`key create` prints the key")
    }

    /// Runs a command of the line over HTTP, with the operator's key.
    ///
    /// # Panics
    /// When it cannot be run or does not end.
    pub async fn cli(&self, arguments: &[&str]) -> CliReply {
        let mut command = self.program();
        command
            .env("TIDEGATE_URL", self.operator.base())
            .env("TIDEGATE_API_KEY", self.operator.key())
            .args(arguments);
        run(command).await
    }

    /// Runs a command of the line straight at the store.
    ///
    /// # Panics
    /// When it cannot be run or does not end.
    pub async fn store_cli(&self, arguments: &[&str]) -> CliReply {
        let mut command = self.program();
        command
            .args(arguments)
            .args(["--redis", &self.store_list()]);
        run(command).await
    }

    /// Runs a command of the store's own client, for faults and counts.
    ///
    /// # Panics
    /// When it cannot be run or fails.
    pub async fn redis(&self, arguments: &[&str]) -> String {
        let mut command = std::process::Command::new("redis-cli");
        let url = self.store.url();
        command
            .args(["-s", url.trim_start_matches("unix://")])
            .args(arguments);
        let reply = run(command).await;
        assert_eq!(reply.code, Some(0), "{arguments:?}: {reply:?}");
        reply.stdout.trim().to_owned()
    }

    /// As [`Rig::redis`], of a server that may not answer now: none where it fails or takes longer than a second.
    pub(crate) async fn try_redis(&self, arguments: &[&str]) -> Option<String> {
        let url = self.store.url();
        let mut command = Command::new("redis-cli");
        command
            .args(["-s", url.trim_start_matches("unix://")])
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(1), command.output());
        let output = output.await.ok()?.ok()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said)
    }

    /// The pool as operators see it.
    ///
    /// # Panics
    /// When it is not shown.
    pub async fn pool(&self) -> Value {
        let shown = self
            .store_cli(&["pool", "show", "default", "-o", "json"])
            .await;
        assert_eq!(shown.code, Some(0), "{shown:?}");
        shown.json()
    }

    /// Sum of a metric over its labels, at one address; 0 where it is not there.
    ///
    /// # Panics
    /// When the address does not answer.
    pub async fn metric(&self, base: &str, name: &str) -> f64 {
        let scraped = self.api.plain(&format!("{base}/metrics")).await;
        let text = scraped.expect("metrics are served").text();
        text.lines()
            .filter(|line| {
                line.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(['{', ' ']))
            })
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .fold(0.0, |sum, value| sum + value)
    }
}

pub(crate) async fn run(command: std::process::Command) -> CliReply {
    let mut command = Command::from(command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND, command.output())
        .await
        .unwrap_or_else(|_| panic!("{command:?} does not end"))
        .unwrap_or_else(|e| panic!("{command:?} does not run: {e}"));
    CliReply {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
