//! A record, replayed through the reference.

use std::collections::VecDeque;
use std::fmt;

use super::counts::Counts;
use super::invariants;
use super::ledger::{Ledger, Line, deliveries, named};
use super::{Entry, Read};
use crate::domain::PoolName;
use crate::domain::step::{Action, Command, Reply, State, advance, pool_now_ms};

/// The whole state is looked at after so many entries, or as many as there are jobs where these are more: a walk over
/// all jobs then costs each entry the same, however large the pool.
const LOOK_EVERY: u64 = 1000;
/// Entries remembered so that a divergence shows what came before it.
const REMEMBERED: usize = 20_000;
/// Of them shown for one divergence.
const SHOWN: usize = 30;
/// Characters of a command or reply that are shown: bodies are bytes.
const SHOWN_CHARS: usize = 3000;

/// A record that is replayed entry by entry.
pub struct Replay {
    pool: PoolName,
    state: State,
    ledger: Ledger,
    fed: u64,
    looked_at: u64,
    recent: VecDeque<Brief>,
}

/// An entry in short.
struct Brief {
    ids: Vec<String>,
    text: String,
}

/// What was wrong with an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// The entry is not the next one.
    Hole {
        /// The number that the next one has.
        expected: u64,
    },
    /// It is no entry of a step.
    Unreadable(String),
    /// Script and reference answered differently.
    Reply {
        /// The script's.
        server: Box<Reply>,
        /// The reference's.
        reference: Box<Reply>,
    },
    /// They acted at different times of the pool, in ms.
    Time {
        /// The script's.
        server: u64,
        /// The reference's.
        reference: u64,
    },
    /// Both agree, and an invariant does not hold.
    Invariant(String),
}

/// The first entry at which the record parts from the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// Number of the entry.
    pub number: u64,
    /// What was asked; none where it could not be read.
    pub command: Option<Command>,
    /// What was wrong.
    pub wrong: Wrong,
    /// Recent entries about the same jobs, oldest first.
    pub recent: Vec<String>,
}

impl Replay {
    /// A pool that nothing has happened to yet.
    pub fn new(pool: PoolName) -> Self {
        Self {
            pool,
            state: State::default(),
            ledger: Ledger::default(),
            fed: 0,
            looked_at: 0,
            recent: VecDeque::new(),
        }
    }

    /// A whole record, looked at once more at its end.
    ///
    /// # Errors
    /// The first divergence.
    pub fn of<'a>(
        pool: PoolName,
        entries: impl IntoIterator<Item = &'a Entry>,
    ) -> Result<Self, Box<Divergence>> {
        let mut replay = Self::new(pool);
        for entry in entries {
            replay.feed(entry)?;
        }
        match replay.look() {
            Ok(()) => Ok(replay),
            Err(what) => Err(Box::new(Divergence {
                number: replay.fed,
                command: None,
                wrong: Wrong::Invariant(what),
                recent: Vec::new(),
            })),
        }
    }

    /// Takes the next entry. Gives back what it says.
    ///
    /// # Errors
    /// The first divergence; the replay is of no use after it.
    pub fn feed(&mut self, entry: &Entry) -> Result<Read, Box<Divergence>> {
        let expected = self.fed + 1;
        if entry.number != expected {
            return Err(self.diverged(entry, None, Wrong::Hole { expected }));
        }
        let read = entry
            .read(&self.pool)
            .map_err(|what| self.diverged(entry, None, Wrong::Unreadable(what)))?;
        self.fed = entry.number;
        self.ledger.met(&entry.step);
        self.remember(entry, &read);
        match self.apply(entry.raw_ms, &read) {
            Ok(()) => Ok(read),
            Err(wrong) => Err(self.diverged(entry, Some(read.command), wrong)),
        }
    }

    fn apply(&mut self, raw_ms: u64, read: &Read) -> Result<(), Wrong> {
        let reference = pool_now_ms(&self.state, raw_ms);
        let action = &read.command.action;
        let touched = self.ledger.touched(&self.state, action, reference);
        let reply = advance(&mut self.state, &read.command, raw_ms);
        let line = Line {
            action,
            reply: &read.reply,
            raw_ms,
        };
        // The book first: it names a write that should not have been, where the comparison sees two replies.
        let booked = self.ledger.take(&line, touched, &self.state);
        if reply != read.reply {
            let server = Box::new(read.reply.clone());
            return Err(match booked {
                Err(what) if what.starts_with("I5") => Wrong::Invariant(what),
                _ => Wrong::Reply {
                    server,
                    reference: Box::new(reply),
                },
            });
        }
        booked.map_err(Wrong::Invariant)?;
        if let Some(server) = read.now_ms.filter(|now| *now != reference) {
            return Err(Wrong::Time { server, reference });
        }
        let due = self.looked_at + LOOK_EVERY.max(self.state.jobs.len() as u64);
        if self.fed >= due {
            self.look().map_err(Wrong::Invariant)?;
        }
        Ok(())
    }

    /// What happened to the pool outside any step: a worker took the marker, or a test moved the clock.
    pub fn outside(&mut self, action: Action, raw_ms: u64) {
        let command = Command {
            deadline_ms: 0,
            action,
        };
        advance(&mut self.state, &command, raw_ms);
    }

    /// Looks at the whole state: every invariant that it shows, and conservation. Due at the end of a record.
    ///
    /// # Errors
    /// What does not hold.
    pub fn look(&mut self) -> Result<(), String> {
        self.looked_at = self.fed;
        if let Some(broken) = invariants::standing(&self.state) {
            return Err(broken);
        }
        self.ledger.balance(&self.state)
    }

    /// The pool.
    pub fn pool(&self) -> &PoolName {
        &self.pool
    }

    /// The state after the last entry.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What was met so far.
    pub fn counts(&self) -> &Counts {
        &self.ledger.counts
    }

    fn remember(&mut self, entry: &Entry, read: &Read) {
        let handed = deliveries(&read.reply);
        let ids = named(&read.command.action).chain(handed.iter().map(|d| &d.id));
        let brief = Brief {
            ids: ids.map(|id| id.bare().to_owned()).collect(),
            text: brief(entry, read),
        };
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(brief);
    }

    fn diverged(&self, entry: &Entry, command: Option<Command>, wrong: Wrong) -> Box<Divergence> {
        let about: Vec<&str> = match (&command, self.recent.back()) {
            (Some(_), Some(last)) => last.ids.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        };
        let mut recent: Vec<String> = self
            .recent
            .iter()
            .rev()
            .filter(|brief| {
                about.is_empty() || brief.ids.iter().any(|id| about.contains(&id.as_str()))
            })
            .take(SHOWN)
            .map(|brief| brief.text.clone())
            .collect();
        recent.reverse();
        Box::new(Divergence {
            number: entry.number,
            command,
            wrong,
            recent,
        })
    }
}

