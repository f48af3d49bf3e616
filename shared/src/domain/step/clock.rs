//! lua/lib/clock.lua: the pool's time, and which leases are live.

use super::{Settings, State, Turn};

/// Time to reconnect, where the renewal interval is shorter.
const GRACE_FLOOR_MS: u64 = 1000;
/// A gap within a grace spares what that one spared, within so many leases: no dead lease for ever.
const GRACE_LEASES: u64 = 4;

/// The pool's time at one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// The server's clock.
    pub(super) raw: u64,
    /// The pool's clock: never before `last`.
    pub(super) now: u64,
    /// Leases up to here are not live.
    pub(super) lapsed: u64,
    pub(super) grace_from: u64,
    pub(super) grace_until: u64,
    skew: i64,
    last: u64,
}

impl Now {
    /// Reads the clock without keeping it.
    pub(super) fn look(state: &State, raw: u64) -> Self {
        let clock = state.clock;
        let mut at = Self {
            raw,
            now: raw.saturating_add_signed(clock.skew),
            lapsed: 0,
            grace_from: clock.grace_from,
            grace_until: clock.grace_until,
            skew: clock.skew,
            last: clock.last,
        };
        if at.now < at.last {
            at.skew += (at.last - at.now).cast_signed();
            at.now = at.last;
        }
        if let Some(settings) = &state.settings
            && at.last > 0
            && 2 * (at.now - at.last) > settings.lease_ms
        {
            let again = at.last < at.grace_until
                && at.now - at.grace_from <= GRACE_LEASES * settings.lease_ms;
            let from = if again { at.grace_from } else { at.last };
            at.grace(settings, from);
        }
        at.lapsed = if at.now < at.grace_until {
            at.grace_from
        } else {
            at.now
        };
        at
    }

    /// Leases that were live at `from` may be renewed for one more renewal interval.
    fn grace(&mut self, settings: &Settings, from: u64) {
        self.grace_from = from;
        self.grace_until = self.now + settings.renew_ms.max(GRACE_FLOOR_MS);
    }
}

impl Turn {
    /// lua/expire.lua: a new lineage begins an epoch, with a grace. Says whether it did.
    pub(super) fn meet_lineage(&mut self, lineage: &str) -> bool {
        let epoch = &mut self.state.epoch;
        if lineage.is_empty() || lineage == epoch.lineage_before {
            return false;
        }
        let began = !epoch.lineage.is_empty() && epoch.lineage != lineage;
        if began {
            epoch.number += 1;
            epoch.lost_from = epoch.passed_at;
            epoch.lineage_before.clone_from(&epoch.lineage);
            self.at
                .grace(&self.settings, self.at.lapsed.min(self.at.last));
            self.at.lapsed = self.at.grace_from;
        }
        lineage.clone_into(&mut epoch.lineage);
        epoch.passed_at = self.at.now;
        began
    }

    /// Remembers the time that this step acted at.
    pub(super) fn keep_time(&mut self) {
        let clock = &mut self.state.clock;
        clock.last = self.at.now;
        clock.skew = self.at.skew;
        clock.grace_from = self.at.grace_from;
        clock.grace_until = self.at.grace_until;
    }
}

impl State {
    /// Time passes for the pool's clock and for what has a TTL that promises something.
    pub(super) fn jump(&mut self, ms: i64, raw: u64) {
        self.clock.skew += ms;
        let Ok(ahead) = u64::try_from(ms) else {
            return; // a step back of the clock brings no TTL back
        };
        for record in self.idempotency.values_mut() {
            record.until_raw_ms = record.until_raw_ms.saturating_sub(ahead);
        }
        self.idempotency
            .retain(|_, record| record.until_raw_ms > raw);
    }
}
