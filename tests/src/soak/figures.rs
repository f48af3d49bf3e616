//! The numbers of runs, each with what it is out of, and the table of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidegate_shared::audit::Replay;

use super::history::{Came, Event};
use super::record::{Deed, Observed, Plan};
use super::windows::WINDOWS;

/// Sums over runs; `peak` members are the largest.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Runs.
    pub seeds: u64,
    /// Jobs that clients set out to submit.
    pub jobs: u64,
    /// Jobs accepted.
    pub accepted: u64,
    /// Accepted and not ended, or not shown.
    pub lost: u64,
    /// Terminals of all lives.
    pub terminals: u64,
    /// Terminals that were shown and never were, or that changed.
    pub duplicate_terminals: u64,
    /// Terminals that clients were shown.
    pub shown: u64,
    /// Writes of deliveries that were not current, refused.
    pub stale_refused: u64,
    /// The same, accepted.
    pub stale_accepted: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Deliveries beyond the slots, or jobs beyond the depth.
    pub over_admitted: u64,
    /// Keys of pools at rest.
    pub keys: u64,
    /// Keys too many, missing, or without an end.
    pub leaked_keys: u64,
    /// Slots taken at rest.
    pub leaked_slots: u64,
    /// Owners and tokens held at rest.
    pub leaked_holds: u64,
    /// Steps recorded, each compared with the reference.
    pub entries: u64,
    /// Steps at which the two parted, or books that did not balance.
    pub conservation_errors: u64,
    /// Calls of clients by what came of them.
    pub calls: u64,
    /// Without an answer, or with one that promises nothing.
    pub unknown: u64,
    /// Calls that the model server saw.
    pub model_calls: u64,
    /// Leases lost.
    pub lapsed: u64,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// Windows by number.
    pub windows: BTreeMap<u8, u64>,
    /// From a worker's death to the loss of each of its leases, in ms, where nothing else was wrong.
    pub recovered_ms: Vec<u64>,
    /// Milliseconds of all runs.
    pub run_ms: u64,
    /// Most milliseconds from the last heal until nothing was owed.
    pub settle_peak_ms: u64,
    /// Most calls at once at the model server.
    pub model_peak: u64,
}

impl Figures {
    pub(crate) fn of(
        plan: &Plan,
        replay: &Replay,
        observed: &Observed,
        deeds: &[Deed],
        history: &[Event],
    ) -> Self {
        let counts = replay.counts();
        let ended = history.iter().filter(|event| event.came != Came::Invoke);
        let mut faults: BTreeMap<String, u64> = BTreeMap::new();
        for deed in deeds.iter().filter(|deed| !deed.over) {
            *faults.entry(deed.fault.kind()).or_default() += 1;
        }
        let held = observed.pool["held_tokens"].as_u64().unwrap_or(0);
        Self {
            seeds: 1,
            jobs: plan.jobs.into(),
            accepted: counts.accepted,
            terminals: counts.ended(),
            shown: history.iter().filter(|event| event.shown.is_some()).count() as u64,
            stale_refused: counts.stale_refused,
            stale_accepted: counts.stale_accepted,
            deliveries: counts.fences,
            keys: observed.keys.values().sum(),
            leaked_slots: observed.pool["slots_used"].as_u64().unwrap_or(0),
            leaked_holds: held + replay.state().owners.len() as u64,
            entries: counts.entries,
            calls: ended.clone().count() as u64,
            unknown: ended.filter(|event| event.came == Came::Unknown).count() as u64,
            model_calls: observed.model_calls,
            lapsed: counts.lapsed,
            faults,
            run_ms: observed.run_ms,
            settle_peak_ms: observed.settle_ms,
            model_peak: observed.model_peak,
            ..Self::default()
        }
    }

