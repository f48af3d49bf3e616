//! Random programs: what people, workers, the reaper and the clock may do to a pool, told apart from any id or time, so
//! that a failing one shrinks.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate_shared::domain::{DeadReason, Verdict};

/// When a step refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// Never in this test.
    Far,
    /// A little after the last step.
    Soon,
    /// Before it was sent.
    Past,
}

/// A delivery of the run so far, counted from the newest, or one that is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) back: usize,
    pub(crate) fault: Fault,
}

/// What is wrong with what a worker says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    Owner,
    Fence,
    Job,
}

/// One move of a program.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Submit {
        tenant: usize,
        priority: u8,
        delay_ms: u64,
        deadline_ms: u64,
        timeout_ms: u64,
        max_attempts: u32,
        /// Idempotency key and digest of the body.
        key: Option<(u8, u8)>,
        bytes: usize,
    },
    Claim {
        worker: usize,
        want: usize,
    },
    Renew {
        picks: Vec<Pick>,
        output_tokens: u64,
    },
    Settle {
        pick: Pick,
        verdict: Verdict,
        delay_ms: u64,
        reason: DeadReason,
        has_error: bool,
        usage: Option<(u64, bool)>,
        next: Option<usize>,
    },
    Append {
        pick: Pick,
        first: u64,
        max_bytes: u64,
        pieces: Vec<usize>,
    },
    Follow {
        job: usize,
        tenant: Option<usize>,
    },
    Cancel {
        job: usize,
        tenant: Option<usize>,
    },
    Requeue {
        job: usize,
        operation: u8,
    },
    Purge {
        job: usize,
    },
    Expire {
        limit: u32,
        lineage: &'static str,
    },
    Beat {
        worker: usize,
        gone: bool,
    },
    Apply {
        settings: SettingsChoice,
    },
    Pause {
        paused: Option<bool>,
        draining: Option<bool>,
    },
    TakeMarker,
    Jump {
        ms: i64,
    },
    /// An earlier command, exactly as it was sent; counted from the newest.
    Again {
        back: usize,
    },
}

/// Settings small enough that every bound is met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettingsChoice {
    pub(crate) slots: u32,
    pub(crate) max_lost_leases: u32,
    pub(crate) record_retention_ms: u64,
    pub(crate) idempotency_ms: u64,
    pub(crate) max_dead_letters: u64,
}

/// A move and when its command refuses.
pub(crate) type Line = (Move, Limit);

/// A program starts with its pool's settings, or without a pool.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) settings: Option<SettingsChoice>,
    /// Shrinking takes lines out.
    pub(crate) lines: Vec<Option<Line>>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?}", self.settings)?;
        for (number, line) in self.lines.iter().enumerate() {
            if let Some((one, limit)) = line {
                writeln!(f, "{number}: {one:?} {limit:?}")?;
            }
        }
        Ok(())
    }
}

/// Longer than any TTL that promises something.
pub(crate) const LONG_MS: i64 = 300_000;

fn settings() -> impl Strategy<Value = SettingsChoice> {
    (
        select(vec![2, 3, 2, 3, 2, 3, 2, 3, 0]),
        select(vec![2, 3, 2, 1]),
        select(vec![1_500, 0]),
        select(vec![200_000, 200_000, 0]),
        select(vec![1, 2]),
    )
        .prop_map(
            |(slots, max_lost_leases, record_retention_ms, idempotency_ms, max_dead_letters)| {
                SettingsChoice {
                    slots,
                    max_lost_leases,
                    record_retention_ms,
                    idempotency_ms,
                    max_dead_letters,
                }
            },
        )
}

fn pick() -> impl Strategy<Value = Pick> {
    let fault = prop_oneof![
        12 => Just(Fault::None),
        1 => Just(Fault::Owner),
        1 => Just(Fault::Fence),
        1 => Just(Fault::Job),
    ];
    (select(vec![0, 0, 0, 1, 1, 2, 3, 4]), fault).prop_map(|(back, fault)| Pick { back, fault })
}

