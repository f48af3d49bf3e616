//! Does the faults of a schedule to a rig, each when it is due, and undoes those that last.
//!
//! One task alone does it, in short steps, so that nothing it waits for can keep it from thawing what it froze.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use super::client::{Bases, Clients};
use super::fault::{Due, Fault, Role, Step};
use super::record::{Deed, Met};
use crate::proxy::{Fault as Break, Hits, Rule, step};
use crate::{Clock, Proc, Rig};

/// Bytes of a message that still pass where it is cut in its middle.
const CUT_AT: usize = 11;
/// Deliveries that one worker may have.
pub(crate) const CONCURRENCY: u32 = 12;

/// What ends a fault that lasts.
#[derive(Clone, Debug)]
pub(super) enum Heal {
    /// A frozen process goes on.
    Thaw(Role, String),
    /// The store's server starts again.
    StoreUp,
    /// It goes on.
    StoreThaw,
    /// A setting of it gets its first value again.
    Setting(&'static str, &'static str),
    /// It is promoted.
    Promote,
    /// It ends by itself about now.
    Passed,
    /// Replies are no longer late.
    InTime,
    /// Connections are served again.
    Serve,
}

/// The one that does the faults.
pub(crate) struct Nemesis<'a> {
    pub(super) rig: &'a mut Rig,
    pub(super) clients: &'a Clients,
    pub(super) clock: Clock,
    /// How far the store's wall clock is from the true one, in milliseconds.
    pub(super) shift_ms: i64,
    pub(super) deeds: Vec<Deed>,
    pub(super) errors: BTreeMap<String, u64>,
    /// Processes that ended though nobody told them to.
    pub(super) ended: Vec<String>,
    /// Most deliveries that dead and frozen workers may have had at once.
    pub(super) overlap: u64,
    pub(super) bases: Bases,
    start: Instant,
    heals: Vec<(Instant, Fault, Heal)>,
    pub(super) starting: Vec<(Role, Proc, String)>,
    pub(super) frozen: BTreeSet<String>,
    /// Workers killed or thawed of late, whose calls may not be closed yet.
    pub(super) absent: Vec<Instant>,
    hits: Vec<(String, Hits)>,
    /// A fault of the store's server is going on: until it is over it gets no other.
    store_taken: bool,
}

/// After its death or thaw a worker's calls may go on for so long: a lease and its claim by another.
const ABSENT: Duration = Duration::from_secs(4);

impl<'a> Nemesis<'a> {
    pub(crate) fn new(
        rig: &'a mut Rig,
        clients: &'a Clients,
        bases: Bases,
        clock: Clock,
        start: Instant,
    ) -> Self {
        Self {
            rig,
            clients,
            clock,
            shift_ms: 0,
            deeds: Vec::new(),
            errors: BTreeMap::new(),
            ended: Vec::new(),
            overlap: 0,
            bases,
            start,
            heals: Vec::new(),
            starting: Vec::new(),
            frozen: BTreeSet::new(),
            absent: Vec::new(),
            hits: Vec::new(),
            store_taken: false,
        }
    }

    /// Whether a fault can be begun now.
    pub(crate) fn can_begin(&self, due: &Due) -> bool {
        !(self.store_taken && due.fault.is_of_the_store())
    }

    /// One short step: what is due to be undone, what has started, what has ended by itself.
    pub(crate) async fn tend(&mut self) {
        let now = Instant::now();
        while let Some(at) = self.heals.iter().position(|(due, ..)| *due <= now) {
            let (_, fault, heal) = self.heals.remove(at);
            self.heal(fault, heal).await;
        }
        self.take_in_started();
        self.replace_ended();
        self.absent.retain(|at| at.elapsed() < ABSENT);
        let frozen = self
            .rig
            .workers
            .iter()
            .filter(|w| self.frozen.contains(&w.label));
        let workers = frozen.count() + self.absent.len();
        self.overlap = self.overlap.max(workers as u64 * u64::from(CONCURRENCY));
    }

    /// Undoes everything that lasts, and waits until every process that was started is there.
    pub(crate) async fn heal_all(&mut self) {
        for (at, ..) in &mut self.heals {
            *at = Instant::now();
        }
        self.rig.proxy.heal();
        let start = Instant::now();
        while !(self.heals.is_empty() && self.starting.is_empty()) {
            self.tend().await;
            let late = start.elapsed() > crate::LONG;
            assert!(
                !late,
                "not every process is there again: {:?}",
                self.starting
            );
            tokio::time::sleep(super::TICK).await;
        }
        self.count_errors().await;
    }

