//! Tables for a person, and the raw figures in a file.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_shared::local::LocalServer;

use super::measure::Spread;
use super::resp::Client;

/// One line of the table.
pub(super) struct Row {
    what: String,
    setting: String,
    unit: String,
    floor: Spread,
    ours: Spread,
}

impl Row {
    pub(super) fn new(
        what: &str,
        setting: &str,
        unit: &str,
        floor: &Spread,
        ours: &Spread,
    ) -> Self {
        Self {
            what: what.to_owned(),
            setting: setting.to_owned(),
            unit: unit.to_owned(),
            floor: floor.clone(),
            ours: ours.clone(),
        }
    }

    fn ratio(&self) -> f64 {
        self.ours.median() / self.floor.median()
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what, "setting": self.setting, "unit": self.unit, "ratio": self.ratio(),
            "floor": self.floor.values(), "tidegate": self.ours.values(),
        })
    }
}

/// The run's tables.
pub(super) struct Report {
    out: PathBuf,
    environment: Value,
    rows: Vec<Value>,
}

impl Report {
    pub(super) fn new(out: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(out)?;
        Ok(Self {
            out: out.to_owned(),
            environment: Value::Null,
            rows: Vec::new(),
        })
    }

    /// Prints where the figures come from.
    pub(super) async fn environment(&mut self, server: &LocalServer) -> anyhow::Result<()> {
        let client = Client::connect(&server.url()).await?;
        let info = client.run(&[b"INFO", b"server"]).await?;
        let version = info
            .text()
            .and_then(|text| text.lines().find_map(|l| l.strip_prefix("redis_version:")))
            .unwrap_or("unknown")
            .trim()
            .to_owned();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let profile = if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        };
        self.environment = json!({
            "cores": cores, "redis": version, "profile": profile, "commit": commit(),
        });
        println!(
            "cores {cores}, Redis {version}, {profile} build, commit {}\n",
            commit()
        );
        println!(
            "| what | setting | unit | floor: median (min–max) | tidegate: median (min–max) | ratio |"
        );
        println!("|---|---|---|---|---|---|");
        Ok(())
    }

    /// Prints a line as soon as it is known.
    pub(super) fn row(&mut self, row: Row) {
        let show = |s: &Spread| {
            format!(
                "{} ({}–{})",
                number(s.median()),
                number(s.min()),
                number(s.max())
            )
        };
        println!(
            "| {} | {} | {} | {} | {} | {:.2} |",
            row.what,
            row.setting,
            row.unit,
            show(&row.floor),
            show(&row.ours),
            row.ratio()
        );
        self.rows.push(row.json());
    }

    /// Keeps the raw figures.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let path = self.out.join("store.json");
        let all = json!({ "environment": self.environment, "rows": self.rows });
        std::fs::write(&path, serde_json::to_string_pretty(&all)?)?;
        eprintln!("raw figures: {}", path.display());
        Ok(())
    }
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// The checkout that was built, where there is git.
fn commit() -> String {
    std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