fn submit() -> impl Strategy<Value = Move> {
    (
        0..3usize,
        select(vec![0, 0, 5, 9]),
        select(vec![0, 0, 0, 300, 1_200]),
        select(vec![0, 0, 0, 700, 2_500]),
        select(vec![0, 0, 400]),
        1..3u32,
        option::weighted(0.4, (0..3u8, 0..2u8)),
        prop_oneof![10 => 0..120usize, 1 => Just(900)],
    )
        .prop_map(
            |(tenant, priority, delay_ms, deadline_ms, timeout_ms, max_attempts, key, bytes)| {
                Move::Submit {
                    tenant,
                    priority,
                    delay_ms,
                    deadline_ms,
                    timeout_ms,
                    max_attempts,
                    key,
                    bytes,
                }
            },
        )
}

fn settle() -> impl Strategy<Value = Move> {
    (
        pick(),
        prop_oneof![2 => select(Verdict::ALL), 1 => Just(Verdict::Dead)],
        select(vec![0, 250, 900]),
        select(DeadReason::ALL),
        any::<bool>(),
        option::of((0..50u64, any::<bool>())),
        option::of(0..3usize),
    )
        .prop_map(
            |(pick, verdict, delay_ms, reason, has_error, usage, next)| Move::Settle {
                pick,
                verdict,
                delay_ms,
                reason,
                has_error,
                usage,
                next,
            },
        )
}

fn jump() -> impl Strategy<Value = Move> {
    let ms = prop_oneof![
        9 => select(vec![200, 200, 450, 600, 1_100, 1_500]),
        3 => 0..1_500i64,
        2 => -500..0i64,
        1 => Just(LONG_MS),
    ];
    ms.prop_map(|ms| Move::Jump { ms })
}

fn one() -> impl Strategy<Value = Move> {
    let tenant = || option::of(0..3usize);
    let job = || 0..8usize;
    prop_oneof![
        11 => submit(),
        11 => (0..3usize, 1..4usize).prop_map(|(worker, want)| Move::Claim { worker, want }),
        10 => settle(),
        4 => (vec(pick(), 1..4), 0..40u64).prop_map(|(picks, output_tokens)| Move::Renew { picks, output_tokens }),
        3 => (pick(), 1..4u64, 0..60u64, vec(0..30usize, 0..4))
            .prop_map(|(pick, first, max_bytes, pieces)| Move::Append { pick, first, max_bytes, pieces }),
        2 => (0..4usize, tenant()).prop_map(|(job, tenant)| Move::Follow { job, tenant }),
        3 => (0..4usize, tenant()).prop_map(|(job, tenant)| Move::Cancel { job, tenant }),
        4 => (job(), 0..3u8).prop_map(|(job, operation)| Move::Requeue { job, operation }),
        2 => job().prop_map(|job| Move::Purge { job }),
        5 => (1..4u32, select(vec!["", "a", "a", "a", "a", "b", "c"])).prop_map(|(limit, lineage)| Move::Expire { limit, lineage }),
        1 => (0..3usize, any::<bool>()).prop_map(|(worker, gone)| Move::Beat { worker, gone }),
        1 => settings().prop_map(|settings| Move::Apply { settings }),
        1 => (option::weighted(0.2, Just(true)), option::weighted(0.1, Just(true))).prop_map(|(p, d)| Move::Pause {
            paused: p.or(Some(false)),
            draining: d.or(Some(false)),
        }),
        2 => Just(Move::TakeMarker),
        6 => jump(),
        5 => (0..8usize).prop_map(|back| Move::Again { back }),
    ]
}

/// Any program of at least 40 moves.
pub(crate) fn program() -> impl Strategy<Value = Program> {
    let limit = prop_oneof![20 => Just(Limit::Far), 1 => Just(Limit::Soon), 1 => Just(Limit::Past)];
    (
        option::weighted(0.97, settings()),
        vec(option::weighted(0.99, (one(), limit)), 41..80),
    )
        .prop_map(|(settings, lines)| Program { settings, lines })
}
