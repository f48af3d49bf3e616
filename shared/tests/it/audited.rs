//! The record of a run: replayed, it says what happened; and where a script does wrong, it says which entry.

use std::cell::RefCell;

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidegate_shared::audit::dump;
use tidegate_shared::audit::{Divergence, Entry, Replay, Wrong, load, save};
use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::{DeadReason, Fence, JobId, Owner, PoolName, Verdict, WorkerId};
use tidegate_shared::protocol::{
    Apply, Cancel, Claim, Idempotency, Read, Renew, RenewItem, Requeue, Settle, Snapshot, Submit,
    base,
};

use crate::program::program;
use crate::rig::Rig;
use crate::run::{Left, Run};
use crate::seen::Seen;

/// Programs of a run: each reads its whole record once more.
const CASES: u32 = 96;
const FAR_MS: u64 = (1 << 53) - 1;

/// Feeds a record; what happened outside any script goes where it was.
fn replay(entries: &[Entry], left: &Left) -> Result<Replay, Box<Divergence>> {
    let mut replay = Replay::new(left.pool.clone());
    let mut outside = left.outside.iter().peekable();
    for fed in 0..=left.scripts {
        while let Some((_, action, raw_ms)) = outside.next_if(|(after, ..)| *after == fed) {
            replay.outside(action.clone(), *raw_ms);
        }
        if let Some(entry) = entries.get(fed as usize) {
            replay.feed(entry)?;
        }
    }
    Ok(replay)
}

