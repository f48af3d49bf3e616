//! Trouble of the store, classed once.

use crate::domain::PoolName;

/// What kind of trouble the store is in. None of it is a job's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No connection, or it broke.
    Connection,
    /// No answer in time; the command may still run, and refuses by its deadline if it runs too late.
    TimedOut,
    /// The server reads its data from disk.
    Loading,
    /// The server is a replica.
    ReadOnly,
    /// The server has no primary.
    MasterDown,
    /// The cluster does not serve this slot.
    ClusterDown,
    /// The server cannot persist.
    Misconfigured,
    /// Too few replicas are in reach.
    NoReplicas,
    /// The server's memory is full.
    Full,
    /// It is stored, and too few replicas hold it so far: asking again may confirm it.
    Unconfirmed,
    /// A reply answers another command: what became of ours is unknown.
    Mismatched,
    /// A script holds the server.
    Busy,
    /// The server refuses our credentials or this command.
    Denied,
    /// The server does not know a script (any more); the store sends its text.
    NoScript,
    /// A step arrived after its deadline, more than once.
    Late,
    /// Anything else the server said.
    Other,
}

impl Trouble {
    /// Its name, as a metric's label and in `/readyz`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::TimedOut => "timed_out",
            Self::Loading => "loading",
            Self::ReadOnly => "read_only",
            Self::MasterDown => "master_down",
            Self::ClusterDown => "cluster_down",
            Self::Misconfigured => "misconfigured",
            Self::NoReplicas => "no_replicas",
            Self::Full => "full",
            Self::Unconfirmed => "unconfirmed",
            Self::Mismatched => "mismatched",
            Self::Busy => "busy",
            Self::Denied => "denied",
            Self::NoScript => "no_script",
            Self::Late => "late",
            Self::Other => "other",
        }
    }

    /// Whether the same command may succeed within the second: everything that passes by itself.
    pub(super) fn is_brief(self) -> bool {
        !matches!(
            self,
            Self::TimedOut
                | Self::Full
                | Self::Denied
                | Self::Unconfirmed
                | Self::Other
                | Self::Late
        )
    }

    /// Whether the connection that said so must not be used again: it is broken, or leads to a server that cannot serve.
    pub(super) fn retires(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::TimedOut
                | Self::Mismatched
                | Self::ReadOnly
                | Self::MasterDown
                | Self::Loading
        )
    }
}

/// Why a step has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot say. The step may have run, and may be sent again.
    #[error("store unavailable ({}): {detail}", .trouble.as_str())]
    Unavailable {
        /// What kind of trouble.
        trouble: Trouble,
        /// What the server or the connection said.
        detail: String,
    },
    /// There is no such pool.
    #[error("no such pool: {0}")]
    NoPool(PoolName),
    /// The store holds what none of us wrote.
    #[error("the store's data is not as expected: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Whether waiting may help.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    pub(super) fn timed_out(detail: impl Into<String>) -> Self {
        Self::Unavailable {
            trouble: Trouble::TimedOut,
            detail: detail.into(),
        }
    }
}

/// Classes an error of the client library.
pub(super) fn classify(error: &redis::RedisError) -> Trouble {
    use redis::{ErrorKind, ServerErrorKind};
    if error.is_timeout() {
        return Trouble::TimedOut;
    }
    if error.is_io_error() || error.is_connection_dropped() {
        return Trouble::Connection;
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => return Trouble::Denied,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::BusyLoading => return Trouble::Loading,
            ServerErrorKind::ReadOnly => return Trouble::ReadOnly,
            ServerErrorKind::MasterDown => return Trouble::MasterDown,
            ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask => {
                return Trouble::ClusterDown;
            }
            ServerErrorKind::NoScript => return Trouble::NoScript,
            ServerErrorKind::NoPerm => return Trouble::Denied,
            _ => {}
        },
        _ => {}
    }
    let text = error.to_string();
    // Errors inside a script keep their code in the text alone.
    const CODES: [(&str, Trouble); 11] = [
        ("LOADING", Trouble::Loading),
        ("READONLY", Trouble::ReadOnly),
        ("MASTERDOWN", Trouble::MasterDown),
        ("CLUSTERDOWN", Trouble::ClusterDown),
        ("MISCONF", Trouble::Misconfigured),
        ("NOREPLICAS", Trouble::NoReplicas),
        ("OOM", Trouble::Full),
        ("BUSY", Trouble::Busy),
        ("NOPERM", Trouble::Denied),
        ("NOAUTH", Trouble::Denied),
        // Of a command inside a script.
        ("executing the script can't", Trouble::Denied),
    ];
    CODES
        .iter()
        .find(|(code, _)| text.contains(code))
        .map_or(Trouble::Other, |&(_, trouble)| trouble)
}

/// An error of the client library as ours.
pub(super) fn unavailable(error: &redis::RedisError) -> StoreError {
    StoreError::Unavailable {
        trouble: classify(error),
        detail: error.to_string(),
    }
}
