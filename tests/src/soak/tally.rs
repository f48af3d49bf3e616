//! What a store's record shows beyond what its replay counts: how often each window of a race was met, and how soon the
//! jobs of a dead worker went on.

use std::collections::{BTreeMap, HashMap};

use tidegate_shared::audit::{Entry, Read};
use tidegate_shared::domain::step::{Action, Reply, State, pool_now_ms};
use tidegate_shared::domain::{JobId, State as JobState, Verdict};
use tidegate_shared::protocol::{
    AppendReply, Beat, CancelReply, RenewStatus, RequeueReply, SettleTag, SubmitReply,
};

use super::fault::{Fault, Role};
use super::record::Deed;
use super::story::LEASE_MS;

/// Two commands this far apart race for a job, in ms.
const RACE_MS: u64 = 5;
/// How a delivery whose lease lapsed ended.
const LOST: &str = "lost";

/// A command that raced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Racer {
    Cancel,
    Settle,
    Lapse,
}

/// A lease whose worker is dead.
struct Orphan {
    id: String,
    fence: u64,
    killed_raw_ms: u64,
}

/// The counts.
#[derive(Default)]
pub(crate) struct Tally {
    /// By what they count.
    counts: BTreeMap<&'static str, u64>,
    late: BTreeMap<String, u64>,
    /// From the death of a worker to the loss of each of its leases, in ms.
    pub(crate) recovered_ms: Vec<u64>,
    last: HashMap<String, (Racer, u64)>,
    /// Worker ids by the label of their process.
    workers: HashMap<String, String>,
    orphans: Vec<Orphan>,
    last_raw_ms: u64,
    spells: Spells,
}

/// What was going on at an entry, from what the nemesis noted.
#[derive(Default)]
struct Spells {
    deeds: Vec<Deed>,
    next: usize,
    memory_full: bool,
}

/// What of a state an entry may change and a window looks at.
pub(crate) struct Before {
    leases: u64,
    grace_until: u64,
    /// Lives of the job that the command names.
    lives: Option<u64>,
    /// Deliveries whose lease is over: job and fence.
    over: Vec<(String, u64)>,
}

impl Before {
    /// Before `entry`; `named` is the job that it names, where it is a requeue.
    pub(crate) fn of(state: &State, entry: &Entry, named: Option<&JobId>) -> Self {
        let lives = |id: &JobId| Some(state.jobs.get(id.bare())?.lives);
        let sweeps = matches!(entry.step.as_str(), "claim" | "settle" | "expire");
        let now_ms = pool_now_ms(state, entry.raw_ms);
        let over = match sweeps {
            true => state.sets.leases.up_to(now_ms, u64::MAX),
            false => Vec::new(),
        };
        let fence = |id: &str| state.jobs.get(id).map_or(0, |record| record.fence);
        Self {
            leases: state.sets.leases.len(),
            grace_until: state.clock.grace_until,
            lives: named.and_then(lives),
            over: over
                .into_iter()
                .map(|(id, _)| (fence(&id), id))
                .map(|(fence, id)| (id, fence))
                .collect(),
        }
    }
}

/// Whether a delivery still has its lease.
fn still_held(state: &State, id: &str, fence: u64) -> bool {
    let record = state.jobs.get(id);
    record.is_some_and(|record| record.state == JobState::Running && record.fence == fence)
}

/// Whether nothing goes on while it lasts, or times do not count.
fn delays_all(fault: &Fault) -> bool {
    let passes = matches!(
        fault,
        Fault::ScriptFlush | Fault::KillSubscribers | Fault::MemoryFull(_)
    );
    let network = matches!(
        fault,
        Fault::ResetAll | Fault::Refuse(_) | Fault::DelayReplies(..)
    );
    network || (fault.is_of_the_store() && !passes)
}

/// The one job that a command names.
fn named(action: &Action) -> Option<&JobId> {
    match action {
        Action::Submit(step) => Some(&step.id),
        Action::Settle(step) => Some(&step.id),
        Action::Append(step) => Some(&step.id),
        Action::Cancel(step) => Some(&step.id),
        Action::Requeue(step) => Some(&step.id),
        _ => None,
    }
}

