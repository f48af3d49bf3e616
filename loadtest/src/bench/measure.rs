//! Clocks, CPU and memory, and what is made of them.

use std::time::Duration;

use anyhow::Context as _;

use super::resp::Client;

/// One timed run.
pub(super) struct Figure {
    /// Lifecycles, each checked.
    pub(super) jobs: u32,
    /// Wall time.
    pub(super) took: Duration,
    /// CPU of the Redis process, user and system.
    pub(super) redis_cpu: Duration,
}

impl Figure {
    /// Lifecycles a second.
    pub(super) fn per_second(&self) -> f64 {
        f64::from(self.jobs) / self.took.as_secs_f64()
    }

    /// Redis CPU of one lifecycle, in microseconds.
    pub(super) fn redis_cpu_us(&self) -> f64 {
        self.redis_cpu.as_secs_f64() * 1e6 / f64::from(self.jobs)
    }
}

/// Repeats of one figure.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread(Vec<f64>);

impl Spread {
    pub(super) fn add(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// The middle one; the lower of two.
    pub(super) fn median(&self) -> f64 {
        self.0
            .get((self.0.len().max(1) - 1) / 2)
            .copied()
            .unwrap_or(f64::NAN)
    }

    pub(super) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub(super) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    pub(super) fn values(&self) -> &[f64] {
        &self.0
    }
}

/// CPU that a process has used, from the operating system's accounting (fields 14 and 15 of /proc/PID/stat, proc(5)).
pub(super) fn redis_cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .context("CPU of Redis needs /proc (Linux)")?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|f| f.parse::<u64>().ok())
            .unwrap_or(0)
    };
    // USER_HZ is 100 on every Linux that Rust runs on.
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
}

/// `used_memory` of the server, in bytes.
pub(super) async fn used_memory(client: &Client) -> anyhow::Result<u64> {
    let info = client.run(&[b"INFO", b"memory"]).await?;
    let line = info
        .text()
        .and_then(|text| text.lines().find_map(|l| l.strip_prefix("used_memory:")))
        .context("used_memory")?;
    Ok(line.trim().parse()?)
}

/// `total` over `count`.
#[allow(
    clippy::cast_precision_loss,
    reason = "byte counts of a test are far below 2^53"
)]
pub(super) fn each(total: u64, count: u32) -> f64 {
    total as f64 / f64::from(count)
}

/// Microseconds as milliseconds.
#[allow(
    clippy::cast_precision_loss,
    reason = "latencies are far below 2^53 µs"
)]
pub(super) fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// Whole microseconds.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Bytes that do not compress to nothing and are the same in every run.
pub(super) fn filler(bytes: usize) -> Vec<u8> {
    (b'a'..=b'z').cycle().take(bytes).collect()
}
