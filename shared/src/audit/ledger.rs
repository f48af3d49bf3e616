//! A second book beside the reference, kept from the replies alone: who was handed what, and what became of each job.
//! It finds a write that should not have been accepted even where scripts and reference are wrong together.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use super::counts::{Counts, RACE_MS};
use super::invariants::Mark;
use crate::domain::step::{Action, Reply, SCAN, SWEEP, State};
use crate::domain::{Fence, JobId, Owner, State as JobState};
use crate::protocol::{
    AppendReply, ClaimReply, Delivery, PurgeReply, RenewStatus, RequeueReply, SettleTag,
    SubmitReply,
};

/// Jobs whose deadline has come that one claim may meet: what it looks at in each of ten lines.
const OVERDUE: u64 = 10 * (SCAN + 64);
/// Dead letters that make room in one step; where it is more, the book is compared with all jobs.
const EVICTED: u64 = 2 * SWEEP;

/// What is known of one job.
struct Page {
    mark: Mark,
    /// The last delivery.
    fence: u64,
    owner: String,
    /// When it was last asked for, by the server's clock; 0: never.
    cancelled_at: u64,
    settled_at: u64,
    lapsed_at: u64,
}

/// The book.
#[derive(Default)]
pub(super) struct Ledger {
    pages: HashMap<String, Page>,
    owners: HashSet<String>,
    pub(super) counts: Counts,
    last_raw_ms: u64,
    grace_until: u64,
    /// Of the state's counters, at the last entry.
    evicted: u64,
}

/// One entry, as the book takes it.
pub(super) struct Line<'a> {
    pub(super) action: &'a Action,
    pub(super) reply: &'a Reply,
    pub(super) raw_ms: u64,
}

impl Ledger {
    /// Jobs that a command may change, besides those in its reply: those that it names and those whose time is over.
    pub(super) fn touched(&self, state: &State, action: &Action, now_ms: u64) -> Vec<String> {
        let sets = &state.sets;
        let mut ids: Vec<String> = named(action).map(|id| id.bare().to_owned()).collect();
        let (moved, overdue) = match action {
            Action::Claim(_) => (SWEEP, OVERDUE),
            Action::Settle(step) if step.next.is_some() => (SWEEP, OVERDUE),
            Action::Expire(step) => (u64::from(step.limit), u64::from(step.limit)),
            _ => {
                self.may_make_room(state, &mut ids);
                return ids;
            }
        };
        let rows = [
            sets.due.up_to(now_ms, moved),
            sets.leases.up_to(now_ms, moved),
            sets.deadlines.up_to(now_ms, overdue),
        ];
        ids.extend(rows.into_iter().flatten().map(|(id, _)| id));
        if let Action::Expire(_) = action {
            ids.extend(
                sets.ended
                    .up_to(now_ms, moved)
                    .into_iter()
                    .map(|(id, _)| id),
            );
            ids.extend(sets.dead.first(moved));
        }
        self.may_make_room(state, &mut ids);
        ids
    }

    /// Where dead letters are at their bound, the oldest may go.
    fn may_make_room(&self, state: &State, ids: &mut Vec<String>) {
        let most = state.settings.as_ref().map_or(0, |s| s.max_dead_letters);
        if state.sets.dead.len() + EVICTED > most {
            ids.extend(state.sets.dead.first(EVICTED));
        }
    }

    /// Counts an entry of a step.
    pub(super) fn met(&mut self, step: &str) {
        let steps = &mut self.counts.steps;
        match steps.get_mut(step) {
            Some(times) => *times += 1,
            None => {
                steps.insert(step.to_owned(), 1);
            }
        }
    }

    /// Takes one entry: what was replied, and the state that the reference is in now.
    pub(super) fn take(
        &mut self,
        line: &Line<'_>,
        mut touched: Vec<String>,
        state: &State,
    ) -> Result<(), String> {
        let deliveries = deliveries(line.reply);
        touched.extend(deliveries.iter().map(|d| d.id.bare().to_owned()));
        touched.sort_unstable();
        touched.dedup();
        self.count(line);
        // Judged by what was known before the entry.
        self.writes(line)?;
        let evicted = state.counters.evicted - self.evicted;
        self.evicted = state.counters.evicted;
        self.counts.forgotten += evicted;
        self.races(line);
        for id in &touched {
            self.turn_page(id, line, state, evicted > 0)?;
        }
        if evicted > 0 && self.pages.len() > state.jobs.len() {
            let stays = |page: &Page| page.mark.state != JobState::Failed;
            self.pages
                .retain(|id, page| stays(page) || state.jobs.contains_key(id));
        }
        for delivery in &deliveries {
            self.handed(delivery, state)?;
        }
        self.standing(line, &deliveries, state)
    }

