//! What may be done to a running system, and a schedule of it drawn from a seed.

use serde::{Deserialize, Serialize};

use super::random::Random;
use super::story::LEASE_MS;

/// Which stream of numbers schedules are drawn from.
const PURPOSE: u64 = 2;

/// A role that has processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// `tidegate ingress`
    Ingress,
    /// `tidegate worker`
    Worker,
    /// `tidegate reaper`
    Reaper,
}

/// One fault. Lengths are in milliseconds; the victim among a role's processes is drawn with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL, and a new process.
    Kill(Role),
    /// SIGTERM, and a new process.
    Stop(Role),
    /// SIGSTOP, and SIGCONT so much later.
    Freeze(Role, u64),
    /// The store's server is killed and started again so much later.
    StoreKill(u64),
    /// The store's server is frozen for so long.
    StoreFreeze(u64),
    /// Its scripts are forgotten.
    ScriptFlush,
    /// All its connections but those for hints are closed.
    KillClients,
    /// All its connections for hints are closed.
    KillSubscribers,
    /// It answers nobody for so long.
    PauseClients(u64),
    /// Its memory is full for so long.
    MemoryFull(u64),
    /// It wants a replica that is not there for so long.
    NoReplicas(u64),
    /// It is busy with somebody's script for so long.
    Busy(u64),
    /// It is a replica of nobody for so long, then promoted: read-only, and a new replication id afterwards.
    ReadOnly(u64),
    /// Its wall clock steps.
    ClockStep(i64),
    /// The connection of the next replies of a step is cut where the reply should come: the step was done.
    LoseReplies(Step, u32),
    /// The next reply of a step comes so much later, and everything behind it.
    HoldReply(Step, u64),
    /// Replies come so late, for so long.
    DelayReplies(u64, u64),
    /// Every connection is reset.
    ResetAll,
    /// Every connection is reset, and no new one served for so long.
    Refuse(u64),
    /// A request of a step is cut in its middle: the store never has the whole of it.
    CutRequest(Step),
    /// A reply of a step is cut in its middle.
    CutReply(Step),
}

/// A step whose messages the proxy can tell by what is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is the step of its name")]
pub enum Step {
    Submit,
    Claim,
    Renew,
    Settle,
    Cancel,
    Expire,
    Requeue,
}

impl Step {
    /// Every step that faults aim at.
    pub const ALL: [Self; 7] = [
        Self::Submit,
        Self::Claim,
        Self::Renew,
        Self::Settle,
        Self::Cancel,
        Self::Expire,
        Self::Requeue,
    ];

    /// Stands in the reply of a step that did something.
    pub(crate) fn reply(self) -> &'static [u8] {
        match self {
            Self::Submit => b"$8\r\naccepted\r\n",
            Self::Claim => b"$10\r\ndeliveries\r\n",
            Self::Renew => b"$7\r\nrenewed\r\n",
            Self::Settle => b"$7\r\nsettled\r\n",
            Self::Cancel => b"$10\r\ncancelling\r\n",
            Self::Expire => b"$7\r\nexpired\r\n",
            Self::Requeue => b"$8\r\nrequeued\r\n",
        }
    }

    /// The step's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Settle => "settle",
            Self::Cancel => "cancel",
            Self::Expire => "expire",
            Self::Requeue => "requeue",
        }
    }
}

