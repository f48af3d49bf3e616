//! What goes wrong with which message.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use tidegate_shared::protocol::script::ALL;
use tokio::sync::watch;

use super::Direction;
use super::frame::arguments;

/// What a message's command is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// Any, and what is no command.
    Anything,
    /// The step of the protocol with this name (the stem of its file in `lua/`), sent by hash or with its text.
    Step(&'static str),
    /// The command with this name, in capitals: `EVALSHA`, `SUBSCRIBE`.
    Command(&'static str),
}

/// The step of the protocol with this name, for a [`Rule`].
///
/// # Panics
/// When there is no such step.
pub fn step(name: &'static str) -> Of {
    let known = ALL.iter().any(|script| script.name == name);
    assert!(known, "no step `{name}` in lua/");
    Of::Step(name)
}

/// What happens to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is lost and the connection reset: of a request the server never hears, of a reply its caller.
    Reset,
    /// So many of its bytes pass, then the connection is reset.
    Cut(usize),
    /// It is lost, and everything behind it in its direction; the connection stays open and silent.
    Silence,
    /// It alone is lost, which no network does: the caller takes the next reply for this one.
    Skip,
    /// It comes so much later, and what is behind it no sooner.
    Late(Duration),
    /// It passes so many bytes at a time, with a pause before each.
    Trickle(usize, Duration),
    /// A request: the server never hears of it, and this is its reply. A reply: this takes its place.
    Answer(Bytes),
}

impl Fault {
    /// An error as the server words it: `READONLY You can't write against a read only replica.`
    pub fn error(text: &str) -> Self {
        Self::Answer(format!("-{text}\r\n").into())
    }

    /// Whether the message does not arrive, or not whole.
    pub(super) fn loses(&self) -> bool {
        matches!(
            self,
            Self::Reset | Self::Cut(_) | Self::Silence | Self::Skip
        )
    }
}

/// Which messages are meant, and what happens to them.
#[derive(Clone, Debug)]
pub struct Rule {
    direction: Direction,
    of: Of,
    holding: Vec<u8>,
    left: usize,
    chance: f64,
}

impl Rule {
    /// Commands on their way to the server; the next one, unless more is said.
    pub fn request(of: Of) -> Self {
        Self::new(Direction::Request, of)
    }

    /// Replies to such commands; the next one, unless more is said.
    pub fn reply(of: Of) -> Self {
        Self::new(Direction::Reply, of)
    }

    pub(super) fn new(direction: Direction, of: Of) -> Self {
        Self {
            direction,
            of,
            holding: Vec::new(),
            left: 1,
            chance: 1.0,
        }
    }

    /// Only messages that contain these bytes.
    #[must_use]
    pub fn holding(mut self, bytes: &[u8]) -> Self {
        self.holding = bytes.to_vec();
        self
    }

    /// So many of them, and then no more.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.left = times;
        self
    }

    /// All of them, until [`super::Proxy::heal`].
    #[must_use]
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }

    /// Each of them with this chance, from 0 to 1, drawn from the proxy's seed.
    #[must_use]
    pub fn chance(mut self, chance: f64) -> Self {
        self.chance = chance;
        self
    }

    /// Whether it means this message; `command` is the one itself, or the one that is answered.
    fn means(&self, direction: Direction, command: Option<&Command>, message: &[u8]) -> bool {
        let of = match (&self.of, command) {
            (Of::Anything, _) => true,
            (_, None) => false,
            (Of::Step(step), Some(command)) => command.step == Some(*step),
            (Of::Command(name), Some(command)) => command.name == name.as_bytes(),
        };
        self.direction == direction && of && contains(message, &self.holding)
    }
}

fn contains(message: &[u8], pattern: &[u8]) -> bool {
    let pattern_found = |window: &[u8]| window == pattern;
    pattern.is_empty() || message.windows(pattern.len()).any(pattern_found)
}

/// What was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// In capitals.
    pub(super) name: Vec<u8>,
    pub(super) step: Option<&'static str>,
}

/// Names of the steps by the hash of their text, as it is in production and as it is where runs are recorded.
static STEPS: LazyLock<HashMap<String, &'static str>> = LazyLock::new(|| {
    let both = |script: &&'static tidegate_shared::protocol::script::Script| {
        let hash = |text: String| sha1_smol::Sha1::from(text).hexdigest();
        let name = script.name;
        [script.source(), script.audited_source()].map(|text| (hash(text), name))
    };
    ALL.iter().flat_map(both).collect()
});

impl Command {
    pub(super) fn read(frame: &Bytes) -> Self {
        let arguments = arguments(frame);
        let name = arguments.first().map(|name| name.to_ascii_uppercase());
        let name = name.unwrap_or_default();
        let script = arguments.get(1);
        let hash = match (&*name, script) {
            (b"EVALSHA", Some(hash)) => String::from_utf8(hash.to_ascii_lowercase()).ok(),
            (b"EVAL", Some(text)) => Some(sha1_smol::Sha1::from(text).hexdigest()),
            _ => None,
        };
        let step = hash.and_then(|hash| STEPS.get(&hash).copied());
        Self { name, step }
    }
}

