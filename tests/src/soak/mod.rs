//! The soak: thousands of jobs by clients with habits of every kind, over real processes, while a nemesis does to them what
//! its seed says. What happened is kept as a [`Record`], and the verdict follows from the record alone: a run that failed
//! is judged again, with the same words, from its files.

mod client;
mod fault;
mod figures;
mod fleet;
mod history;
mod judge;
mod nemesis;
mod observe;
mod random;
mod record;
mod recorder;
mod rest;
mod store_faults;
mod story;
mod submit;
mod tally;
mod windows;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tidegate_loadtest::gpu;
use tidegate_shared::shutdown::Tasks;

use crate::{Clock, Options, Rig};
use client::{Bases, Clients};
use history::History;
use nemesis::{CONCURRENCY, Nemesis};
use recorder::Recorder;
use story::{Story, TENANTS};

pub use fault::{Due, Fault, Role, Step};
pub use figures::Figures;
pub use history::{Asked, Came, Event, Shown};
pub use judge::{Verdict, judge};
pub use record::{Deed, Met, Observed, Plan, Process, Record};
pub use windows::{WINDOWS, Window};

/// Slots of the pool: enough that workers are never idle, few enough that admission is always at its bound.
const SLOTS: u32 = 40;
/// Depth of the pool: below what clients want at times, so that it refuses some.
const MAX_QUEUED: u32 = 200;
/// How often the nemesis looks.
const TICK: Duration = Duration::from_millis(10);
/// What is left over after the last fault is over by then, or it is stuck: leases, back-offs, a few lives.
pub(crate) const QUIET: Duration = Duration::from_secs(90);

/// Runs a plan and keeps what happened in `dir`.
///
/// # Errors
/// Where the record cannot be written.
///
/// # Panics
/// When the rig itself does not start.
pub async fn run(plan: &Plan, dir: &Path) -> io::Result<Record> {
    let record = Record::at(dir)?;
    let schedule = fault::schedule(plan.seed, plan.jobs, plan.faults);
    record.begin(plan, &schedule)?;
    let clock = Clock::shifted(0);
    let mut rig = Rig::start(options(plan, &clock), 2, 4, 2).await;
    rig.proxy.seed(plan.seed);
    let pool = "default".parse().expect("a pool's name");
    let recorder = Recorder::start(&rig.store.url(), pool, record.clone()).await;
    let start = Instant::now();
    let bases: Bases = Bases::default();
    *bases.lock().expect("nobody has it yet") =
        rig.ingress.iter().map(|(_, url)| url.clone()).collect();
    let mut keys = Vec::new();
    for tenant in TENANTS {
        keys.push(rig.mint_key(tenant, &["jobs", "read"]).await);
    }
    let operator = rig.operator.key().to_owned();
    let clients = Clients::new(Arc::clone(&bases), keys, operator, History::new(start));
    let clients = Arc::new(clients);

    let begun = Arc::new(AtomicU32::new(0));
    let tasks = Tasks::new();
    let workload = tasks.spawn(workload(
        plan.clone(),
        Arc::clone(&clients),
        Arc::clone(&begun),
    ));
    let mut nemesis = Nemesis::new(&mut rig, &clients, bases, clock, start);
    torment(plan, schedule, &mut nemesis, &begun, || {
        workload.is_finished()
    })
    .await;
    nemesis.heal_all().await;
    let broken = match workload.await {
        Ok(broken) => broken,
        Err(error) => vec![error.to_string()],
    };
    let mut observed = observe::observe(nemesis, broken).await;
    let deeds = std::mem::take(&mut observed.1);
    let mut observed = observed.0;
    observed.run_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    if let Err(what) = recorder.finish().await {
        observed.stuck = format!("{}{what}", observed.stuck);
    }
    record.end(&deeds, &clients.history.take(), &observed)?;
    Ok(record)
}

fn options(plan: &Plan, clock: &Clock) -> Options {
    Options {
        slots: SLOTS,
        max_queued: MAX_QUEUED,
        concurrency: CONCURRENCY,
        backoff_ms: 100,
        through_proxy: true,
        durability: "audit = true".into(),
        store_env: clock
            .env()
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec(),
        store_settings: vec![
            ("busy-reply-threshold".into(), "50".into()),
            // Its allocator's own thread waits by the wall clock: with one that was stepped back it would never sleep.
            ("jemalloc-bg-thread".into(), "no".into()),
        ],
        gpu: gpu::Config {
            slots: 4_096,
            ..gpu::Config::default()
        },
        weight: plan.weight,
        ..Options::default()
    }
}

/// All stories, so many at once. Gives the panics of the clients themselves.
async fn workload(plan: Plan, clients: Arc<Clients>, begun: Arc<AtomicU32>) -> Vec<String> {
    let room = Arc::new(tokio::sync::Semaphore::new(plan.clients));
    let tasks = Tasks::new();
    let mut stories = Vec::new();
    let mut lull = clients.lull.subscribe();
    for n in 0..plan.jobs {
        // Its sender lives as long as the clients do.
        let _ = lull.wait_for(|lull| !*lull).await;
        let room = Arc::clone(&room).acquire_owned().await;
        let room = room.expect("it is never closed");
        begun.store(n + 1, Ordering::Relaxed);
        let clients = Arc::clone(&clients);
        let story = Story::draw(plan.seed, n, plan.watch_permille);
        stories.push(tasks.spawn(async move {
            clients.live(&story).await;
            drop(room);
        }));
    }
    let mut broken = Vec::new();
    for story in stories {
        if let Err(error) = story.await {
            broken.push(error.to_string());
        }
    }
    broken
}

/// Does the schedule, each fault once so many jobs were begun, until it and the clients are done.
async fn torment(
    plan: &Plan,
    schedule: Vec<Due>,
    nemesis: &mut Nemesis<'_>,
    begun: &AtomicU32,
    clients_done: impl Fn() -> bool,
) {
    let mut schedule = schedule.into_iter().peekable();
    let mut sabotage = plan.sabotage;
    loop {
        nemesis.tend().await;
        let jobs = begun.load(Ordering::Relaxed);
        if sabotage && jobs > plan.jobs / 2 {
            sabotage = !nemesis.sabotage().await;
        }
        match schedule.peek() {
            Some(due) if due.after_jobs <= jobs && nemesis.can_begin(due) => {
                nemesis.begin(due).await;
                schedule.next();
            }
            None if clients_done() => return,
            _ => tokio::time::sleep(TICK).await,
        }
    }
}

/// Where runs keep their records: in the target directory, beside what was built.
pub fn directory() -> PathBuf {
    let profile = crate::binary::profile_dir();
    profile.with_file_name("soak-records")
}
