//! `make bench`: the store's lifecycle beside the bare-script floor of the same server, in the same run.
//!
//! A figure counts only with its exact-delivery check: every job submitted is claimed once, settled once and read once,
//! and the store holds nothing owed at the end. Sides alternate (floor, ours, floor, ours, …) and each figure is the
//! median of the repeats with its spread.

mod floor;
mod measure;
mod ours;
mod report;
mod resp;

use std::path::PathBuf;

use anyhow::Context as _;
use tidegate_shared::local::{LocalOptions, LocalServer};

use measure::Spread;
use report::{Report, Row};

/// Bytes of a job's request, as benchmarks.md defines.
pub(crate) const BODY_BYTES: usize = 2048;
/// Bytes of a job's result.
pub(crate) const RESULT_BYTES: usize = 500;

/// Figures of the store against its floor.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Lifecycles in each repeat.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    jobs: u32,
    /// Repeats of each figure.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Single pick-ups measured on an idle pool.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pickups: u32,
    /// Waiting jobs for the memory figure.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    backlog: u32,
    /// Folder for raw results.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
}

/// A private server on a loopback port, as workers would reach it.
fn server(durable: bool) -> anyhow::Result<LocalServer> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    LocalServer::start(LocalOptions {
        durable,
        port: Some(port),
        ..LocalOptions::default()
    })
    .context("starting a private Redis")
}

/// Runs every table and prints them.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let mut report = Report::new(&args.out)?;
    let relaxed = server(false)?;
    report.environment(&relaxed).await?;
    for in_flight in [8, 32, 128] {
        lifecycle(&mut report, &relaxed, "lifecycle", in_flight, &args).await?;
    }
    pickup(&mut report, &relaxed, &args).await?;
    memory(&mut report, &relaxed, &args).await?;
    drop(relaxed);
    let strict = server(true)?;
    lifecycle(
        &mut report,
        &strict,
        "lifecycle, appendfsync always",
        32,
        &args,
    )
    .await?;
    report.finish()
}

/// Lifecycles a second and Redis CPU for each, one job per call.
async fn lifecycle(
    report: &mut Report,
    server: &LocalServer,
    what: &str,
    in_flight: usize,
    args: &Args,
) -> anyhow::Result<()> {
    let (mut floor_rate, mut our_rate) = (Spread::default(), Spread::default());
    let (mut floor_cpu, mut our_cpu) = (Spread::default(), Spread::default());
    for _ in 0..args.repeats {
        let floor = floor::lifecycle(server, in_flight, args.jobs).await?;
        floor_rate.add(floor.per_second());
        floor_cpu.add(floor.redis_cpu_us());
        let ours = ours::lifecycle(server, in_flight, args.jobs).await?;
        our_rate.add(ours.per_second());
        our_cpu.add(ours.redis_cpu_us());
    }
    report.row(Row::new(
        what,
        &format!("{in_flight} in flight"),
        "jobs/s",
        &floor_rate,
        &our_rate,
    ));
    report.row(Row::new(
        what,
        &format!("{in_flight} in flight"),
        "Redis CPU µs/job",
        &floor_cpu,
        &our_cpu,
    ));
    Ok(())
}

/// From submit called to the worker having the job, one job at a time on an idle pool.
async fn pickup(report: &mut Report, server: &LocalServer, args: &Args) -> anyhow::Result<()> {
    let mut figures: [[Spread; 2]; 2] = Default::default();
    for _ in 0..args.repeats {
        let sides = [
            floor::pickup(server, args.pickups).await?,
            ours::pickup(server, args.pickups).await?,
        ];
        for (side, histogram) in sides.iter().enumerate() {
            for (which, quantile) in [0.5, 0.99].into_iter().enumerate() {
                figures[which][side].add(measure::millis(histogram.value_at_quantile(quantile)));
            }
        }
    }
    for (which, name) in ["p50 ms", "p99 ms"].into_iter().enumerate() {
        let [floor, ours] = &figures[which];
        report.row(Row::new(
            "idle pick-up",
            &format!("{} single jobs", args.pickups),
            name,
            floor,
            ours,
        ));
    }
    Ok(())
}

/// Bytes of each waiting job beyond its body.
async fn memory(report: &mut Report, server: &LocalServer, args: &Args) -> anyhow::Result<()> {
    let (mut floor, mut ours) = (Spread::default(), Spread::default());
    floor.add(floor::bytes_per_waiting_job(server, args.backlog).await?);
    ours.add(ours::bytes_per_waiting_job(server, args.backlog).await?);
    report.row(Row::new(
        "memory",
        &format!("{} waiting", args.backlog),
        "bytes/job beyond its body",
        &floor,
        &ours,
    ));
    Ok(())
}
