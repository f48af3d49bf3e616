//! What a record says that was done, by job.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::super::Read;
use crate::domain::JobId;
use crate::domain::step::{Action, Reply};
use crate::protocol::{CancelReply, PurgeReply, RequeueReply, SettleTag, SubmitReply};

/// Effects of a record, gathered entry by entry.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// How often each job was accepted.
    pub(super) accepted: HashMap<JobId, u64>,
    /// The jobs that were accepted under a key.
    pub(super) by_key: HashMap<String, BTreeSet<JobId>>,
    /// Jobs that a cancel met, whatever it found.
    pub(super) cancel_met: HashSet<JobId>,
    /// Jobs that a cancel ended or marked.
    pub(super) cancelled: HashSet<JobId>,
    /// Operations that gave a job a new life.
    pub(super) requeued: HashMap<JobId, BTreeSet<String>>,
    /// Jobs that were purged.
    pub(super) purged: HashSet<JobId>,
    /// What the settles of each delivery were told.
    pub(super) settles: HashMap<(JobId, String), BTreeSet<&'static str>>,
}

/// A settle's tag as a history has it.
fn word(tag: SettleTag) -> &'static str {
    match tag {
        SettleTag::Settled => "settled",
        SettleTag::Cancelled => "cancelled",
        SettleTag::Duplicate => "duplicate",
        SettleTag::Lost => "lost",
    }
}

impl Effects {
    /// Takes one entry, as [`super::super::Replay::feed`] gave it back.
    pub fn note(&mut self, read: &Read) {
        match (&read.command.action, &read.reply) {
            (Action::Submit(step), Reply::Submit(SubmitReply::Accepted)) => {
                *self.accepted.entry(step.id.clone()).or_default() += 1;
                let key = &step.idempotency.key_hash;
                if !key.is_empty() {
                    let jobs = self.by_key.entry(key.clone()).or_default();
                    jobs.insert(step.id.clone());
                }
            }
            (Action::Cancel(step), Reply::Cancel(reply)) => {
                if *reply != CancelReply::Unknown {
                    self.cancel_met.insert(step.id.clone());
                }
                if matches!(reply, CancelReply::Cancelled | CancelReply::Cancelling) {
                    self.cancelled.insert(step.id.clone());
                }
            }
            (Action::Requeue(step), Reply::Requeue(RequeueReply::Requeued)) => {
                let lives = self.requeued.entry(step.id.clone()).or_default();
                lives.insert(step.operation.clone());
            }
            (Action::Purge(step), Reply::Purge(PurgeReply::Purged)) => {
                self.purged.insert(step.id.clone());
            }
            (Action::Settle(step), Reply::Settle(settled)) => {
                let delivery = (step.id.clone(), step.owner.expose().to_owned());
                self.settles
                    .entry(delivery)
                    .or_default()
                    .insert(word(settled.tag));
            }
            _ => {}
        }
    }

    /// Whether a job has had more than one life.
    pub(super) fn lived_again(&self, id: &JobId) -> bool {
        self.requeued.contains_key(id)
    }

    /// Lives that people gave a job.
    pub(super) fn lives(&self, id: &JobId) -> u64 {
        self.requeued.get(id).map_or(0, |lives| lives.len() as u64)
    }
}