/// What is done to a message.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// What the rule says.
    Fault(Fault),
    /// It waits, and everything behind it on that connection.
    Hold {
        caught: watch::Sender<usize>,
        open: watch::Receiver<bool>,
    },
}

/// A rule that stands.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) rule: Rule,
    pub(super) deed: Deed,
    pub(super) hits: watch::Sender<usize>,
}

/// How often a rule has been met.
#[derive(Clone, Debug)]
pub struct Hits(pub(super) watch::Receiver<usize>);

impl Hits {
    /// So far.
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until it was met so often.
    ///
    /// # Panics
    /// When it was not within `limit`.
    pub async fn reach(&mut self, count: usize, limit: Duration) {
        let wait = self.0.wait_for(|hits| *hits >= count);
        let reached = matches!(tokio::time::timeout(limit, wait).await, Ok(Ok(_)));
        let seen = self.count();
        assert!(reached, "met {seen} of {count} times within {limit:?}");
    }
}

/// All rules of a proxy, in the order in which they were made.
#[derive(Debug)]
pub(super) struct Rules {
    standing: Vec<Standing>,
    chance: Dice,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            standing: Vec::new(),
            chance: Dice(0),
        }
    }
}

impl Rules {
    pub(super) fn add(&mut self, rule: Rule, deed: Deed) -> Hits {
        let (hits, count) = watch::channel(0);
        self.standing.push(Standing { rule, deed, hits });
        Hits(count)
    }

    pub(super) fn seed(&mut self, seed: u64) {
        self.chance = Dice(seed);
    }

    pub(super) fn clear(&mut self) {
        self.standing.clear();
    }

    /// The first rule that is met decides.
    pub(super) fn judge(
        &mut self,
        direction: Direction,
        command: Option<&Command>,
        message: &[u8],
    ) -> Option<Deed> {
        let chance = &mut self.chance;
        let hit = self.standing.iter().position(|standing| {
            let rule = &standing.rule;
            rule.means(direction, command, message)
                && (rule.chance >= 1.0 || chance.next() < rule.chance)
        })?;
        let standing = &mut self.standing[hit];
        standing.rule.left = standing.rule.left.saturating_sub(1);
        standing.hits.send_modify(|hits| *hits += 1);
        let deed = standing.deed.clone();
        if standing.rule.left == 0 {
            self.standing.remove(hit);
        }
        Some(deed)
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): a seed gives one sequence.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    /// At least 0 and less than 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let upper = u32::try_from((z ^ (z >> 31)) >> 32).expect("32 bits are left");
        f64::from(upper) / 4_294_967_296.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(arguments: &[&str]) -> Bytes {
        let mut frame = format!("*{}\r\n", arguments.len());
        for argument in arguments {
            frame.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
        }
        frame.into()
    }

    #[test]
    fn a_step_is_known_by_hash_and_by_text_recorded_or_not() {
        for script in ALL {
            for text in [script.source(), script.audited_source()] {
                let hash = sha1_smol::Sha1::from(&text).hexdigest();
                let by_hash = Command::read(&frame(&["evalsha", &hash, "1", "tg1:{p}"]));
                let by_text = Command::read(&frame(&["EVAL", &text, "1", "tg1:{p}"]));
                assert_eq!(
                    (by_hash.step, by_text.step),
                    (Some(script.name), Some(script.name))
                );
                assert_eq!(by_hash.name, b"EVALSHA");
            }
        }
        assert_eq!(Command::read(&frame(&["EVAL", "return 1", "0"])).step, None);
    }

    #[test]
    fn the_same_seed_draws_the_same_faults() {
        let draw = |seed| {
            let mut rules = Rules::default();
            rules.seed(seed);
            rules.add(
                Rule::reply(Of::Anything).always().chance(0.05),
                Deed::Fault(Fault::Reset),
            );
            let judged =
                (0..10_000).map(|_| rules.judge(Direction::Reply, None, b"+OK\r\n").is_some());
            judged.collect::<Vec<bool>>()
        };
        let drawn = draw(7);
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
        let faults = drawn.iter().filter(|hit| **hit).count();
        assert!((400..600).contains(&faults), "{faults} of 10000 at 5 %");
    }

    #[test]
    fn a_rule_is_met_as_often_as_it_says() {
        let mut rules = Rules::default();
        let hits = rules.add(
            Rule::request(Of::Command("PING")).holding(b"x").times(2),
            Deed::Fault(Fault::Reset),
        );
        let ping = Command::read(&frame(&["ping"]));
        for (message, met) in [("x", true), ("y", false), ("axb", true), ("x", false)] {
            let judged = rules.judge(Direction::Request, Some(&ping), message.as_bytes());
            assert_eq!(judged.is_some(), met, "{message}");
        }
        assert_eq!(hits.count(), 2);
    }
}