    fn count(&mut self, line: &Line<'_>) {
        let counts = &mut self.counts;
        counts.entries += 1;
        counts.steps_back += u64::from(line.raw_ms < self.last_raw_ms && line.raw_ms > 0);
        if line.raw_ms > 0 {
            self.last_raw_ms = line.raw_ms;
        }
        match line.reply {
            Reply::Late => counts.late += 1,
            Reply::Submit(SubmitReply::Accepted) => counts.accepted += 1,
            Reply::Submit(SubmitReply::Duplicate(_)) => counts.submits_again += 1,
            Reply::Settle(settled) => match settled.tag {
                SettleTag::Duplicate => counts.settles_again += 1,
                SettleTag::Lost => counts.stale_refused += 1,
                SettleTag::Settled | SettleTag::Cancelled => {}
            },
            Reply::Renew(all) => {
                let lost = all.iter().filter(|s| **s == RenewStatus::Lost).count();
                counts.stale_refused += lost as u64;
            }
            Reply::Append(AppendReply::Lost) => counts.stale_refused += 1,
            Reply::Purge(PurgeReply::Purged) => counts.forgotten += 1,
            Reply::Expire(moved) => counts.forgotten += moved.records + moved.letters,
            _ => {}
        }
    }

    /// I5: a write that was accepted is one of the job's last delivery, and that one was still running.
    fn writes(&mut self, line: &Line<'_>) -> Result<(), String> {
        for (id, fence, owner) in accepted_writes(line) {
            let current = self.pages.get(id.bare()).is_some_and(|page| {
                page.mark.state == JobState::Running
                    && page.fence == fence.0
                    && page.owner == owner.expose()
            });
            if !current {
                self.counts.stale_accepted += 1;
                return Err(format!("I5: a stale write to {id} was accepted"));
            }
        }
        Ok(())
    }

    /// Compares a job with its page, and writes the new one.
    fn turn_page(
        &mut self,
        id: &str,
        line: &Line<'_>,
        state: &State,
        evicted: bool,
    ) -> Result<(), String> {
        let new = state.jobs.get(id).map(Mark::of);
        let Some(page) = self.pages.get_mut(id) else {
            let Some(mark) = new else { return Ok(()) };
            if !matches!(line.reply, Reply::Submit(SubmitReply::Accepted)) {
                return Err(format!("I1: {id} came from nowhere"));
            }
            let page = Page {
                mark,
                fence: 0,
                owner: String::new(),
                cancelled_at: 0,
                settled_at: 0,
                lapsed_at: 0,
            };
            self.pages.insert(id.to_owned(), page);
            return Ok(());
        };
        if let Some(what) = page.mark.broken_by(new.as_ref(), evicted) {
            return Err(format!("{what}: {id}"));
        }
        let was_owed = !page.mark.state.is_terminal();
        let Some(new) = new else {
            if was_owed {
                // It died and made room at once.
                *self.counts.terminals.entry(JobState::Failed).or_default() += 1;
            }
            self.pages.remove(id);
            return Ok(());
        };
        if was_owed && new.state.is_terminal() {
            *self.counts.terminals.entry(new.state).or_default() += 1;
        }
        let ran = page.mark.state == JobState::Running;
        let settles = matches!(line.action, Action::Settle(step) if step.id.bare() == id);
        if ran && !settles && (new.state != JobState::Running || new.fence > page.fence) {
            page.lapsed_at = line.raw_ms;
        }
        self.counts.requeued += u64::from(new.lives > page.mark.lives);
        page.mark = new;
        Ok(())
    }

    /// I4, I13: a delivery is the last one again, or a new one with a higher fence, and not before its job is due.
    fn handed(&mut self, delivery: &Delivery, state: &State) -> Result<(), String> {
        let id = delivery.id.bare();
        let page = self
            .pages
            .get_mut(id)
            .ok_or_else(|| format!("I1: {id} was handed out and is not there"))?;
        let (fence, owner) = (delivery.fence.0, delivery.owner.expose());
        if (page.fence, page.owner.as_str()) == (fence, owner) {
            self.counts.claims_again += 1;
            return Ok(());
        }
        if fence <= page.fence {
            return Err(format!("I4: fence {fence} of {id} after {}", page.fence));
        }
        self.counts.owners_again += u64::from(!self.owners.insert(owner.to_owned()));
        let due_at = state.jobs.get(id).map_or(0, |record| record.due_at);
        if due_at > delivery.now_ms {
            return Err(format!("I13: {id} was handed out before it was due"));
        }
        self.counts.fences += 1;
        (page.fence, page.owner) = (fence, owner.to_owned());
        Ok(())
    }

