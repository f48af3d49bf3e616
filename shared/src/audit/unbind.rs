//! The way back of each step's `bind` and of its reply: from a recorded script to the command that the reference takes.

use std::str::FromStr;

use crate::domain::step::{Action, Command, Reply};
use crate::domain::{Fence, JobId, Owner, PoolName, Usage, WorkerId};
use crate::protocol::script::{self, Script};
use crate::protocol::{
    self, Append, Apply, Beat, Cancel, Claim, Expire, Follow, Idempotency, NextClaim, Op, Outcome,
    Pause, Purge, Renew, RenewItem, Requeue, Settle, Step, Submit, Value,
};

/// Arguments of one script, by the names of its header.
struct Args<'a> {
    pool: &'a PoolName,
    script: &'static Script,
    names: Vec<&'static str>,
    values: Vec<Vec<u8>>,
}

impl Args<'_> {
    fn bytes(&self, name: &str) -> Result<&[u8], String> {
        self.names
            .iter()
            .position(|n| *n == name)
            .and_then(|at| self.values.get(at))
            .map(Vec::as_slice)
            .ok_or_else(|| format!("{}: no argument `{name}`", self.script.name))
    }

    /// All from the repeating argument on.
    fn rest(&self) -> &[Vec<u8>] {
        self.values
            .get(self.names.len().saturating_sub(1)..)
            .unwrap_or_default()
    }

    fn text(&self, name: &str) -> Result<String, String> {
        self.bytes(name).and_then(text)
    }

    fn word<T: FromStr>(&self, name: &str) -> Result<T, String> {
        self.bytes(name).and_then(word)
    }

    fn job(&self) -> Result<JobId, String> {
        self.bytes("id").and_then(|bare| job(self.pool, bare))
    }

    fn fence(&self) -> Result<Fence, String> {
        self.word("fence").map(Fence)
    }

    fn owner(&self, name: &str) -> Result<Owner, String> {
        self.bytes(name).and_then(owner)
    }

    fn worker(&self) -> Result<WorkerId, String> {
        WorkerId::parse(&self.text("worker")?).map_err(|e| e.to_string())
    }

    /// None where it is empty.
    fn tenant(&self) -> Result<Option<String>, String> {
        self.text("tenant")
            .map(|t| Some(t).filter(|t| !t.is_empty()))
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        self.bytes(name).map(|value| value == b"1")
    }

    fn switch(&self, name: &str) -> Result<Option<bool>, String> {
        let value = self.bytes(name)?;
        Ok((!value.is_empty()).then_some(value == b"1"))
    }
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|e| e.to_string())
}

fn word<T: FromStr>(bytes: &[u8]) -> Result<T, String> {
    let text = text(bytes)?;
    text.parse().map_err(|_| format!("`{text}` is unknown"))
}

fn job(pool: &PoolName, bare: &[u8]) -> Result<JobId, String> {
    JobId::from_bare(pool, &text(bare)?).map_err(|e| e.to_string())
}

fn owner(bytes: &[u8]) -> Result<Owner, String> {
    Owner::parse(&text(bytes)?).map_err(|e| e.to_string())
}

/// The command that a script ran, and the identity of its send.
pub(crate) fn command(
    step: &str,
    pool: &PoolName,
    mut values: Vec<Vec<u8>>,
) -> Result<(Command, Op), String> {
    let script = *script::ALL
        .iter()
        .find(|script| script.name == step)
        .ok_or_else(|| format!("no step `{step}`"))?;
    let op = values.pop().ok_or("no argument at all")?;
    let args = Args {
        pool,
        script,
        names: script.arg_names().collect(),
        values,
    };
    let deadline_ms = match args.names.first() {
        Some(&"deadline") => args.word("deadline")?,
        _ => 0,
    };
    let action = action(&args)?;
    let command = Command {
        deadline_ms,
        action,
    };
    Ok((command, Op::recorded(text(&op)?)))
}

fn action(args: &Args<'_>) -> Result<Action, String> {
    let pool = args.pool.clone();
    Ok(match args.script.name {
        "submit" => Action::Submit(submit(args)?),
        "settle" => Action::Settle(settle(args)?),
        "renew" => Action::Renew(renew(args)?),
        "claim" => Action::Claim(Claim {
            pool,
            worker: args.worker()?,
            owners: args
                .rest()
                .iter()
                .map(|o| owner(o))
                .collect::<Result<_, _>>()?,
        }),
        "append" => Action::Append(Append {
            id: args.job()?,
            fence: args.fence()?,
            owner: args.owner("owner")?,
            first: args.word("first")?,
            max_bytes: args.word("max_bytes")?,
            pieces: args.rest().to_vec(),
        }),
        "follow" => Action::Follow(Follow {
            id: args.job()?,
            tenant: args.tenant()?,
        }),
        "cancel" => Action::Cancel(Cancel {
            id: args.job()?,
            tenant: args.tenant()?,
        }),
        "requeue" => Action::Requeue(Requeue {
            id: args.job()?,
            operation: args.text("operation")?,
        }),
        "purge" => Action::Purge(Purge { id: args.job()? }),
        "expire" => Action::Expire(Expire {
            pool,
            limit: args.word("limit")?,
            lineage: args.text("lineage")?,
        }),
        "beat" => Action::Beat(Beat {
            pool,
            worker: args.worker()?,
            gone: args.flag("gone")?,
            info: args.text("info")?,
        }),
        "apply" => Action::Apply(Apply {
            pool,
            config: serde_json::from_slice(args.bytes("def")?).map_err(|e| e.to_string())?,
        }),
        "pause" => Action::Pause(Pause {
            pool,
            paused: args.switch("paused")?,
            draining: args.switch("draining")?,
        }),
        other => return Err(format!("`{other}` changes nothing")),
    })
}

