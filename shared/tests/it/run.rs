//! Runs a program on the server and on the reference, and compares reply and whole state after every command.

use tidegate_shared::audit::dump::{self, Content, Dump};
use tidegate_shared::audit::invariants;
use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::step::{Action, Command, Reply, State, step};
use tidegate_shared::domain::{Fence, JobId, Owner, PoolName, Usage, WorkerId};
use tidegate_shared::protocol::{
    Append, Apply, Beat, Cancel, Claim, ClaimReply, Delivery, Expire, Follow, Idempotency,
    NextClaim, Outcome, Pause, Purge, Renew, RenewItem, Requeue, Settle, Step, Submit, base,
};

use crate::program::{Fault, Limit, Move, Pick, Program, SettingsChoice};
use crate::rig::Rig;
use crate::seen::{Seen, note};

const FAR_MS: u64 = (1 << 53) - 1;
const TENANTS: [&str; 3] = ["acme", "globex", "initech"];

/// One program's run.
pub(crate) struct Run<'a> {
    rig: &'a mut Rig,
    pool: PoolName,
    workers: &'a [WorkerId],
    state: State,
    deliveries: Vec<(JobId, Fence, Owner)>,
    sent: Vec<Command>,
    minted: u64,
    /// The server's clock at the last step.
    raw_ms: u64,
    /// Scripts run so far, and behind how many of them something happened outside any script, and when.
    scripts: u64,
    outside: Vec<(u64, Action, u64)>,
}

/// What a program left: the pool's state, and what its scripts cannot have recorded.
pub(crate) struct Left {
    pub(crate) pool: PoolName,
    pub(crate) state: State,
    pub(crate) scripts: u64,
    pub(crate) outside: Vec<(u64, Action, u64)>,
}

impl<'a> Run<'a> {
    /// Runs the whole program on an empty server.
    pub(crate) fn program(
        rig: &'a mut Rig,
        workers: &'a [WorkerId],
        program: &Program,
        seen: &mut Seen,
    ) -> Result<Left, String> {
        let () = rig.command(&["FLUSHALL"]);
        let mut run = Self {
            rig,
            pool: "gpu".parse().unwrap(),
            workers,
            state: State::default(),
            deliveries: Vec::new(),
            sent: Vec::new(),
            minted: 0,
            raw_ms: 0,
            scripts: 0,
            outside: Vec::new(),
        };
        if let Some(settings) = program.settings {
            run.one(&Move::Apply { settings }, Limit::Far, seen)?;
        }
        for (number, line) in program.lines.iter().enumerate() {
            let Some((one, limit)) = line else { continue };
            run.one(one, *limit, seen)
                .map_err(|e| format!("after command {number}, {one:?}:\n{e}"))?;
        }
        Ok(Left {
            pool: run.pool,
            state: run.state,
            scripts: run.scripts,
            outside: run.outside,
        })
    }

    fn one(&mut self, one: &Move, limit: Limit, seen: &mut Seen) -> Result<(), String> {
        let Some(command) = self.command(one, limit) else {
            return Ok(());
        };
        let (now_ms, reply) = self.send(&command)?;
        let (server, raw_ms) = self.dump(now_ms);
        match &command.action {
            Action::TakeMarker | Action::Jump { .. } => {
                self.outside
                    .push((self.scripts, command.action.clone(), raw_ms));
            }
            _ => self.scripts += 1,
        }
        let (state, expected) = step(&self.state, &command, raw_ms);
        note(&expected, &self.state, &state, seen);
        if reply != expected {
            return Err(format!(
                "{command:?}\n  server:    {reply:?}\n  reference: {expected:?}"
            ));
        }
        if let Some(report) = dump::difference(&server, &dump::of_reference(&state), raw_ms) {
            return Err(format!(
                "{command:?}\nreplied {reply:?} at {now_ms:?}\n{report}"
            ));
        }
        if let Some(broken) = invariants::broken(&self.state, &state) {
            return Err(format!(
                "{command:?}\nreplied {reply:?} at {now_ms:?}\n{broken}"
            ));
        }
        self.state = state;
        self.remember(&command, &reply);
        Ok(())
    }