    /// I6, I8 where they are cheap: no slot and no depth beyond the bound is given out.
    fn standing(
        &mut self,
        line: &Line<'_>,
        deliveries: &[&Delivery],
        state: &State,
    ) -> Result<(), String> {
        let leases = state.sets.leases.len();
        self.counts.peak_leases = self.counts.peak_leases.max(leases);
        self.counts.lapsed = state.counters.lapsed;
        if state.clock.grace_until != self.grace_until {
            self.grace_until = state.clock.grace_until;
            self.counts.graces += 1;
        }
        if state.owners.len() as u64 != leases {
            return Err("I6: owners are not leases".into());
        }
        let Some(settings) = &state.settings else {
            return Ok(());
        };
        let fresh = deliveries
            .iter()
            .any(|d| d.now_ms + settings.lease_ms == d.expires_at_ms);
        if fresh && leases > settings.slots {
            return Err(format!("I6: {leases} leases of {} slots", settings.slots));
        }
        let more = matches!(
            line.reply,
            Reply::Submit(SubmitReply::Accepted) | Reply::Requeue(RequeueReply::Requeued)
        );
        let (owed, bytes) = (state.sets.owed(), state.counters.bytes);
        if more && (owed > settings.max_queued || bytes > settings.max_queued_bytes) {
            return Err(format!("I8: {owed} jobs of {bytes} bytes are owed"));
        }
        Ok(())
    }

    /// Conservation, and that nothing changed which no command touched. Walks over all jobs.
    pub(super) fn balance(&self, state: &State) -> Result<(), String> {
        for (id, record) in &state.jobs {
            if self
                .pages
                .get(id)
                .is_none_or(|page| page.mark != Mark::of(record))
            {
                return Err(format!("{id} changed, and no command touched it"));
            }
        }
        let (kept, counts) = (state.jobs.len() as u64, &self.counts);
        if self.pages.len() as u64 != kept {
            return Err("I1: a job is gone, and no command touched it".into());
        }
        if counts.accepted != kept + counts.forgotten {
            return Err(format!(
                "conservation: {} accepted, {kept} kept, {} forgotten",
                counts.accepted, counts.forgotten
            ));
        }
        let (begun, owed) = (counts.accepted + counts.requeued, state.sets.owed());
        if begun != counts.ended() + owed {
            return Err(format!(
                "conservation: {begun} lives, {} ended, {owed} owed",
                counts.ended()
            ));
        }
        Ok(())
    }

    /// Counts commands that met within a short time.
    fn races(&mut self, line: &Line<'_>) {
        let near = |at: u64| at > 0 && line.raw_ms.abs_diff(at) <= RACE_MS;
        for id in named(line.action) {
            let Some(page) = self.pages.get_mut(id.bare()) else {
                continue;
            };
            let after_lapse = near(page.lapsed_at);
            match line.action {
                Action::Cancel(_) => {
                    self.counts.settle_then_cancel += u64::from(near(page.settled_at));
                    (page.cancelled_at, page.settled_at) = (line.raw_ms, 0);
                }
                Action::Settle(_) => {
                    self.counts.cancel_then_settle += u64::from(near(page.cancelled_at));
                    (page.settled_at, page.cancelled_at) = (line.raw_ms, 0);
                    self.counts.lapse_then_write += u64::from(after_lapse);
                }
                Action::Renew(_) | Action::Append(_) => {
                    self.counts.lapse_then_write += u64::from(after_lapse);
                }
                _ => {}
            }
        }
    }
}

/// Jobs that a command names.
pub(super) fn named(action: &Action) -> impl Iterator<Item = &JobId> {
    let one = match action {
        Action::Submit(step) => Some(&step.id),
        Action::Settle(step) => Some(&step.id),
        Action::Append(step) => Some(&step.id),
        Action::Follow(step) => Some(&step.id),
        Action::Cancel(step) => Some(&step.id),
        Action::Requeue(step) => Some(&step.id),
        Action::Purge(step) => Some(&step.id),
        _ => None,
    };
    let many = match action {
        Action::Renew(step) => step.items.as_slice(),
        _ => &[],
    };
    one.into_iter().chain(many.iter().map(|item| &item.id))
}

/// Deliveries that a reply hands out.
pub(super) fn deliveries(reply: &Reply) -> Vec<&Delivery> {
    match reply {
        Reply::Claim(ClaimReply::Deliveries(all)) => all.iter().collect(),
        Reply::Settle(settled) => settled.next.iter().collect(),
        _ => Vec::new(),
    }
}

/// Writes of deliveries that were accepted.
fn accepted_writes<'a>(line: &Line<'a>) -> Vec<(&'a JobId, Fence, &'a Owner)> {
    match (line.action, line.reply) {
        (Action::Settle(step), Reply::Settle(settled)) => match settled.tag {
            SettleTag::Settled | SettleTag::Cancelled => vec![(&step.id, step.fence, &step.owner)],
            SettleTag::Duplicate | SettleTag::Lost => Vec::new(),
        },
        (Action::Append(step), Reply::Append(AppendReply::Appended)) => {
            vec![(&step.id, step.fence, &step.owner)]
        }
        (Action::Renew(step), Reply::Renew(all)) => step
            .items
            .iter()
            .zip(all)
            .filter(|(_, status)| **status != RenewStatus::Lost)
            .map(|(item, _)| (&item.id, item.fence, &item.owner))
            .collect(),
        _ => Vec::new(),
    }
}