fn submit(args: &Args<'_>) -> Result<Submit, String> {
    Ok(Submit {
        id: args.job()?,
        tenant: args.text("tenant")?,
        class: args.text("class")?,
        priority: args.word("priority")?,
        delay_ms: args.word("delay_ms")?,
        deadline_ms: args.word("deadline_ms")?,
        timeout_ms: args.word("timeout_ms")?,
        max_attempts: args.word("max_attempts")?,
        model: args.text("model")?,
        idempotency: Idempotency {
            key_hash: args.text("idempotency")?,
            body_hash: args.text("body_hash")?,
        },
        envelope: args.bytes("envelope")?.to_vec(),
    })
}

fn settle(args: &Args<'_>) -> Result<Settle, String> {
    let usage = if args.bytes("input_tokens")? == b"-1" {
        None
    } else {
        Some(Usage {
            input_tokens: args.word("input_tokens")?,
            output_tokens: args.word("output_tokens")?,
            estimated: args.flag("estimated")?,
        })
    };
    let next = if args.bytes("next_owner")?.is_empty() {
        None
    } else {
        Some(NextClaim {
            worker: args.worker()?,
            owner: args.owner("next_owner")?,
        })
    };
    Ok(Settle {
        id: args.job()?,
        fence: args.fence()?,
        owner: args.owner("owner")?,
        verdict: args.word("verdict")?,
        delay_ms: args.word("delay_ms")?,
        reason: args.word("reason")?,
        code: args.text("code")?,
        error: args.text("error")?,
        usage,
        content_type: args.text("content_type")?,
        result: args.bytes("result")?.to_vec(),
        next,
    })
}

fn renew(args: &Args<'_>) -> Result<Renew, String> {
    let mut items = Vec::new();
    for item in args.rest().chunks(4) {
        let [id, fence, of, output_tokens] = item else {
            return Err("renew: a delivery has four arguments".into());
        };
        items.push(RenewItem {
            id: job(args.pool, id)?,
            fence: word(fence).map(Fence)?,
            owner: owner(of)?,
            output_tokens: word(output_tokens)?,
        });
    }
    Ok(Renew {
        pool: args.pool.clone(),
        default_timeout_ms: args.word("default_timeout_ms")?,
        items,
    })
}

/// What the script replied to `action`: the pool's time where it says one, and its reply.
pub(super) fn reply(
    action: &Action,
    op: &Op,
    value: Value,
) -> Result<(Option<u64>, Reply), String> {
    let (now_ms, reply) = match action {
        Action::Submit(step) => read(step, op, value, Reply::Submit),
        Action::Claim(step) => read(step, op, value, Reply::Claim),
        Action::Renew(step) => read(step, op, value, Reply::Renew),
        Action::Settle(step) => read(step, op, value, Reply::Settle),
        Action::Append(step) => read(step, op, value, Reply::Append),
        Action::Follow(step) => read(step, op, value, Reply::Follow),
        Action::Cancel(step) => read(step, op, value, Reply::Cancel),
        Action::Requeue(step) => read(step, op, value, Reply::Requeue),
        Action::Purge(step) => read(step, op, value, Reply::Purge),
        Action::Expire(step) => read(step, op, value, Reply::Expire),
        Action::Beat(step) => read(step, op, value, |()| Reply::Done),
        Action::Pause(step) => read(step, op, value, |()| Reply::Done),
        // Its reply has a version where others have the time.
        Action::Apply(step) => return Ok((None, read(step, op, value, Reply::Apply)?.1)),
        Action::TakeMarker | Action::Jump { .. } => Err("no script".into()),
    }?;
    Ok((Some(now_ms), reply))
}

fn read<S: Step>(
    step: &S,
    op: &Op,
    value: Value,
    reply: impl FnOnce(S::Reply) -> Reply,
) -> Result<(u64, Reply), String> {
    let (now_ms, outcome) = protocol::decode(step, op, value).map_err(|e| e.to_string())?;
    let reply = match outcome {
        Outcome::Late => Reply::Late,
        Outcome::NoPool => Reply::NoPool,
        Outcome::Done(done) => reply(done),
    };
    Ok((now_ms, reply))
}