    /// Everything the server keeps, and its clock at the step, worked out from the pool's: a step that met a clock that
    /// went back changed the difference of the two.
    fn dump(&mut self, now_ms: Option<u64>) -> (Dump, u64) {
        let dump = self.rig.dump(&base(&self.pool));
        if let Some(now_ms) = now_ms {
            let skew: i64 = match dump.content("state") {
                Some(Content::Fields(fields)) => {
                    fields.get("skew").map_or(0, |v| v.parse().unwrap())
                }
                _ => 0,
            };
            self.raw_ms = now_ms.saturating_add_signed(-skew);
        }
        (dump, self.raw_ms)
    }

    fn remember(&mut self, command: &Command, reply: &Reply) {
        let all: Vec<&Delivery> = match reply {
            Reply::Claim(ClaimReply::Deliveries(all)) => all.iter().collect(),
            Reply::Settle(settled) => settled.next.iter().collect(),
            _ => Vec::new(),
        };
        for one in all {
            let handed = (one.id.clone(), one.fence, one.owner.clone());
            if !self.deliveries.contains(&handed) {
                self.deliveries.push(handed);
            }
        }
        self.sent.push(command.clone());
    }

    fn command(&mut self, one: &Move, limit: Limit) -> Option<Command> {
        if let Move::Again { back } = one {
            let place = self.sent.len().checked_sub(back + 1)?;
            // Time does not pass the same way twice.
            return Some(self.sent[place].clone())
                .filter(|c| !matches!(c.action, Action::Jump { .. }));
        }
        let deadline_ms = match limit {
            Limit::Far => FAR_MS,
            Limit::Soon => self.state.clock.last + 300,
            Limit::Past => self.state.clock.last.saturating_sub(1),
        };
        let action = self.action(one)?;
        Some(Command {
            deadline_ms,
            action,
        })
    }

    fn action(&mut self, one: &Move) -> Option<Action> {
        let pool = self.pool.clone();
        Some(match one {
            Move::Submit { .. } => Action::Submit(self.submit(one)?),
            Move::Settle { .. } => Action::Settle(self.settle(one)?),
            Move::Claim { worker, want } => Action::Claim(Claim {
                pool,
                worker: self.workers[*worker].clone(),
                owners: (0..*want).map(|_| self.owner()).collect(),
            }),
            Move::Renew {
                picks,
                output_tokens,
            } => {
                let picked: Option<Vec<_>> = picks.iter().map(|pick| self.pick(*pick)).collect();
                let items = picked?
                    .into_iter()
                    .map(|(id, fence, owner)| RenewItem {
                        id,
                        fence,
                        owner,
                        output_tokens: *output_tokens,
                    })
                    .collect();
                Action::Renew(Renew {
                    pool,
                    default_timeout_ms: 1_500,
                    items,
                })
            }
            Move::Append {
                pick,
                first,
                max_bytes,
                pieces,
            } => {
                let (id, fence, owner) = self.pick(*pick)?;
                Action::Append(Append {
                    id,
                    fence,
                    owner,
                    first: *first,
                    max_bytes: *max_bytes,
                    pieces: pieces.iter().map(|&len| vec![b'x'; len]).collect(),
                })
            }
            Move::Follow { job, tenant } => Action::Follow(Follow {
                id: self.job(*job),
                tenant: tenant.map(|t| TENANTS[t].to_owned()),
            }),
            Move::Cancel { job, tenant } => Action::Cancel(Cancel {
                id: self.job(*job),
                tenant: tenant.map(|t| TENANTS[t].to_owned()),
            }),
            Move::Requeue { job, operation } => Action::Requeue(Requeue {
                id: self.letter(*job),
                operation: format!("op{operation}"),
            }),
            Move::Purge { job } => Action::Purge(Purge {
                id: self.letter(*job),
            }),
            Move::Expire { limit, lineage } => Action::Expire(Expire {
                pool,
                limit: *limit,
                lineage: (*lineage).to_owned(),
            }),
            Move::Beat { worker, gone } => Action::Beat(Beat {
                pool,
                worker: self.workers[*worker].clone(),
                gone: *gone,
                info: "{}".into(),
            }),
            Move::Apply { settings } => Action::Apply(Apply {
                pool,
                config: config(*settings),
            }),
            Move::Pause { paused, draining } => Action::Pause(Pause {
                pool,
                paused: *paused,
                draining: *draining,
            }),
            Move::TakeMarker => Action::TakeMarker,
            Move::Jump { ms } => Action::Jump { ms: *ms },
            Move::Again { .. } => return None,
        })
    }

