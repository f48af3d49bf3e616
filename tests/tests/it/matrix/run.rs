//! One cell: the scene is set, the step brought to its moment, the fault made and healed, the work finished, and
//! everything looked at.

use std::fmt;
use std::time::{Duration, Instant};

use tidegate_shared::domain::{PoolName, Verdict};
use tidegate_tests::{Ask, Direction, Held as Message, LONG, Proxy, SOON, until};

use super::caller::{Answer, Caller};
use super::calm::Calm;
use super::cells::{Cell, Fault, Moment, Outcome, Row};
use super::ending;
use super::lane::Lane;
use super::scene::{self, Scene};
use super::view::{self, View};

/// Command time-out of the caller: well above what a command takes on a busy machine, and waited for in a fifth of all cells.
pub(super) const TIMEOUT_MS: u64 = 300;
/// Lease where a lease has to end within the cell.
const SHORT_LEASE_MS: u64 = 1000;
/// Lease where none may.
const LONG_LEASE_MS: u64 = 20_000;
/// Sendings until a caller whose store is well again must have its reply.
const TRIES: usize = 10;

/// Why a cell gave no outcome.
#[derive(Debug)]
pub(crate) enum Bad {
    /// The machine was too slow for the moment that the cell is about; nothing is known.
    Stalled(String),
    /// Something does not hold.
    Wrong(String),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled(what) => write!(f, "too slow: {what}"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

/// What one run of a cell gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    /// Commands of the caller that reached the server after their deadline, and were refused.
    pub(crate) late: u64,
    /// Writes of deliveries that were over, refused.
    pub(crate) stale: u64,
}

pub(super) fn lease_ms(row: Row, fault: Option<Fault>) -> u64 {
    let ends = match fault {
        Some(Fault::PauseCaller) => true,
        Some(Fault::KillCaller) => row.is_worker(),
        _ => false,
    };
    // The step moves a job whose lease is over.
    if ends || row == Row::Expire {
        SHORT_LEASE_MS
    } else {
        LONG_LEASE_MS
    }
}

pub(super) fn first_word(said: &str) -> &str {
    said.split(' ').next().unwrap_or_default()
}

/// A pool on a cleared server, a caller behind a proxy that knows it, and the scene.
pub(super) async fn set(
    lane: &mut Lane,
    row: Row,
    lease_ms: u64,
) -> ((Scene, Proxy), Caller, Instant) {
    let (name, proxy) = lane.clear().await;
    let pool: PoolName = name.parse().unwrap();
    let config = scene::config(lease_ms);
    lane.store.apply(&pool, &config).await.unwrap();
    let url = format!("redis://{}", proxy.addr());
    let caller = Caller::start(&url, TIMEOUT_MS, &name).await;
    let set_at = Instant::now();
    let scene = Scene::set(&lane.store, &pool, row, lease_ms).await;
    ((scene, proxy), caller, set_at)
}

/// A run of a cell.
pub(super) struct Run<'a> {
    pub(super) lane: &'a mut Lane,
    pub(super) cell: Cell,
    /// Where two orders are possible, every other run takes the second.
    pub(super) second_order: bool,
    pub(super) scene: Scene,
    pub(super) caller: Caller,
    pub(super) proxy: Proxy,
    /// Message that the proxy keeps back.
    pub(super) message: Option<Message>,
    pub(super) calm: &'a Calm,
    /// Whether the step had to be sent again after the fault, by whomever.
    pub(super) sent_again: bool,
}

/// Runs `cell`.
pub(crate) async fn run(
    lane: &mut Lane,
    cell: Cell,
    round: usize,
    calm: &Calm,
) -> Result<Ran, Bad> {
    let lease_ms = lease_ms(cell.row, Some(cell.fault));
    let ((scene, proxy), caller, set_at) = set(lane, cell.row, lease_ms).await;
    let mut run = Run {
        lane,
        cell,
        second_order: (round + cell.row as usize + cell.moment as usize) % 2 == 1,
        scene,
        caller,
        proxy,
        message: None,
        calm,
        sent_again: false,
    };
    match run.all(lease_ms, set_at).await {
        Err(Bad::Wrong(what)) if run.scene.silence_ms() > u128::from(lease_ms / 2) => {
            Err(Bad::Stalled(what))
        }
        ran => ran,
    }
}

