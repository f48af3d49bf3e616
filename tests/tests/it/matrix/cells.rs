//! The cells: every mutating step, at every moment, under every fault.

use std::fmt;

/// A mutating step, in a form in which it changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    Submit,
    SubmitWithKey,
    Claim,
    Renew,
    SettleSucceed,
    SettleFail,
    SettleDead,
    SettleRetry,
    SettleRelease,
    SettleAndClaim,
    Append,
    Follow,
    CancelWaiting,
    CancelRunning,
    Requeue,
    Purge,
    Expire,
    Beat,
    Apply,
    Pause,
}

impl Row {
    pub(crate) const ALL: [Self; 20] = [
        Self::Submit,
        Self::SubmitWithKey,
        Self::Claim,
        Self::Renew,
        Self::SettleSucceed,
        Self::SettleFail,
        Self::SettleDead,
        Self::SettleRetry,
        Self::SettleRelease,
        Self::SettleAndClaim,
        Self::Append,
        Self::Follow,
        Self::CancelWaiting,
        Self::CancelRunning,
        Self::Requeue,
        Self::Purge,
        Self::Expire,
        Self::Beat,
        Self::Apply,
        Self::Pause,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::SubmitWithKey => "submit with an idempotency key",
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::SettleSucceed => "settle: succeed",
            Self::SettleFail => "settle: fail",
            Self::SettleDead => "settle: dead",
            Self::SettleRetry => "settle: retry",
            Self::SettleRelease => "settle: release",
            Self::SettleAndClaim => "settle and claim the next",
            Self::Append => "append",
            Self::Follow => "follow",
            Self::CancelWaiting => "cancel of a waiting job",
            Self::CancelRunning => "cancel of a running job",
            Self::Requeue => "requeue",
            Self::Purge => "purge",
            Self::Expire => "expire",
            Self::Beat => "beat",
            Self::Apply => "apply",
            Self::Pause => "pause",
        }
    }

    /// The script.
    pub(crate) fn script(self) -> &'static str {
        match self {
            Self::Submit | Self::SubmitWithKey => "submit",
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::SettleSucceed
            | Self::SettleFail
            | Self::SettleDead
            | Self::SettleRetry
            | Self::SettleRelease
            | Self::SettleAndClaim => "settle",
            Self::Append => "append",
            Self::Follow => "follow",
            Self::CancelWaiting | Self::CancelRunning => "cancel",
            Self::Requeue => "requeue",
            Self::Purge => "purge",
            Self::Expire => "expire",
            Self::Beat => "beat",
            Self::Apply => "apply",
            Self::Pause => "pause",
        }
    }

    /// What the script replies where it has its effect, and the caller's first word for it.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Submit | Self::SubmitWithKey => "accepted",
            Self::Claim => "deliveries",
            Self::Renew => "renewed",
            Self::SettleSucceed
            | Self::SettleFail
            | Self::SettleDead
            | Self::SettleRetry
            | Self::SettleRelease
            | Self::SettleAndClaim => "settled",
            Self::Append => "appended",
            Self::Follow => "following",
            Self::CancelWaiting => "cancelled",
            Self::CancelRunning => "cancelling",
            Self::Requeue => "requeued",
            Self::Purge => "purged",
            Self::Expire => "expired",
            Self::Beat => "beaten",
            Self::Apply => "applied",
            Self::Pause => "done",
        }
    }

    /// The caller's word where the effect was there already.
    pub(crate) fn done_before(self) -> &'static str {
        match self {
            Self::SettleSucceed
            | Self::SettleFail
            | Self::SettleDead
            | Self::SettleRetry
            | Self::SettleRelease
            | Self::SettleAndClaim => "duplicate",
            Self::CancelWaiting => "already",
            Self::Purge => "unknown",
            Self::Apply => "unchanged",
            other => other.done(),
        }
    }

    /// Whether a worker sends it about a delivery: where the worker is gone, the lease ends and another takes over.
    /// All others are sent by who has no lease; where they are gone, another sends the very same.
    pub(crate) fn is_worker(self) -> bool {
        matches!(
            self,
            Self::Claim
                | Self::Renew
                | Self::SettleSucceed
                | Self::SettleFail
                | Self::SettleDead
                | Self::SettleRetry
                | Self::SettleRelease
                | Self::SettleAndClaim
                | Self::Append
        )
    }

    /// Whether the script refuses to run after the deadline that its caller gave it. The others may come late: they
    /// say what holds, not what to change.
    pub(crate) fn has_deadline(self) -> bool {
        !matches!(self, Self::Beat | Self::Apply | Self::Pause)
    }
}