    fn submit(&mut self, one: &Move) -> Option<Submit> {
        let Move::Submit {
            tenant,
            priority,
            delay_ms,
            deadline_ms,
            timeout_ms,
            max_attempts,
            key,
            bytes,
        } = one
        else {
            return None;
        };
        let tenant = TENANTS[*tenant];
        let bare = self.bare();
        let id = JobId::from_bare(&self.pool, &bare).unwrap();
        let idempotency = key.map_or_else(Idempotency::default, |(key, body)| Idempotency {
            key_hash: format!("{tenant}-{key}"),
            body_hash: format!("body{body}"),
        });
        Some(Submit {
            id,
            tenant: tenant.into(),
            class: "default".into(),
            priority: *priority,
            delay_ms: *delay_ms,
            deadline_ms: *deadline_ms,
            timeout_ms: *timeout_ms,
            max_attempts: *max_attempts,
            model: if *priority == 5 {
                "m".into()
            } else {
                String::new()
            },
            idempotency,
            envelope: vec![b'e'; *bytes],
        })
    }

    fn settle(&mut self, one: &Move) -> Option<Settle> {
        let Move::Settle {
            pick,
            verdict,
            delay_ms,
            reason,
            has_error,
            usage,
            next,
        } = one
        else {
            return None;
        };
        let (id, fence, owner) = self.pick(*pick)?;
        Some(Settle {
            id,
            fence,
            owner,
            verdict: *verdict,
            delay_ms: *delay_ms,
            reason: *reason,
            code: "upstream_error".into(),
            error: if *has_error {
                r#"{"code":"upstream_error"}"#.into()
            } else {
                String::new()
            },
            usage: usage.map(|(input_tokens, estimated)| Usage {
                input_tokens,
                output_tokens: input_tokens * 2,
                estimated,
            }),
            content_type: "application/json".into(),
            result: b"{}".to_vec(),
            next: next.map(|worker| NextClaim {
                worker: self.workers[worker].clone(),
                owner: self.owner(),
            }),
        })
    }

    /// An id that sorts unlike it was minted, so that ties are not in order by chance.
    fn bare(&mut self) -> String {
        const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        self.minted += 1;
        let mut bits = self.minted.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut text = String::new();
        for _ in 0..26 {
            text.push(char::from(LETTERS[(bits & 31) as usize]));
            bits = bits.rotate_right(5);
        }
        text
    }

    fn owner(&mut self) -> Owner {
        Owner::parse(&self.bare()).unwrap()
    }

    /// A job that is kept, the newest first, or one that never was.
    fn job(&self, number: usize) -> JobId {
        let kept: Vec<_> = self
            .state
            .sets
            .jobs
            .iter()
            .map(|(id, _)| id.to_owned())
            .collect();
        self.one_of(&kept, number)
    }

    /// A dead letter, or any job where there is none.
    fn letter(&self, number: usize) -> JobId {
        let dead = self.state.sets.dead.first(u64::MAX);
        if dead.is_empty() {
            self.job(number)
        } else {
            self.one_of(&dead, number)
        }
    }