    /// What the proxy met, by kind.
    pub(crate) fn met(&self) -> Vec<Met> {
        let mut met: BTreeMap<&str, u64> = BTreeMap::new();
        for (kind, hits) in &self.hits {
            *met.entry(kind).or_default() += hits.count() as u64;
        }
        met.into_iter()
            .map(|(kind, count)| Met {
                kind: kind.to_owned(),
                count,
            })
            .collect()
    }

    /// Does a fault.
    pub(crate) async fn begin(&mut self, due: &Due) {
        let fault = &due.fault;
        if fault.is_of_the_store() {
            self.store_taken = true;
        }
        let at = self.deeds.len();
        let deed = self.deed(fault.clone()).await;
        self.deeds.push(deed);
        let (victim, met) = match fault {
            Fault::Kill(role) => (self.end(*role, due.victim, false), 0),
            Fault::Stop(role) => (self.end(*role, due.victim, true), 0),
            Fault::Freeze(role, ms) => (self.freeze(*role, due.victim, *ms, fault), 0),
            _ if fault.is_of_the_store() => (String::new(), self.hurt_store(fault).await),
            _ => {
                self.hurt_network(fault);
                (String::new(), 0)
            }
        };
        (self.deeds[at].victim, self.deeds[at].met) = (victim, met);
    }

    /// A deed at this moment.
    async fn deed(&self, fault: Fault) -> Deed {
        let asked = match self.store_taken && !fault.is_of_the_store() {
            true => None,
            false => Some(self.last_entry().await),
        };
        Deed {
            at_ms: u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
            raw_ms: self.raw_ms(),
            entry: asked.flatten(),
            fault,
            victim: String::new(),
            met: 0,
            over: false,
        }
    }

    /// The store's wall clock.
    fn raw_ms(&self) -> u64 {
        #[expect(
            clippy::disallowed_methods,
            reason = "the store's server reads the same clock, shifted"
        )]
        let now = SystemTime::now();
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let ms = since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        ms.saturating_add_signed(self.shift_ms)
    }

    pub(super) fn after(&mut self, ms: u64, fault: &Fault, heal: Heal) {
        let due = Instant::now() + Duration::from_millis(ms);
        self.heals.push((due, fault.clone(), heal));
    }

    async fn heal(&mut self, fault: Fault, heal: Heal) {
        match &heal {
            Heal::Thaw(role, label) => self.thaw(*role, label),
            Heal::InTime => self.rig.proxy.delay_replies(Duration::ZERO),
            Heal::Serve => self.rig.proxy.refuse(false),
            _ => self.heal_store(&heal).await,
        }
        let of_the_store = fault.is_of_the_store();
        let mut deed = self.deed(fault).await;
        deed.over = true;
        self.deeds.push(deed);
        if of_the_store {
            self.store_taken = false;
        }
    }

    /// The store has no fault any more.
    pub(super) fn release_store(&mut self) {
        self.store_taken = false;
    }

    fn hurt_network(&mut self, fault: &Fault) {
        let proxy = &self.rig.proxy;
        let kind = fault.kind();
        let reply = |of: Step| Rule::reply(step(of.as_str())).holding(of.reply());
        match fault {
            Fault::LoseReplies(of, count) => {
                let rule = reply(*of).times(*count as usize);
                self.hits.push((kind, proxy.inject(rule, Break::Reset)));
            }
            Fault::HoldReply(of, ms) => {
                let late = Break::Late(Duration::from_millis(*ms));
                self.hits.push((kind, proxy.inject(reply(*of), late)));
            }
            Fault::CutReply(of) => {
                self.hits
                    .push((kind, proxy.inject(reply(*of), Break::Cut(CUT_AT))));
            }
            Fault::CutRequest(of) => {
                let rule = Rule::request(step(of.as_str()));
                self.hits
                    .push((kind, proxy.inject(rule, Break::Cut(CUT_AT))));
            }
            Fault::DelayReplies(by, ms) => {
                proxy.delay_replies(Duration::from_millis(*by));
                self.after(*ms, fault, Heal::InTime);
            }
            Fault::ResetAll => proxy.reset_all(),
            Fault::Refuse(ms) => {
                proxy.refuse(true);
                proxy.reset_all();
                self.after(*ms, fault, Heal::Serve);
            }
            _ => {}
        }
    }
}
