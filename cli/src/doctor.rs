//! `tidegate doctor`: the server, the settings and the invariants, each finding with what to do about it.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_shared::config::Config;
use tidegate_shared::doctor;
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;

use crate::config_cmd::environment;
use crate::exit::Failure;
use crate::globals::Globals;
use crate::output::{self, Column, Format, Printer, column, note};
use crate::text;

/// Flags of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file whose settings are judged too; else the one that TIDEGATE_CONFIG names, else none.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const COLUMNS: &[Column] = &[
    column("STATUS", |finding| text::cell(&finding["status"])),
    column("CHECK", |finding| text::cell(&finding["id"])),
    // Whole, whatever its length: it is what the command is for.
    column("FINDING", |finding| {
        text::visible(finding["message"].as_str().unwrap_or("-"))
    }),
];

/// Examines the store.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<(), Failure> {
    let flags: Vec<_> = globals
        .redis
        .iter()
        .map(|url| ("store.url".to_owned(), url.clone()))
        .collect();
    let config = Config::load(args.config.as_deref(), environment(), &flags)?.config;
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    // Not asked for a sign of life here: a store that gives none is a finding.
    let store = Store::open(&config.store, metrics).await?;
    // Settings that nobody gave are not judged: they would be the defaults, whatever the roles really have.
    let given =
        args.config.is_some() || std::env::var_os(tidegate_shared::config::env::CONFIG).is_some();
    let findings = doctor::examine(&store, given.then_some(&config)).await;
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| serde_json::to_value(finding).expect("findings always serialise"))
        .collect();
    print(&findings, globals.output)?;
    match code(&findings) {
        0 => Ok(()),
        code => Err(Failure::Said(code)),
    }
}

/// The exit code: 6 where the store cannot be reached, so that nothing else was looked at; 1 where anything fails.
fn code(findings: &[Value]) -> u8 {
    match findings {
        [only] if only["id"] == "redis.reachable" && !ok(findings) => 6,
        findings if ok(findings) => 0,
        _ => 1,
    }
}

fn ok(findings: &[Value]) -> bool {
    findings.iter().all(|finding| finding["status"] != "fail")
}

fn print(findings: &[Value], format: Format) -> Result<(), Failure> {
    let whole = json!({"ok": ok(findings), "findings": findings});
    match format {
        Format::Json => output::document(&whole),
        Format::Jsonl => output::line(&whole.to_string()),
        format => {
            Printer::new(format, COLUMNS).list(findings)?;
            for finding in findings
                .iter()
                .filter(|finding| finding["status"] != "pass")
            {
                if let Some(fix) = finding["fix"].as_str().filter(|fix| !fix.is_empty()) {
                    note(&format!(
                        "{}: {}",
                        text::cell(&finding["id"]),
                        text::visible(fix)
                    ));
                }
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_no_failure() {
        assert_eq!(
            code(&[json!({"status": "pass"}), json!({"status": "warn"})]),
            0
        );
        assert_eq!(
            code(&[json!({"status": "pass"}), json!({"status": "fail"})]),
            1
        );
        assert_eq!(
            code(&[json!({"id": "redis.reachable", "status": "fail"})]),
            6
        );
    }
}
