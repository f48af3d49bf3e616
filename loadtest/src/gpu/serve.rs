//! One call of a model route, from its request to its last byte: record, read the script, take a slot, answer.
//!
//! The slot is given back and the end recorded just before the last bytes go out: a caller that has its whole answer must
//! find both done, or a new call of its could be counted beside the old one.

mod answer;
mod intake;

use std::time::Duration;

use serde_json::Value;

use super::Shared;
use super::api::{Kind, Work};
use super::engine::{Refused, Slot};
use super::http::{Conn, Request};
use super::outlet::{Cut, Framing, Outlet, Stop};
use super::script::{CutHow, Script};
use super::shape::{self, Identity};
use intake::{Refusal, describe, read};

/// What becomes of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Keep,
    Close,
    Reset,
}

/// Serves one call and records it.
pub(super) async fn serve(shared: &Shared, conn: &mut Conn, kind: Kind, request: Request) -> After {
    let close = request.close;
    let mut call = describe(shared, &request);
    let run = match read(shared, kind, request.body, &mut call).await {
        Ok((work, scripts)) => {
            let needs_earlier = scripts.len() > 1 || scripts.iter().any(|s| s.fail_times.is_some());
            let (seq, earlier) = shared.log.begin(call, needs_earlier);
            let script = scripts
                .get(earlier)
                .or(scripts.last())
                .map_or_else(Script::untagged, |s| s.at(earlier));
            let who = Identity {
                id: identity(kind, seq),
                created: shared.unix_s(),
            };
            Run {
                shared,
                seq,
                work: Ok(work),
                script,
                who,
            }
        }
        Err(refusal) => {
            let (seq, _) = shared.log.begin(call, false);
            let who = Identity {
                id: identity(kind, seq),
                created: shared.unix_s(),
            };
            Run {
                shared,
                seq,
                work: Err(refusal),
                script: Script::untagged(),
                who,
            }
        }
    };
    let ended = run.answer(conn).await;
    run.record_end(ended);
    match ended {
        Ok(()) if close => After::Close,
        Ok(()) => After::Keep,
        Err(Stop::CutReset) => After::Reset,
        Err(Stop::CutClose | Stop::CallerClosed) => After::Close,
    }
}

fn identity(kind: Kind, seq: u64) -> String {
    match kind {
        Kind::Chat => format!("chatcmpl-{seq}"),
        Kind::Completion => format!("cmpl-{seq}"),
        Kind::Embedding => format!("embd-{seq}"),
    }
}

/// One call being answered.
struct Run<'a> {
    shared: &'a Shared,
    seq: u64,
    work: Result<Work, Refusal>,
    script: Script,
    who: Identity,
}