impl Run<'_> {
    async fn all(&mut self, lease_ms: u64, set_at: Instant) -> Result<Ran, Bad> {
        let cell = self.cell;
        self.reach_moment().await?;
        let took_ms = set_at.elapsed().as_millis();
        if cell.row != Row::Expire && took_ms > u128::from(lease_ms / 2) {
            return Err(Bad::Stalled(format!("{took_ms} ms to its moment")));
        }
        let outcome = match cell.fault {
            Fault::KillCaller if cell.row.is_worker() => self.kill_worker().await?,
            Fault::KillCaller => self.kill_other().await?,
            Fault::PauseCaller if cell.row.is_worker() => self.freeze_worker().await?,
            Fault::PauseCaller => self.freeze_other(lease_ms).await?,
            Fault::Reset => self.reset().await?,
            Fault::Hold => self.hold().await?,
            Fault::KillStore => self.kill_store(lease_ms).await?,
        };
        let counts = ending::end(self).await?;
        Ok(Ran {
            outcome,
            late: counts.late,
            stale: counts.stale_refused,
        })
    }

    /// Brings the step to its moment, and holds it there.
    async fn reach_moment(&mut self) -> Result<(), Bad> {
        let row = self.cell.row;
        self.looks_like(&self.calm.before, "before anything")
            .await?;
        match self.cell.moment {
            Moment::BeforeSend => {}
            Moment::Sent | Moment::Executed => {
                let mut message = if self.cell.moment == Moment::Sent {
                    self.proxy.hold_next(Direction::Request, b"EVALSHA")
                } else {
                    let tag = format!("${}\r\n{}\r\n", row.done().len(), row.done());
                    self.proxy.hold_next(Direction::Reply, tag.as_bytes())
                };
                self.caller.tell(&self.scene.ask).await;
                message.caught(SOON).await;
                self.message = Some(message);
            }
            Moment::AfterReply => {
                self.caller.tell(&self.scene.ask).await;
                match self.caller.answer().await {
                    Answer::Said(said) if first_word(&said) == row.done() => {}
                    Answer::Said(other) => return Err(Bad::Wrong(format!("it says `{other}`"))),
                    Answer::Trouble(what) => return Err(Bad::Stalled(what)),
                }
            }
        }
        let expected = self.expected();
        self.looks_like(expected, "at the moment").await
    }

    /// What the pool looks like at the moment: the step has run, whole, or it has not.
    fn expected(&self) -> &View {
        if self.cell.moment.has_run() {
            &self.calm.after
        } else {
            &self.calm.before
        }
    }

    pub(super) async fn looks_like(&self, expected: &View, when: &str) -> Result<(), Bad> {
        let Scene {
            store, pool, jobs, ..
        } = &self.scene;
        let seen = view::normal(store, pool, jobs).await;
        match view::difference(expected, &seen).as_str() {
            "" => Ok(()),
            what => Err(Bad::Wrong(format!("{when}:{what}"))),
        }
    }

    /// How many runs of the step's script the record has.
    pub(super) async fn runs(&self) -> usize {
        let (store, pool) = (&self.scene.store, &self.scene.pool);
        let entries = store.audit(pool, 0, ending::ENTRIES).await.unwrap();
        let script = self.cell.row.script();
        entries.iter().filter(|entry| entry.step == script).count()
    }

    /// Lets the message that was kept back go, whoever waits for it. A step arrives.
    pub(super) async fn let_go(&mut self) {
        let Some(message) = self.message.take() else {
            return;
        };
        let before = self.runs().await;
        message.release();
        if self.cell.moment == Moment::Sent {
            until(SOON, "the command that was kept back arrives", async || {
                (self.runs().await > before).then_some(())
            })
            .await;
        }
    }

    /// Reads what the caller says, and has the very same step sent until it is answered.
    async fn answered(&mut self) -> Result<String, Bad> {
        for _ in 0..TRIES {
            if !self.caller.waits() {
                self.caller.tell(&self.scene.ask).await;
            }
            match self.caller.answer().await {
                Answer::Said(said) => return Ok(said),
                Answer::Trouble(_) => self.sent_again = true,
            }
        }
        Err(Bad::Wrong(format!("no reply in {TRIES} tries")))
    }

    /// The caller goes on after a fault: it has its reply in the end, the step was done once, and once more changes nothing.
    pub(super) async fn goes_on(&mut self) -> Result<(), Bad> {
        let row = self.cell.row;
        let said = self.answered().await?;
        let word = first_word(&said);
        let fresh = word == row.done() && self.cell.moment != Moment::AfterReply;
        if !fresh && word != row.done_before() {
            return Err(Bad::Wrong(format!("after the fault it says `{said}`")));
        }
        self.looks_like(&self.calm.after, "after the fault").await?;
        let again = self.answered().await?;
        if first_word(&again) != row.done_before() {
            return Err(Bad::Wrong(format!("sent once more it says `{again}`")));
        }
        self.looks_like(&self.calm.after, "sent once more").await
    }

    pub(super) fn outcome(&self) -> Outcome {
        if self.sent_again {
            Outcome::SentAgain
        } else {
            Outcome::Once
        }
    }

    async fn reset(&mut self) -> Result<Outcome, Bad> {
        self.proxy.reset_all();
        self.message = None;
        // Its store sent it again by itself, or says that it cannot know.
        self.sent_again = self.cell.moment.in_flight();
        self.goes_on().await?;
        Ok(self.outcome())
    }

    async fn hold(&mut self) -> Result<Outcome, Bad> {
        match self.caller.answer().await {
            Answer::Trouble(what) if first_word(&what) == "timed_out" => {}
            other => return Err(Bad::Wrong(format!("its time-out is over: {other:?}"))),
        }
        self.sent_again = true;
        if self.second_order {
            self.goes_on().await?;
            self.let_go().await;
            self.looks_like(&self.calm.after, "after the late message")
                .await?;
        } else {
            self.let_go().await;
            let ran = self.cell.moment.has_run() || !self.cell.row.has_deadline();
            let expected = if ran {
                &self.calm.after
            } else {
                &self.calm.before
            };
            self.looks_like(expected, "after the late message").await?;
            self.goes_on().await?;
        }
        Ok(Outcome::SentAgain)
    }

    async fn kill_store(&mut self, lease_ms: u64) -> Result<Outcome, Bad> {
        let started = Instant::now();
        self.lane.kill();
        self.proxy.reset_all();
        self.message = None;
        self.sent_again = self.cell.moment.in_flight();
        if self.cell.moment == Moment::BeforeSend && self.second_order {
            self.caller.tell(&self.scene.ask).await;
        }
        self.lane.restart().await;
        // A longer absence begins a grace, in which leases do not end: another story than this row's.
        if self.cell.row == Row::Expire && started.elapsed() > Duration::from_millis(lease_ms / 3) {
            return Err(Bad::Stalled("the store was away for long".into()));
        }
        let expected = self.expected();
        if !self.caller.waits() {
            self.looks_like(expected, "after the restart").await?;
        }
        self.goes_on().await?;
        Ok(self.outcome())
    }

    /// A caller without a lease dies: another sends the very same.
    async fn kill_other(&mut self) -> Result<Outcome, Bad> {
        self.caller.kill().await;
        let early = !self.second_order;
        if early {
            self.let_go().await;
        }
        let url = format!("redis://{}", self.proxy.addr());
        let pool = self.scene.pool.to_string();
        self.caller = Caller::start(&url, TIMEOUT_MS, &pool).await;
        self.goes_on().await?;
        if !early {
            self.let_go().await;
            self.looks_like(&self.calm.after, "after the dead caller's message")
                .await?;
        }
        self.sent_again = self.cell.moment != Moment::AfterReply;
        Ok(self.outcome())
    }

    async fn freeze_other(&mut self, lease_ms: u64) -> Result<Outcome, Bad> {
        self.caller.freeze(true).await;
        let over_ms = self.scene.now_ms().await + lease_ms;
        if self.cell.row == Row::Expire {
            self.scene.reap().await;
        }
        until(LONG, "a lease is over", async || {
            (self.scene.now_ms().await > over_ms).then_some(())
        })
        .await;
        self.thaw().await;
        self.sent_again = self.cell.moment == Moment::Sent;
        let first = self.answered().await?;
        let said = self.answered().await?;
        let row = self.cell.row;
        if first_word(&said) != row.done_before() {
            let what = format!("it says `{first}`, and sent once more `{said}`");
            return Err(Bad::Wrong(what));
        }
        self.looks_like(&self.calm.after, "after it woke").await?;
        Ok(self.outcome())
    }

    /// Lets message and caller go, in either order.
    pub(super) async fn thaw(&mut self) {
        if self.second_order {
            self.caller.freeze(false).await;
            self.let_go().await;
        } else {
            self.let_go().await;
            self.caller.freeze(false).await;
        }
    }

    /// Everything that a worker may still say of a delivery that it had.
    pub(super) fn stale_writes(&self) -> Vec<Ask> {
        let Some(held) = &self.scene.held else {
            return Vec::new();
        };
        vec![
            Ask::Renew(held.clone()),
            Ask::Append(held.clone()),
            Ask::Settle {
                held: held.clone(),
                verdict: Verdict::Succeed,
                next: None,
            },
        ]
    }
}