#[test]
fn the_record_of_a_run_replays_to_what_the_server_keeps() {
    let workers = [WorkerId::mint(), WorkerId::mint(), WorkerId::mint()];
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let cell = RefCell::new(Rig::start_audited_with(|_, source| source));
    let (mut entries, mut fences, mut refused) = (0, 0, 0);
    let totals = RefCell::new((&mut entries, &mut fences, &mut refused));
    TestRunner::new(config)
        .run(&program(), |program| {
            let mut rig = cell.borrow_mut();
            let left = Run::program(&mut rig, &workers, &program, &mut Seen::new())
                .map_err(TestCaseError::fail)?;
            let record = rig.record(&left.pool);
            if record.len() as u64 != left.scripts {
                let all = (record.len(), left.scripts);
                return Err(TestCaseError::fail(format!(
                    "{all:?}: one entry for each script"
                )));
            }
            let mut replay =
                replay(&record, &left).map_err(|d| TestCaseError::fail(d.to_string()))?;
            replay.look().map_err(TestCaseError::fail)?;
            if *replay.state() != left.state {
                return Err(TestCaseError::fail("the states are not the same"));
            }
            let counts = replay.counts();
            if counts.stale_accepted != 0 || counts.entries != left.scripts {
                return Err(TestCaseError::fail(format!("{counts:?}")));
            }
            let mut totals = totals.borrow_mut();
            *totals.0 += counts.entries;
            *totals.1 += counts.fences;
            *totals.2 += counts.stale_refused;
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(
        entries > 3_000 && fences > 250 && refused > 50,
        "{entries} {fences} {refused}"
    );
}

/// Sends one fixed run, whatever the scripts reply, and gives its record.
fn fixed_run(rig: &mut Rig) -> (PoolName, Vec<Entry>) {
    let pool: PoolName = "gpu".parse().unwrap();
    let ids: Vec<JobId> = (0..3).map(|_| JobId::mint(&pool)).collect();
    let (worker, owner) = (WorkerId::mint(), Owner::mint());
    let config = PoolConfig {
        slots: 1,
        max_queued: 2,
        ..PoolConfig::default()
    };
    rig.send(
        &Apply {
            pool: pool.clone(),
            config,
        },
        FAR_MS,
    );
    for id in &ids {
        rig.send(&submit(id), FAR_MS);
    }
    rig.send(
        &Claim {
            pool: pool.clone(),
            worker,
            owners: vec![owner.clone(), Owner::mint()],
        },
        FAR_MS,
    );
    rig.send(&settle(&ids[0], &Owner::mint()), FAR_MS);
    let item = RenewItem {
        id: ids[0].clone(),
        fence: Fence(1),
        owner: Owner::mint(),
        output_tokens: 1,
    };
    rig.send(
        &Renew {
            pool: pool.clone(),
            default_timeout_ms: 60_000,
            items: vec![item],
        },
        FAR_MS,
    );
    rig.send(
        &Cancel {
            id: ids[0].clone(),
            tenant: None,
        },
        FAR_MS,
    );
    rig.send(&settle(&ids[0], &owner), FAR_MS);
    rig.send(&settle(&ids[0], &owner), FAR_MS);
    rig.send(
        &Requeue {
            id: ids[0].clone(),
            operation: "op".into(),
        },
        FAR_MS,
    );
    let record = rig.record(&pool);
    (pool, record)
}

fn submit(id: &JobId) -> Submit {
    Submit {
        id: id.clone(),
        tenant: "acme".into(),
        class: "default".into(),
        priority: 0,
        delay_ms: 0,
        deadline_ms: 0,
        timeout_ms: 0,
        max_attempts: 3,
        model: String::new(),
        idempotency: Idempotency::default(),
        // No text: a record keeps any bytes.
        envelope: vec![0x00, 0xff, 0xfe, 0x80],
    }
}

fn settle(id: &JobId, owner: &Owner) -> Settle {
    Settle {
        id: id.clone(),
        fence: Fence(1),
        owner: owner.clone(),
        verdict: Verdict::Succeed,
        delay_ms: 0,
        reason: DeadReason::Upstream,
        code: String::new(),
        error: String::new(),
        usage: None,
        content_type: "application/json".into(),
        result: vec![0xff; 70_000],
        next: None,
    }
}

/// Faults that a script may have, and the entry of the fixed run that is the first to show it.
const FAULTS: [(&str, &str, &str, u64); 7] = [
    (
        "a settings' version stands still",
        "'version', 1)",
        "'version', 0)",
        1,
    ),
    (
        "depth has no bound",
        "and owed() >= P.max_queued then",
        "and false then",
        4,
    ),
    ("slots have no bound", "math.min(free, #fresh)", "#fresh", 5),
    (
        "any owner may settle",
        "and job.owner == owner and int(job.fence) == fence",
        "and int(job.fence) == fence",
        6,
    ),
    (
        "any owner may renew",
        "if job[1] == owner and job[2] == fence and",
        "if job[2] == fence and",
        7,
    ),
    (
        "a verdict beats a cancel",
        "tag = job.cancel and 'cancelled' or 'settled'",
        "tag = 'settled'",
        9,
    ),
    (
        "a settle sent again is lost",
        "elseif job and job.settled_by == owner then",
        "elseif false then",
        10,
    ),
];

#[test]
fn a_script_that_does_wrong_is_named_by_the_first_entry_that_shows_it() {
    for (fault, line, instead, first_bad) in FAULTS {
        let mut rig = Rig::start_audited_with(|_, source| source.replace(line, instead));
        let (pool, record) = fixed_run(&mut rig);
        let found = Replay::of(pool.clone(), &record)
            .err()
            .unwrap_or_else(|| panic!("{fault}: not found"));
        assert_eq!(found.number, first_bad, "{fault}: {found}");
        let stale = matches!(&found.wrong, Wrong::Invariant(what) if what.starts_with("I5"));
        assert_eq!(stale, fault.starts_with("any owner"), "{fault}: {found}");
        assert!(
            !found.recent.is_empty(),
            "{fault}: what came before is shown"
        );
    }
}

#[test]
fn a_good_record_replays_to_what_the_server_keeps_and_a_change_behind_its_back_shows() {
    let mut rig = Rig::start_audited_with(|_, source| source);
    let (pool, record) = fixed_run(&mut rig);
    let replay = Replay::of(pool.clone(), &record).unwrap_or_else(|d| panic!("{d}"));
    let raw_ms = record.last().unwrap().raw_ms;
    let reference = dump::of_reference(replay.state());
    let server = rig.dump(&base(&pool));
    assert_eq!(dump::difference(&server, &reference, raw_ms), None);
    let job = replay.state().jobs.keys().next().unwrap().clone();
    let _: i64 = rig.command(&[
        "HSET",
        &format!("{}:job:{job}", base(&pool)),
        "attempts",
        "7",
    ]);
    let server = rig.dump(&base(&pool));
    let report = dump::difference(&server, &reference, raw_ms).unwrap();
    assert!(report.starts_with(&format!("job:{job}\n")), "{report}");
}

#[test]
fn a_lost_entry_is_a_hole() {
    let mut rig = Rig::start_audited_with(|_, source| source);
    let (pool, mut record) = fixed_run(&mut rig);
    record.remove(5);
    let found = Replay::of(pool.clone(), &record).err().unwrap();
    assert_eq!(
        (found.number, found.wrong),
        (7, Wrong::Hole { expected: 6 })
    );
}

#[test]
fn a_saved_record_replays_to_the_same_failure() {
    let fault = FAULTS[3];
    let mut rig = Rig::start_audited_with(|_, source| source.replace(fault.1, fault.2));
    let (pool, record) = fixed_run(&mut rig);
    let first = Replay::of(pool.clone(), &record).err().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("failing.record");
    save(&path, &pool, &record).unwrap();
    let (loaded_pool, loaded) = load(&path).unwrap();
    assert_eq!((&loaded_pool, &loaded), (&pool, &record));
    assert_eq!(Replay::of(loaded_pool, &loaded).err().unwrap(), first);
}

#[test]
fn what_reads_alone_and_what_is_shipped_leave_no_entry() {
    let pool: PoolName = "gpu".parse().unwrap();
    let mut shipped = Rig::start();
    assert_eq!(fixed_run(&mut shipped).1, []);
    let mut rig = Rig::start_audited_with(|_, source| source);
    let (_, record) = fixed_run(&mut rig);
    rig.send(&Snapshot { pool: pool.clone() }, 0);
    let id = JobId::mint(&pool);
    rig.send(&Read { id, tenant: None }, 0);
    assert_eq!(rig.record(&pool), record);
}