impl Run<'_> {
    async fn answer(&self, conn: &mut Conn) -> Result<(), Stop> {
        let work = match &self.work {
            Ok(work) => work,
            Err(refusal) => {
                let body = shape::error(
                    refusal.status,
                    &refusal.bad.message,
                    refusal.bad.param,
                    refusal.code,
                );
                return self.fixed(conn, None, refusal.status, &[], &body).await;
            }
        };
        let slot = match conn
            .unless_closed(self.shared.engine.enter(self.kv_need(work)))
            .await?
        {
            Ok(slot) => slot,
            Err(refused) => return self.refuse(conn, refused).await,
        };
        self.shared.log.update(self.seq, |call| {
            call.started_ms = Some(self.shared.now_ms())
        });
        if let Some(ms) = self.script.sleep_ms {
            conn.wait(Duration::from_millis(ms)).await?;
        }
        if let (true, Some(tag)) = (self.script.hold, &self.script.tag) {
            conn.unless_closed(self.shared.gates.wait(tag)).await?;
        }
        if self.script.refuse {
            drop(slot);
            return Err(self.cut_stop());
        }
        if let Some((status, body)) = self.scripted_body(work) {
            return self
                .fixed(conn, Some(slot), status, &[self.content_type(work)], &body)
                .await;
        }
        self.shared.count_input(work.input_tokens);
        self.generate(conn, slot, work).await
    }

    /// Input and the most output the call may write: the room a server must keep for it.
    fn kv_need(&self, work: &Work) -> u64 {
        if work.kind == Kind::Embedding {
            return work.input_tokens;
        }
        let mean = u64::from(self.shared.config.output_tokens_mean);
        let output = work
            .max_output_tokens
            .unwrap_or(mean)
            .saturating_mul(work.n as u64);
        work.input_tokens.saturating_add(output)
    }

    async fn refuse(&self, conn: &mut Conn, refused: Refused) -> Result<(), Stop> {
        match refused {
            Refused::QueueFull => {
                let status = self.shared.config.busy_status;
                let body = shape::error(
                    status,
                    "The server is busy, its queue is full.",
                    None,
                    Some("queue_full"),
                );
                self.fixed(conn, None, status, &[("retry-after", "1")], &body)
                    .await
            }
            Refused::NeverFits => {
                let message = format!(
                    "This call needs more than {} tokens of context.",
                    self.shared.engine.kv_tokens()
                );
                let body = shape::error(
                    400,
                    &message,
                    Some("messages"),
                    Some("context_length_exceeded"),
                );
                self.fixed(conn, None, 400, &[], &body).await
            }
        }
    }

    /// The whole body where the script gives it, or gives a status that no answer goes with.
    fn scripted_body(&self, work: &Work) -> Option<(u16, Vec<u8>)> {
        let script = &self.script;
        let status = script.status.unwrap_or(200);
        match (&script.raw, &script.body) {
            (Some(bytes), _) | (None, Some(bytes)) => Some((status, bytes.clone())),
            (None, None) if status >= 300 || status == 204 => {
                let message = format!("Scripted status {status} for {}.", work.model);
                Some((status, shape::error(status, &message, None, None)))
            }
            (None, None) => None,
        }
    }

    fn content_type(&self, work: &Work) -> (&'static str, &'static str) {
        let streams = self.script.raw.is_some() && work.stream;
        (
            "content-type",
            if streams {
                "text/event-stream; charset=utf-8"
            } else {
                "application/json"
            },
        )
    }

    fn cut_stop(&self) -> Stop {
        match self.script.cut_how {
            Some(CutHow::Reset) => Stop::CutReset,
            _ => Stop::CutClose,
        }
    }

    /// The scripted cut of a body of `body_bytes`, when its length is known.
    fn cut(&self, body_bytes: Option<usize>) -> Option<Cut> {
        let short = body_bytes
            .zip(self.script.short_by)
            .map(|(bytes, by)| (bytes as u64).saturating_sub(by));
        let after_bytes = self.script.cut.or(short)?;
        Some(Cut {
            after_bytes,
            reset: self.script.cut_how == Some(CutHow::Reset),
        })
    }

    /// Answers with one body of known length.
    async fn fixed(
        &self,
        conn: &mut Conn,
        slot: Option<Slot>,
        status: u16,
        defaults: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(), Stop> {
        self.record_status(status);
        let framing = if matches!(status, 204 | 304) {
            Framing::Empty
        } else {
            Framing::Sized(body.len())
        };
        let mut headers = vec![
            ("content-type", "application/json"),
            ("x-request-id", self.who.id.as_str()),
        ];
        headers.retain(|(name, _)| defaults.iter().all(|(other, _)| other != name));
        headers.extend_from_slice(defaults);
        let mut slot = slot;
        if self.script.first_ms.is_none() {
            slot = None;
            self.record_finished();
        }
        let cut = self.cut(Some(body.len()));
        let mut out =
            Outlet::open(conn, status, &headers, &self.script.headers, framing, cut).await?;
        if let Some(ms) = self.script.first_ms {
            out.conn.wait(Duration::from_millis(ms)).await?;
        }
        drop(slot);
        self.record_finished();
        out.send(body).await?;
        out.end().await
    }

    fn record_status(&self, status: u16) {
        self.shared
            .log
            .update(self.seq, |call| call.status = Some(status));
    }

    fn record_finished(&self) {
        let now_ms = self.shared.now_ms();
        self.shared
            .log
            .update(self.seq, |call| call.finished_ms = Some(now_ms));
    }

    fn record_sent(&self, chunks: u64, output_tokens: u64) {
        self.shared.count_output(output_tokens);
        self.shared.log.update(self.seq, |call| {
            call.chunks_sent += chunks;
            call.output_tokens_sent += output_tokens;
        });
    }

    fn record_end(&self, ended: Result<(), Stop>) {
        let now_ms = self.shared.now_ms();
        self.shared.log.update(self.seq, |call| match ended {
            Ok(()) => call.finished_ms = call.finished_ms.or(Some(now_ms)),
            Err(Stop::CutClose | Stop::CutReset) => call.finished_ms = Some(now_ms),
            Err(Stop::CallerClosed) => {
                call.finished_ms = None;
                call.closed_by_caller = true;
                call.closed_ms = Some(now_ms);
            }
        });
        self.shared.log.write_line(self.seq);
    }
}

/// An SSE event that reports an error in the middle of a stream.
fn error_event() -> Vec<u8> {
    let error: Value = serde_json::from_slice(&shape::error(
        500,
        "Scripted error in the stream.",
        None,
        None,
    ))
    .unwrap_or_default();
    shape::event(&error)
}