impl Fault {
    /// The kind, as it is counted.
    pub fn kind(&self) -> String {
        let long = |ms: u64| {
            if ms > LEASE_MS {
                "past the lease"
            } else {
                "shortly"
            }
        };
        match self {
            Self::Kill(role) => format!("{}: SIGKILL", role.as_str()),
            Self::Stop(role) => format!("{}: SIGTERM", role.as_str()),
            Self::Freeze(role, ms) => format!("{}: SIGSTOP {}", role.as_str(), long(*ms)),
            Self::StoreKill(_) => "store: SIGKILL and restart".into(),
            Self::StoreFreeze(ms) => format!("store: SIGSTOP {}", long(*ms)),
            Self::ScriptFlush => "store: SCRIPT FLUSH".into(),
            Self::KillClients => "store: CLIENT KILL TYPE normal".into(),
            Self::KillSubscribers => "store: CLIENT KILL TYPE pubsub".into(),
            Self::PauseClients(_) => "store: CLIENT PAUSE".into(),
            Self::MemoryFull(_) => "store: memory full".into(),
            Self::NoReplicas(_) => "store: NOREPLICAS".into(),
            Self::Busy(_) => "store: BUSY".into(),
            Self::ReadOnly(_) => "store: read-only, then promoted".into(),
            Self::ClockStep(ms) if *ms < 0 => "store: clock steps back".into(),
            Self::ClockStep(_) => "store: clock steps forward".into(),
            Self::LoseReplies(step, _) => format!("network: replies of {} lost", step.as_str()),
            Self::HoldReply(step, _) => format!("network: a reply of {} held", step.as_str()),
            Self::DelayReplies(..) => "network: replies late".into(),
            Self::ResetAll => "network: all connections reset".into(),
            Self::Refuse(_) => "network: connections refused".into(),
            Self::CutRequest(_) => "network: a request cut in its middle".into(),
            Self::CutReply(_) => "network: a reply cut in its middle".into(),
        }
    }

    /// Whether it is something of the store's server: one of these at a time.
    pub(crate) fn is_of_the_store(&self) -> bool {
        matches!(
            self,
            Self::StoreKill(_)
                | Self::StoreFreeze(_)
                | Self::ScriptFlush
                | Self::KillClients
                | Self::KillSubscribers
                | Self::PauseClients(_)
                | Self::MemoryFull(_)
                | Self::NoReplicas(_)
                | Self::Busy(_)
                | Self::ReadOnly(_)
                | Self::ClockStep(_)
        )
    }
}

impl Role {
    /// The role's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Worker => "worker",
            Self::Reaper => "reaper",
        }
    }
}

/// A fault and when it is due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Due {
    /// After so many jobs were begun.
    pub after_jobs: u32,
    /// Picks the victim.
    pub victim: u64,
    /// The fault.
    pub fault: Fault,
}

/// What is drawn, each as often as its weight says.
#[derive(Clone, Copy)]
enum Kind {
    Kill(Role),
    Stop(Role),
    FreezeLong(Role),
    FreezeShort(Role),
    StoreKill,
    StoreFreezeShort,
    StoreFreezeLong,
    ScriptFlush,
    KillClients,
    KillSubscribers,
    PauseClients,
    MemoryFull,
    NoReplicas,
    Busy,
    ReadOnly,
    ClockBack,
    ClockForward,
    Lose,
    Hold,
    Delay,
    Reset,
    Refuse,
    CutRequest,
    CutReply,
}

/// Those that stop everything for seconds are rarer, so that jobs still end in between.
const WEIGHTS: [(u64, Kind); 30] = [
    (70, Kind::Kill(Role::Worker)),
    (25, Kind::Kill(Role::Ingress)),
    (15, Kind::Kill(Role::Reaper)),
    (50, Kind::Stop(Role::Worker)),
    (15, Kind::Stop(Role::Ingress)),
    (10, Kind::Stop(Role::Reaper)),
    (60, Kind::FreezeLong(Role::Worker)),
    (45, Kind::FreezeLong(Role::Reaper)),
    (8, Kind::FreezeLong(Role::Ingress)),
    (15, Kind::FreezeShort(Role::Worker)),
    (10, Kind::FreezeShort(Role::Ingress)),
    (10, Kind::FreezeShort(Role::Reaper)),
    (28, Kind::StoreKill),
    (20, Kind::StoreFreezeShort),
    (20, Kind::StoreFreezeLong),
    (40, Kind::ScriptFlush),
    (35, Kind::KillClients),
    (35, Kind::KillSubscribers),
    (20, Kind::PauseClients),
    (30, Kind::MemoryFull),
    (22, Kind::NoReplicas),
    (25, Kind::Busy),
    (28, Kind::ReadOnly),
    (45, Kind::ClockBack),
    (25, Kind::ClockForward),
    (190, Kind::Lose),
    (50, Kind::Hold),
    (25, Kind::Delay),
    (45, Kind::Reset),
    (23, Kind::Refuse),
];
/// As above; drawn with them.
const CUTS: [(u64, Kind); 2] = [(45, Kind::CutRequest), (45, Kind::CutReply)];

