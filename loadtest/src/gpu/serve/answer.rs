//! Answers that are generated: plain, streamed, embeddings.

use std::time::Duration;

use super::super::api::{Kind, Work};
use super::super::engine::{Pace, Slot};
use super::super::http::Conn;
use super::super::outlet::{Framing, Outlet, Stop};
use super::super::script::CutHow;
use super::super::shape::{self, Delta, Usage};
use super::super::text::{self, Answer};
use super::{Run, error_event};

/// Time between the comments of a stream that says nothing else, when the script gives none.
const COMMENT_MS: u64 = 100;
/// A plain answer is timed in strides of this much: finer waits would cost more than they model.
const STRIDE: Duration = Duration::from_millis(5);

impl Run<'_> {
    pub(super) async fn generate(
        &self,
        conn: &mut Conn,
        slot: Slot,
        work: &Work,
    ) -> Result<(), Stop> {
        if self.script.comments_only {
            return self.comments(conn, slot).await;
        }
        if work.kind == Kind::Embedding {
            conn.wait(self.shared.engine.prefill(work.input_tokens))
                .await?;
            let usage = Usage::told(work.input_tokens, 0, &self.script);
            let body = shape::embeddings(work, self.shared.config.seed, usage);
            return self
                .fixed(conn, Some(slot), self.success(), &[], &body)
                .await;
        }
        let answers = self.answers(work);
        if work.stream && !self.script.plain && self.script.short_by.is_none() {
            self.stream(conn, slot, work, &answers).await
        } else {
            self.plain(conn, slot, work, &answers).await
        }
    }

    fn success(&self) -> u16 {
        self.script.status.unwrap_or(200)
    }

    /// One answer per choice: each prompt's `n` in turn.
    fn answers(&self, work: &Work) -> Vec<Answer> {
        let config = &self.shared.config;
        let one = |prompt: &String, choice: usize| {
            text::answer(
                config.seed,
                prompt,
                choice as u64,
                config.output_tokens_mean,
                work.max_output_tokens,
                &self.script,
            )
        };
        work.prompts
            .iter()
            .flat_map(|p| (0..work.n).map(move |choice| one(p, choice)))
            .collect()
    }

    /// Time of the round in which each choice writes its piece number `round`.
    fn step(&self, answers: &[Answer], round: usize) -> Duration {
        if let Some(ms) = self.script.chunk_ms {
            return Duration::from_millis(ms);
        }
        if self.script.text.is_some() || self.script.bytes.is_some() {
            return Duration::ZERO;
        }
        // The choices of a call decode side by side, so a round lasts as long as its longest piece.
        let longest = answers
            .iter()
            .filter_map(|a| a.pieces.get(round))
            .map(|p| p.output_tokens)
            .max();
        self.shared.engine.decode_step(longest.unwrap_or(0))
    }

    async fn plain(
        &self,
        conn: &mut Conn,
        slot: Slot,
        work: &Work,
        answers: &[Answer],
    ) -> Result<(), Stop> {
        conn.wait(self.shared.engine.prefill(work.input_tokens))
            .await?;
        let mut pace = Pace::new();
        let mut waited_until = tokio::time::Instant::now();
        let mut due = waited_until;
        for round in 0..rounds(answers) {
            due = pace.next(self.step(answers, round));
            if due.saturating_duration_since(waited_until) >= STRIDE {
                conn.wait_until(due).await?;
                waited_until = due;
            }
        }
        conn.wait_until(due).await?;
        let output_tokens = answers.iter().map(Answer::output_tokens).sum();
        self.record_sent(0, output_tokens);
        let usage = Usage::told(work.input_tokens, output_tokens, &self.script);
        let body = shape::completion(&self.who, work, answers, &self.script, usage);
        self.fixed(conn, Some(slot), self.success(), &[], &body)
            .await
    }

    async fn open_stream<'c>(&self, conn: &'c mut Conn) -> Result<Outlet<'c>, Stop> {
        self.record_status(self.success());
        let headers = [
            ("content-type", "text/event-stream; charset=utf-8"),
            ("cache-control", "no-cache"),
            ("x-request-id", self.who.id.as_str()),
        ];
        Outlet::open(
            conn,
            self.success(),
            &headers,
            &self.script.headers,
            Framing::Chunked,
            self.cut(None),
        )
        .await
    }

    async fn stream(
        &self,
        conn: &mut Conn,
        slot: Slot,
        work: &Work,
        answers: &[Answer],
    ) -> Result<(), Stop> {
        let mut out = self.open_stream(conn).await?;
        let first = self.script.first_ms.map(Duration::from_millis);
        out.conn
            .wait(first.unwrap_or_else(|| self.shared.engine.prefill(work.input_tokens)))
            .await?;
        if work.kind == Kind::Chat {
            for index in 0..answers.len() {
                out.send(&shape::chunk(&self.who, work, index, Delta::Role))
                    .await?;
            }
        }
        let mut pace = Pace::new();
        let mut chunks_left = self.script.cut_chunks;
        for round in 0..rounds(answers) {
            let due = pace.next(self.step(answers, round));
            for (index, piece) in answers
                .iter()
                .enumerate()
                .filter_map(|(i, a)| Some((i, a.pieces.get(round)?)))
            {
                if chunks_left == Some(0) {
                    return self
                        .cut_stream(
                            out,
                            slot,
                            &shape::chunk(&self.who, work, index, Delta::Text(&piece.text)),
                        )
                        .await;
                }
                out.conn.wait_until(due).await?;
                // Recorded first: whoever has the chunk finds it in the log.
                self.record_sent(1, piece.output_tokens);
                out.send(&shape::chunk(
                    &self.who,
                    work,
                    index,
                    Delta::Text(&piece.text),
                ))
                .await?;
                chunks_left = chunks_left.map(|left| left - 1);
            }
        }
        if chunks_left.is_some() {
            return self
                .cut_stream(
                    out,
                    slot,
                    &shape::chunk(&self.who, work, 0, Delta::Finish("stop")),
                )
                .await;
        }
        drop(slot);
        self.record_finished();
        self.end_stream(out, work, answers).await
    }

    /// Finish reasons, usage, `[DONE]`, each unless the script leaves it out, in one write.
    async fn end_stream(
        &self,
        mut out: Outlet<'_>,
        work: &Work,
        answers: &[Answer],
    ) -> Result<(), Stop> {
        let mut last = Vec::new();
        if !self.script.no_finish {
            for (index, answer) in answers.iter().enumerate() {
                last.extend(shape::chunk(
                    &self.who,
                    work,
                    index,
                    Delta::Finish(answer.finish.word()),
                ));
            }
        }
        let output_tokens = answers.iter().map(Answer::output_tokens).sum();
        let usage = Usage::told(work.input_tokens, output_tokens, &self.script)
            .filter(|_| work.include_usage);
        if let Some(usage) = usage {
            last.extend(shape::usage_chunk(&self.who, work, usage));
        }
        if !self.script.no_done {
            last.extend_from_slice(b"data: [DONE]\n\n");
        }
        out.send(&last).await?;
        out.end().await
    }

    /// Ends a stream as `cut_how` says; `next` is the event that would have come.
    async fn cut_stream(&self, mut out: Outlet<'_>, slot: Slot, next: &[u8]) -> Result<(), Stop> {
        drop(slot);
        self.record_finished();
        match self.script.cut_how.unwrap_or_default() {
            CutHow::Close => Err(Stop::CutClose),
            CutHow::Reset => Err(Stop::CutReset),
            CutHow::Error => {
                out.send(&error_event()).await?;
                out.end().await
            }
            CutHow::Half => {
                out.send(&next[..next.len() / 2]).await?;
                Err(Stop::CutClose)
            }
        }
    }

    async fn comments(&self, conn: &mut Conn, slot: Slot) -> Result<(), Stop> {
        let mut out = self.open_stream(conn).await?;
        if let Some(ms) = self.script.first_ms {
            out.conn.wait(Duration::from_millis(ms)).await?;
        }
        let pause = Duration::from_millis(self.script.chunk_ms.unwrap_or(COMMENT_MS));
        let mut left = self.script.chunks;
        while left != Some(0) {
            out.send(b": keep-alive\n\n").await?;
            // At least a millisecond, so that a stream without end cannot take the whole machine.
            out.conn.wait(pause.max(Duration::from_millis(1))).await?;
            left = left.map(|l| l - 1);
        }
        drop(slot);
        self.record_finished();
        out.end().await
    }
}

fn rounds(answers: &[Answer]) -> usize {
    answers.iter().map(|a| a.pieces.len()).max().unwrap_or(0)
}