    fn one_of(&self, ids: &[String], number: usize) -> JobId {
        let place = (ids.len() + 1).checked_sub(number % (ids.len() + 1) + 2);
        let id = place.map_or("00000000000000000000000000", |place| &ids[place]);
        JobId::from_bare(&self.pool, id).unwrap()
    }

    fn pick(&mut self, pick: Pick) -> Option<(JobId, Fence, Owner)> {
        let place = self.deliveries.len().checked_sub(pick.back + 1)?;
        let (mut id, mut fence, mut owner) = self.deliveries[place].clone();
        match pick.fault {
            Fault::None => {}
            Fault::Owner => owner = self.owner(),
            Fault::Fence => fence = Fence(fence.0 + 1),
            Fault::Job => id = self.job(pick.back),
        }
        Some((id, fence, owner))
    }

    fn send(&mut self, command: &Command) -> Result<(Option<u64>, Reply), String> {
        let at = command.deadline_ms;
        match &command.action {
            Action::Submit(s) => self.step(s, at, Reply::Submit),
            Action::Claim(s) => self.step(s, at, Reply::Claim),
            Action::Renew(s) => self.step(s, at, Reply::Renew),
            Action::Settle(s) => self.step(s, at, Reply::Settle),
            Action::Append(s) => self.step(s, at, Reply::Append),
            Action::Follow(s) => self.step(s, at, Reply::Follow),
            Action::Cancel(s) => self.step(s, at, Reply::Cancel),
            Action::Requeue(s) => self.step(s, at, Reply::Requeue),
            Action::Purge(s) => self.step(s, at, Reply::Purge),
            Action::Expire(s) => self.step(s, at, Reply::Expire),
            Action::Beat(s) => self.step(s, at, |()| Reply::Done),
            Action::Pause(s) => self.step(s, at, |()| Reply::Done),
            // Its reply has a version where others have the time.
            Action::Apply(s) => Ok((None, self.step(s, at, Reply::Apply)?.1)),
            Action::TakeMarker => {
                let key = format!("{}:marker", base(&self.pool));
                let _: Vec<String> = self.rig.command(&["ZPOPMIN", &key]);
                Ok((None, Reply::Done))
            }
            Action::Jump { ms } => {
                self.jump(*ms);
                Ok((None, Reply::Done))
            }
        }
    }

    fn step<S: Step>(
        &mut self,
        step: &S,
        at: u64,
        reply: impl FnOnce(S::Reply) -> Reply,
    ) -> Result<(Option<u64>, Reply), String> {
        let (now_ms, outcome) = self.rig.try_send(step, at)?;
        let reply = match outcome {
            Outcome::Late => Reply::Late,
            Outcome::NoPool => Reply::NoPool,
            Outcome::Done(done) => reply(done),
        };
        Ok((Some(now_ms), reply))
    }

    /// Moves the pool's clock, and the TTLs that promise something with it.
    fn jump(&mut self, ms: i64) {
        let base = base(&self.pool);
        let _: i64 =
            self.rig
                .command(&["HINCRBY", &format!("{base}:state"), "skew", &ms.to_string()]);
        if ms < 0 {
            return;
        }
        for key in self.state.idempotency.keys() {
            let key = format!("{base}:idempotency:{key}");
            let ttl_ms: i64 = self.rig.command(&["PTTL", &key]);
            let left = (ttl_ms - ms).to_string();
            let _: i64 = self.rig.command(&["PEXPIRE", &key, &left]);
        }
    }
}

fn config(choice: SettingsChoice) -> PoolConfig {
    PoolConfig {
        slots: choice.slots,
        max_queued: 5,
        max_queued_bytes: 500,
        lease_ms: 1_000,
        renew_ms: 200,
        max_lost_leases: choice.max_lost_leases,
        result_retention_ms: 2_000,
        record_retention_ms: choice.record_retention_ms,
        idempotency_ms: choice.idempotency_ms,
        max_dead_letters: choice.max_dead_letters,
        dead_letter_retention_ms: 1_500,
        ..PoolConfig::default()
    }
}
