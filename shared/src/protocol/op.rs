//! Identity of one send, which its reply carries back.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Minted for each send and never used twice, not even for the same step sent again. Replies are matched to commands by
/// their order alone; where a client or something on the way loses count, one caller gets another's reply. Several
/// services have shown one customer the data of another that way, so a reply is believed only where it carries this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op(String);

impl Op {
    /// A new one: 32 random bits of the process, so that processes behind one proxy differ, and a count.
    pub fn mint() -> Self {
        static PROCESS: LazyLock<u32> = LazyLock::new(rand::random);
        static SENT: AtomicU64 = AtomicU64::new(0);
        let number = SENT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{:08x}{number:x}", *PROCESS))
    }

    /// The one that a recorded command carried.
    pub fn recorded(text: String) -> Self {
        Self(text)
    }

    /// Its text, the last argument of a step's command.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