/// The faults of a run, in their order.
pub(crate) fn schedule(seed: u64, jobs: u32, faults: u32) -> Vec<Due> {
    let all: Vec<(u64, Kind)> = WEIGHTS.iter().chain(&CUTS).copied().collect();
    (0..faults)
        .map(|n| {
            let mut random = Random::new(seed, PURPOSE, n.into());
            let span = u64::from(jobs) * 1_000 / u64::from(faults.max(1));
            let at = span * u64::from(n) + random.below(span.max(1));
            Due {
                after_jobs: u32::try_from(at / 1_000).unwrap_or(u32::MAX),
                victim: random.below(1 << 20),
                fault: draw(&mut random, &all, n),
            }
        })
        .collect()
}

fn draw(random: &mut Random, all: &[(u64, Kind)], n: u32) -> Fault {
    // Each step in turn, so that none is left to chance.
    let step = Step::ALL[n as usize % Step::ALL.len()];
    match random.pick(all) {
        Kind::Kill(role) => Fault::Kill(role),
        Kind::Stop(role) => Fault::Stop(role),
        Kind::FreezeLong(role) => Fault::Freeze(role, random.between(LEASE_MS + 200, 2 * LEASE_MS)),
        Kind::FreezeShort(role) => Fault::Freeze(role, random.between(50, 1_200)),
        Kind::StoreKill => Fault::StoreKill(random.below(800)),
        Kind::StoreFreezeShort => Fault::StoreFreeze(random.between(50, 900)),
        Kind::StoreFreezeLong => Fault::StoreFreeze(random.between(LEASE_MS + 100, LEASE_MS + 800)),
        Kind::ScriptFlush => Fault::ScriptFlush,
        Kind::KillClients => Fault::KillClients,
        Kind::KillSubscribers => Fault::KillSubscribers,
        Kind::PauseClients => Fault::PauseClients(random.between(100, 700)),
        Kind::MemoryFull => Fault::MemoryFull(random.between(200, 900)),
        Kind::NoReplicas => Fault::NoReplicas(random.between(100, 600)),
        Kind::Busy => Fault::Busy(random.between(200, 700)),
        Kind::ReadOnly => Fault::ReadOnly(random.between(50, 500)),
        Kind::ClockBack => {
            Fault::ClockStep(-i64::try_from(random.between(50, 90_000)).unwrap_or(-1))
        }
        Kind::ClockForward => {
            Fault::ClockStep(i64::try_from(random.between(50, 30_000)).unwrap_or(1))
        }
        Kind::Lose => Fault::LoseReplies(step, u32::try_from(random.between(1, 6)).unwrap_or(1)),
        Kind::Hold => Fault::HoldReply(step, random.between(300, LEASE_MS + 500)),
        Kind::Delay => Fault::DelayReplies(random.between(20, 250), random.between(300, 1_200)),
        Kind::Reset => Fault::ResetAll,
        Kind::Refuse => Fault::Refuse(random.between(50, 800)),
        Kind::CutRequest => Fault::CutRequest(step),
        Kind::CutReply => Fault::CutReply(step),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_schedule_follows_from_its_seed_and_has_every_kind() {
        let one = schedule(3, 20_000, 220);
        assert_eq!(one, schedule(3, 20_000, 220));
        assert_ne!(one, schedule(4, 20_000, 220));
        assert!(one.is_sorted_by_key(|due| due.after_jobs));
        assert!(one.iter().all(|due| due.after_jobs < 20_000));
        let kinds: BTreeSet<String> = (0..25)
            .flat_map(|seed| schedule(seed, 20_000, 220))
            .map(|due| due.fault.kind())
            .collect();
        // 12 of roles, 13 of the store, 7 steps each lost and held, 5 others of the network.
        assert_eq!(kinds.len(), 44, "{kinds:#?}");
    }
}