    /// The record and the reference parted, at what this says.
    pub(crate) fn parted(&mut self, what: &str) {
        self.conservation_errors += 1;
        self.over_admitted += u64::from(what.contains("I6: ") || what.contains("I8: "));
    }

    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        let sums: [(&mut u64, u64); 20] = [
            (&mut self.seeds, other.seeds),
            (&mut self.jobs, other.jobs),
            (&mut self.accepted, other.accepted),
            (&mut self.lost, other.lost),
            (&mut self.terminals, other.terminals),
            (&mut self.duplicate_terminals, other.duplicate_terminals),
            (&mut self.shown, other.shown),
            (&mut self.stale_refused, other.stale_refused),
            (&mut self.stale_accepted, other.stale_accepted),
            (&mut self.deliveries, other.deliveries),
            (&mut self.over_admitted, other.over_admitted),
            (&mut self.keys, other.keys),
            (&mut self.leaked_keys, other.leaked_keys),
            (&mut self.leaked_slots, other.leaked_slots),
            (&mut self.leaked_holds, other.leaked_holds),
            (&mut self.entries, other.entries),
            (&mut self.conservation_errors, other.conservation_errors),
            (&mut self.calls, other.calls),
            (&mut self.unknown, other.unknown),
            (&mut self.model_calls, other.model_calls),
        ];
        for (sum, more) in sums {
            *sum += more;
        }
        self.lapsed += other.lapsed;
        self.run_ms += other.run_ms;
        self.settle_peak_ms = self.settle_peak_ms.max(other.settle_peak_ms);
        self.model_peak = self.model_peak.max(other.model_peak);
        for (kind, count) in &other.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        for (window, count) in &other.windows {
            *self.windows.entry(*window).or_default() += count;
        }
        self.recovered_ms.extend(&other.recovered_ms);
    }

    /// Faults of all kinds.
    pub fn faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Windows met less often than `least`.
    pub fn missed(&self, least: u64) -> Vec<String> {
        let met = |number| self.windows.get(&number).copied().unwrap_or(0);
        let missed = WINDOWS.iter().filter(|window| met(window.number) < least);
        missed
            .map(|window| {
                format!(
                    "window {} ({}): {} of {least}",
                    window.number,
                    window.name,
                    met(window.number)
                )
            })
            .collect()
    }

    /// The figures as a section of a document.
    pub fn table(&self, commit: &str) -> String {
        let mut out = String::new();
        let seconds = self.run_ms / 1_000;
        let _ = writeln!(
            out,
            "Commit `{commit}`: {} seeds, {} jobs by clients, {} faults, {seconds} s of runs.\n",
            self.seeds,
            self.jobs,
            self.faults()
        );
        out.push_str("| figure | count | out of |\n|---|---|---|\n");
        let rows = [
            (
                "accepted jobs lost",
                self.lost,
                format!("{} accepted", self.accepted),
            ),
            (
                "terminals that changed or came twice",
                self.duplicate_terminals,
                format!("{} terminals, shown {} times", self.terminals, self.shown),
            ),
            (
                "stale writes accepted",
                self.stale_accepted,
                format!(
                    "{} stale writes sent",
                    self.stale_refused + self.stale_accepted
                ),
            ),
            (
                "deliveries over the slots, jobs over the depth",
                self.over_admitted,
                format!("{} deliveries, {} accepted", self.deliveries, self.accepted),
            ),
            (
                "keys leaked",
                self.leaked_keys,
                format!("{} keys at rest", self.keys),
            ),
            (
                "slots leaked",
                self.leaked_slots,
                format!("{} deliveries", self.deliveries),
            ),
            (
                "holds leaked",
                self.leaked_holds,
                format!("{} deliveries", self.deliveries),
            ),
            (
                "errors of conservation",
                self.conservation_errors,
                format!("{} steps replayed", self.entries),
            ),
        ];
        for (figure, count, out_of) in rows {
            let _ = writeln!(out, "| {figure} | {count} | {out_of} |");
        }
        self.further(&mut out);
        self.windows_and_faults(&mut out);
        out
    }

    fn further(&self, out: &mut String) {
        let hundredths = (self.model_calls * 100)
            .checked_div(self.accepted)
            .unwrap_or(0);
        let _ = writeln!(
            out,
            "\n{} of {} calls by clients had no answer, or one that promises nothing. {} leases were lost. The model server saw {}.{:02} calls \
             for each job, {} at once at most. After the last fault everything was over within {} ms.",
            self.unknown,
            self.calls,
            self.lapsed,
            hundredths / 100,
            hundredths % 100,
            self.model_peak,
            self.settle_peak_ms
        );
        let mut sorted = self.recovered_ms.clone();
        sorted.sort_unstable();
        let at = |percent: usize| sorted.get(sorted.len().saturating_sub(1) * percent / 100);
        if let (Some(half), Some(most)) = (at(50), at(100)) {
            let _ = writeln!(
                out,
                "\nFrom a worker's death to the end of each of its {} leases, while store and network were well: {half} ms in the middle, {} ms \
                 at 99 %, {most} ms at most (lease 2,000 ms).",
                sorted.len(),
                at(99).unwrap_or(most)
            );
        }
    }

    fn windows_and_faults(&self, out: &mut String) {
        out.push_str("\n| window of a race | met | counted |\n|---|---|---|\n");
        for window in &WINDOWS {
            let met = self.windows.get(&window.number).copied().unwrap_or(0);
            let _ = writeln!(
                out,
                "| {}. {} | {met} | {} |",
                window.number, window.name, window.counted
            );
        }
        out.push_str("\n| fault | times |\n|---|---|\n");
        for (kind, count) in &self.faults {
            let _ = writeln!(out, "| {kind} | {count} |");
        }
    }
}