/// Where the step is when the fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    BeforeSend,
    Sent,
    Executed,
    AfterReply,
}

impl Moment {
    pub(crate) const ALL: [Self; 4] = [
        Self::BeforeSend,
        Self::Sent,
        Self::Executed,
        Self::AfterReply,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::BeforeSend => "before it is sent",
            Self::Sent => "sent, not executed",
            Self::Executed => "executed, reply not there",
            Self::AfterReply => "after the reply",
        }
    }

    /// Whether the step is on its way, there or back.
    pub(crate) fn in_flight(self) -> bool {
        matches!(self, Self::Sent | Self::Executed)
    }

    /// Whether the step has run.
    pub(crate) fn has_run(self) -> bool {
        matches!(self, Self::Executed | Self::AfterReply)
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    KillCaller,
    PauseCaller,
    Reset,
    Hold,
    KillStore,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [
        Self::KillCaller,
        Self::PauseCaller,
        Self::Reset,
        Self::Hold,
        Self::KillStore,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::KillCaller => "The caller is killed",
            Self::PauseCaller => "The caller is frozen past its lease",
            Self::Reset => "The connection is reset",
            Self::Hold => "The message is held past the time-out",
            Self::KillStore => "Redis is killed and started again",
        }
    }
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) fault: Fault,
    pub(crate) row: Row,
    pub(crate) moment: Moment,
}

impl Cell {
    /// Every cell, those that cannot be among them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Fault::ALL.into_iter().flat_map(|fault| {
            Row::ALL.into_iter().flat_map(move |row| {
                Moment::ALL
                    .into_iter()
                    .map(move |moment| Self { fault, row, moment })
            })
        })
    }

    /// Why the cell cannot be; none where it can.
    pub(crate) fn cannot_be(self) -> Option<&'static str> {
        match (self.fault, self.moment) {
            (Fault::Hold, Moment::BeforeSend) => Some("no message yet; see the next"),
            (Fault::Hold, Moment::AfterReply) => Some("no message any more; see the one before"),
            _ => None,
        }
    }

    /// Whether the cell may end so. Where two ends are possible, the order in which messages arrive decides.
    pub(crate) fn may_end(self, outcome: Outcome) -> bool {
        use Outcome::{NotDone, Once, SentAgain, TakenOver};
        let Self { fault, row, moment } = self;
        let worker_is_gone = matches!(fault, Fault::KillCaller | Fault::PauseCaller);
        let may: &[Outcome] = if worker_is_gone && row.is_worker() {
            match row {
                Row::Claim if moment.has_run() => &[TakenOver],
                Row::Claim if moment == Moment::Sent => &[NotDone, TakenOver],
                Row::Claim => &[NotDone],
                // The lease goes on beyond the step, or a new one begins with it.
                Row::Renew | Row::Append | Row::SettleAndClaim => &[TakenOver],
                _ if moment.has_run() => &[Once, SentAgain],
                // The dead worker's message may still come in time.
                _ if moment == Moment::Sent && fault == Fault::KillCaller => &[Once, TakenOver],
                _ => &[TakenOver],
            }
        } else if fault == Fault::Hold || (fault == Fault::Reset && moment.in_flight()) {
            &[SentAgain]
        } else {
            &[Once, SentAgain]
        };
        may.contains(&outcome)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, row, moment } = self;
        write!(
            f,
            "{} / {} / {}",
            row.label(),
            moment.label(),
            fault.label()
        )
    }
}

/// How a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// At its first sending; nobody had to send it again.
    Once,
    /// It was sent again, by its caller or by another in its place, and took effect once.
    SentAgain,
    /// The lease ended and another worker finished the job; what its first worker said after that was refused.
    TakenOver,
    /// It never ran, or too late to change anything: the job had waited, and another worker had it.
    NotDone,
}

impl Outcome {
    pub(crate) const ALL: [Self; 4] = [Self::Once, Self::SentAgain, Self::TakenOver, Self::NotDone];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::SentAgain => "sent again",
            Self::TakenOver => "taken over",
            Self::NotDone => "not done",
        }
    }
}