impl Tally {
    pub(crate) fn new(deeds: Vec<Deed>) -> Self {
        let deeds = deeds.into_iter().filter(|deed| deed.entry.is_some());
        let mut deeds: Vec<Deed> = deeds.collect();
        deeds.sort_by_key(|deed| deed.entry);
        Self {
            spells: Spells {
                deeds,
                ..Spells::default()
            },
            ..Self::default()
        }
    }

    /// A count.
    pub(crate) fn get(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Commands of a step that came after their deadline.
    pub(crate) fn late(&self, step: &str) -> u64 {
        self.late.get(step).copied().unwrap_or(0)
    }

    fn add(&mut self, what: &'static str, more: u64) {
        *self.counts.entry(what).or_default() += more;
    }

    /// Takes an entry, with the state before and after it.
    pub(crate) fn take(&mut self, entry: &Entry, read: &Read, before: &Before, after: &State) {
        self.turn_to(entry.number, after);
        self.clock(entry, before, after);
        if read.reply == Reply::Late {
            *self.late.entry(entry.step.clone()).or_default() += 1;
        }
        for (id, fence) in &before.over {
            let held = still_held(after, id, *fence);
            let named = named(&read.command.action).is_some_and(|named| named.bare() == id);
            if !held && !named {
                self.add("leases lost", 1);
                self.race(id, Racer::Lapse, entry.raw_ms);
            }
        }
        self.step(entry.raw_ms, read, before, after);
        self.recover(entry.raw_ms, after);
    }

    fn clock(&mut self, entry: &Entry, before: &Before, after: &State) {
        if entry.raw_ms > 0 {
            self.add("steps back", u64::from(entry.raw_ms < self.last_raw_ms));
            self.last_raw_ms = entry.raw_ms;
        }
        if after.clock.grace_until != before.grace_until {
            self.add("graces", 1);
            self.add("graces over live leases", u64::from(before.leases > 0));
        }
    }

    fn step(&mut self, raw_ms: u64, read: &Read, before: &Before, after: &State) {
        match (&read.command.action, &read.reply) {
            (Action::Submit(_), Reply::Submit(SubmitReply::Duplicate(_))) => {
                self.add("submits again", 1);
            }
            (Action::Submit(_), Reply::Submit(SubmitReply::Full { .. })) => self.add("full", 1),
            (Action::Renew(step), Reply::Renew(all)) => {
                let lost = all.iter().filter(|s| **s == RenewStatus::Lost).count() as u64;
                self.add("renewals", all.len() as u64);
                self.add("renewals refused", lost);
                let lapsed = step.items.iter().zip(all).filter(|(item, status)| {
                    let near = self.near(item.id.bare(), raw_ms, LEASE_MS);
                    **status == RenewStatus::Lost && near == Some(Racer::Lapse)
                });
                let lapsed = lapsed.count() as u64;
                self.add("renewals of lapsed leases", lapsed);
            }
            (Action::Append(_), Reply::Append(AppendReply::Lost)) => self.add("appends refused", 1),
            (Action::Append(_), _) => self.add("appends", 1),
            (Action::Cancel(step), Reply::Cancel(reply)) => {
                if *reply == CancelReply::Cancelling {
                    self.add("cancels of running jobs", 1);
                }
                self.race(step.id.bare(), Racer::Cancel, raw_ms);
            }
            (Action::Requeue(_), Reply::Requeue(reply)) => self.requeue(reply, before, after, read),
            (Action::Settle(step), Reply::Settle(settled)) => {
                let bare = step.id.bare().to_owned();
                self.race(&bare, Racer::Settle, raw_ms);
                self.add("settles", 1);
                if self.spells.memory_full && matches!(settled.tag, SettleTag::Settled) {
                    self.add("settled while memory was full", 1);
                }
                match settled.tag {
                    SettleTag::Lost => self.add("settles refused", 1),
                    SettleTag::Duplicate => self.add("settles again", 1),
                    SettleTag::Cancelled => self.add("cancels that beat a settle", 1),
                    SettleTag::Settled if step.verdict == Verdict::Release => {
                        self.add("releases", 1);
                    }
                    SettleTag::Settled => {
                        let record = after.jobs.get(&bare);
                        let ran = record.map_or(0, |r| r.ended_at.saturating_sub(r.claimed_at));
                        self.add("calls longer than a lease", u64::from(ran > LEASE_MS));
                    }
                }
            }
            (Action::Expire(_), Reply::Expire(moved)) => {
                self.add("lapsed by reapers", moved.lapsed);
                self.add("epochs", u64::from(moved.began));
            }
            (Action::Beat(beat), _) => self.name(beat),
            _ => {}
        }
    }

    fn requeue(&mut self, reply: &RequeueReply, before: &Before, after: &State, read: &Read) {
        let lives = named(&read.command.action)
            .and_then(|id| after.jobs.get(id.bare()))
            .map(|record| record.lives);
        match reply {
            RequeueReply::Requeued if lives == before.lives => {
                self.add("requeues again", 1);
            }
            RequeueReply::Requeued => self.add("requeues", 1),
            _ => self.add("requeues refused", 1),
        }
    }

    /// What raced last for a job, if it was within `ms`.
    fn near(&self, id: &str, raw_ms: u64, ms: u64) -> Option<Racer> {
        let (racer, at) = self.last.get(id)?;
        (raw_ms.abs_diff(*at) <= ms).then_some(*racer)
    }

    fn race(&mut self, id: &str, racer: Racer, raw_ms: u64) {
        let other = self.near(id, raw_ms, RACE_MS);
        if other.is_some_and(|other| other != racer) {
            self.add("cancel against settle or lapse", 1);
        }
        self.last.insert(id.to_owned(), (racer, raw_ms));
    }

    /// What the nemesis had done by this entry.
    fn turn_to(&mut self, number: u64, state: &State) {
        while let Some(deed) = self.spells.deeds.get(self.spells.next) {
            if deed.entry.is_none_or(|entry| entry >= number) {
                return;
            }
            let deed = deed.clone();
            self.spells.next += 1;
            if let Fault::MemoryFull(_) = deed.fault {
                self.spells.memory_full = !deed.over;
            }
            // Where the store stands still, its clock steps or nobody reaches it, no time says anything of a worker's death.
            let undisturbed = !delays_all(&deed.fault);
            if !undisturbed {
                self.orphans.clear();
            }
            if matches!(deed.fault, Fault::Kill(Role::Worker)) {
                self.orphan(&deed, state);
            }
        }
    }

    fn orphan(&mut self, deed: &Deed, state: &State) {
        let Some(worker) = self.workers.get(&deed.victim) else {
            return;
        };
        for (id, _) in state.sets.leases.iter() {
            let Some(record) = state.jobs.get(id).filter(|record| record.worker == *worker) else {
                continue;
            };
            self.orphans.push(Orphan {
                id: id.to_owned(),
                fence: record.fence,
                killed_raw_ms: deed.raw_ms,
            });
        }
    }

    fn recover(&mut self, raw_ms: u64, state: &State) {
        let recovered = &mut self.recovered_ms;
        self.orphans.retain(|orphan| {
            let record = state.jobs.get(&orphan.id);
            let handing = record.and_then(|record| record.deliveries.get(&orphan.fence));
            let ended = handing.and_then(|handing| handing.ended);
            // What it had settled in its last moment is no loss.
            if ended.is_some_and(|(_, how)| how == LOST) {
                recovered.push(raw_ms.saturating_sub(orphan.killed_raw_ms));
            }
            handing.is_some() && ended.is_none()
        });
    }

    /// A worker says its name.
    fn name(&mut self, beat: &Beat) {
        let info: serde_json::Value = serde_json::from_str(&beat.info).unwrap_or_default();
        if let Some(name) = info["name"].as_str()
            && !self.workers.contains_key(name)
        {
            let id = beat.worker.as_str().to_owned();
            self.workers.insert(name.to_owned(), id);
        }
    }
}