/// An entry in one line.
fn brief(entry: &Entry, read: &Read) -> String {
    let who = match &read.command.action {
        Action::Claim(step) => format!(
            " by {} for {}",
            step.worker,
            step.owners
                .iter()
                .map(|o| o.expose())
                .collect::<Vec<_>>()
                .join(" ")
        ),
        Action::Settle(step) => format!(
            " {} fence {} owner {} {}",
            step.id.bare(),
            step.fence.0,
            step.owner.expose(),
            step.verdict
        ),
        Action::Append(step) => format!(
            " {} fence {} owner {}",
            step.id.bare(),
            step.fence.0,
            step.owner.expose()
        ),
        action => named(action).map(|id| format!(" {}", id.bare())).collect(),
    };
    let reply = match &read.reply {
        Reply::Settle(settled) => format!("{:?} {:?}", settled.tag, settled.state),
        other if deliveries(other).is_empty() => cut(&format!("{other:?}"), 200),
        _ => String::new(),
    };
    let handed: String = deliveries(&read.reply)
        .iter()
        .map(|d| {
            format!(
                " handed {} fence {} owner {} until {}",
                d.id.bare(),
                d.fence.0,
                d.owner.expose(),
                d.expires_at_ms
            )
        })
        .collect();
    format!(
        "#{} at {} {}{who}: {reply}{handed}",
        entry.number, entry.raw_ms, entry.step
    )
}

fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |what: &dyn fmt::Debug| cut(&format!("{what:?}"), SHOWN_CHARS);
        match &self.command {
            Some(command) => writeln!(f, "entry {}: {}", self.number, shown(command))?,
            None => writeln!(f, "entry {}:", self.number)?,
        }
        match &self.wrong {
            Wrong::Hole { expected } => writeln!(f, "  entry {expected} is missing")?,
            Wrong::Unreadable(what) => writeln!(f, "  it cannot be read: {what}")?,
            Wrong::Reply { server, reference } => {
                writeln!(f, "  server:    {}", shown(server))?;
                writeln!(f, "  reference: {}", shown(reference))?;
            }
            Wrong::Time { server, reference } => {
                writeln!(
                    f,
                    "  the server acted at {server}, the reference at {reference}"
                )?;
            }
            Wrong::Invariant(what) => writeln!(f, "  {what}")?,
        }
        for line in &self.recent {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Divergence {}
