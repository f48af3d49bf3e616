//! One call, read to its end under the four time-outs.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response};
use tokio::time::{Instant, timeout_at};

use super::assemble::{Assembler, BadChunk};
use super::body::{Body, BodyError};
use super::come::Come;
use super::failure::{Stop, describe, failed, no_answer, said_no, said_no_midway, timed_out};
use super::plain::{self, BadBody};
use super::request::Outgoing;
use super::retry_after::parse_retry_after;
use super::sse::{Event, Parser};
use super::types::{Answer, Endpoint, FailureCode, Limits, Progress, Timeouts};
use super::upstream;
use super::usage::{self, Seen};

/// Most bytes read of an error answer; its message is far shorter, and a page of HTML says no more after this.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// Longest wait for the body of an error answer, whose status already says most.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(5);
/// Longest wait, once every choice has finished, for what may still come: usage, the end marker, the close.
const TAIL_WAIT: Duration = Duration::from_secs(2);
/// Longest content type kept, in bytes.
const MAX_CONTENT_TYPE_BYTES: usize = 256;
/// Stands for "never" where a bound is too large for the clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// `bound` after `start`.
pub(super) fn after(start: Instant, bound: Duration) -> Instant {
    start + bound.min(FAR)
}

/// One call under way.
pub(super) struct Call<'a> {
    pub(super) endpoint: Endpoint,
    pub(super) outgoing: &'a Outgoing,
    pub(super) request_bytes: usize,
    pub(super) timeouts: Timeouts,
    pub(super) limits: Limits,
    pub(super) progress: &'a dyn Progress,
    pub(super) started: Instant,
}

/// The head of an answer, as far as it is needed after its body.
struct Head {
    status: u16,
    content_type: Option<String>,
}

impl Call<'_> {
    /// Sends the request and reads the answer. Dropping the future closes the connection.
    pub(super) async fn run(
        &self,
        request: RequestBuilder,
        come: &mut Come,
    ) -> Result<Answer, Stop> {
        let first_by = after(self.started, self.timeouts.first_byte);
        let response = timeout_at(first_by, request.send())
            .await
            .map_err(|_| self.no_first_byte())?
            .map_err(no_answer)?;
        if !response.status().is_success() {
            return Err(self.read_refusal(response).await);
        }
        let head = read_head(&response);
        let mut body = Body::of(response, self.limits.max_response_bytes).map_err(|encoding| {
            let message = format!("the body has a content encoding not asked for: {encoding}");
            failed(FailureCode::InvalidResponse, &message)
        })?;
        let first = timeout_at(first_by, body.next())
            .await
            .map_err(|_| self.no_first_byte())?;
        let first = first
            .map_err(|error| self.broken(error))?
            .unwrap_or_default();
        if self.is_stream(head.content_type.as_deref(), &first) {
            self.read_stream(body, first, &head, come).await
        } else {
            self.read_plain(body, first, &head, come).await
        }
    }

    fn no_first_byte(&self) -> Stop {
        timed_out(
            FailureCode::FirstByteTimeout,
            self.timeouts.first_byte,
            "the model server sent no byte of an answer",
        )
    }

    fn stalled(&self) -> Stop {
        timed_out(
            FailureCode::Stalled,
            self.timeouts.between_chunks,
            "the model server sent nothing new",
        )
    }

    fn too_large(&self) -> Stop {
        let bound = self.limits.max_response_bytes;
        failed(
            FailureCode::ResponseTooLarge,
            &format!("the answer is larger than max_response_bytes = {bound}"),
        )
    }

    fn broken(&self, error: BodyError) -> Stop {
        match error {
            BodyError::Broken(error) => cut(&describe(error)),
            BodyError::TooLarge => self.too_large(),
            BodyError::NotDecodable => failed(
                FailureCode::InvalidResponse,
                "the body is not in its content encoding",
            ),
        }
    }

    /// A body is what its type says; without a telling type, what was asked for, unless it looks like an object.
    fn is_stream(&self, content_type: Option<&str>, first: &[u8]) -> bool {
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        if content_type.starts_with("text/event-stream") {
            return true;
        }
        let text = first.strip_prefix(plain::BOM).unwrap_or(first);
        let looks_plain = text
            .trim_ascii_start()
            .first()
            .is_none_or(|byte| *byte == b'{');
        self.outgoing.streamed
            && !content_type.contains("json")
            && !content_type.contains("html")
            && !looks_plain
    }

    async fn read_refusal(&self, mut response: Response) -> Stop {
        let status = response.status().as_u16();
        #[expect(
            clippy::disallowed_methods,
            reason = "a date in the header is wall clock; it counts from the response's own date where there is one"
        )]
        let now = SystemTime::now();
        let retry_after = parse_retry_after(response.headers(), now);
        let by = after(
            Instant::now(),
            self.timeouts.between_chunks.min(ERROR_BODY_WAIT),
        );
        let mut body = Vec::new();
        // Whatever breaks here, the status stands.
        while let Ok(Ok(Some(bytes))) = timeout_at(by, response.chunk()).await {
            body.extend_from_slice(&bytes[..bytes.len().min(MAX_ERROR_BYTES - body.len())]);
            if body.len() == MAX_ERROR_BYTES {
                break;
            }
        }
        said_no(
            status,
            upstream::read_error(Some(status), &body),
            retry_after,
        )
    }

    /// The next bytes of the body, `None` at its end. `progress` tells whether the last ones moved the answer on: only
    /// then does the time between chunks begin anew.
    async fn next_bytes(
        &self,
        source: &mut Body,
        progress: bool,
        moved_at: &mut Instant,
        bound: Duration,
    ) -> Result<Option<Bytes>, Stop> {
        let now = Instant::now();
        if progress {
            *moved_at = now;
        }
        let by = after(*moved_at, bound);
        // Asked here too, since bytes that are always there would never let the timer have its turn.
        if now >= by {
            return Err(self.stalled());
        }
        let read = timeout_at(by, source.next())
            .await
            .map_err(|_| self.stalled())?;
        read.map_err(|error| self.broken(error))
    }

    async fn read_plain(
        &self,
        mut source: Body,
        first: Bytes,
        head: &Head,
        come: &mut Come,
    ) -> Result<Answer, Stop> {
        *come = Come::Plain(BytesMut::new());
        let Come::Plain(body) = &mut *come else {
            unreachable!("set above")
        };
        let mut next = Some(first);
        let mut moved_at = Instant::now();
        while let Some(bytes) = next {
            if body.len() + bytes.len() > self.limits.max_response_bytes {
                return Err(self.too_large());
            }
            body.extend_from_slice(&bytes);
            // White space alone is a server's way to keep a connection open.
            let progress = !bytes.iter().all(u8::is_ascii_whitespace);
            let bound = self.timeouts.between_chunks;
            next = self
                .next_bytes(&mut source, progress, &mut moved_at, bound)
                .await?;
        }
        let whole = std::mem::take(body).freeze();
        let judged = plain::judge(self.endpoint, whole.clone()).map_err(|bad| {
            body.extend_from_slice(&whole);
            match bad {
                BadBody::Incomplete => cut("the body ends before its JSON does"),
                BadBody::Invalid(why) => failed(
                    FailureCode::InvalidResponse,
                    &format!("the body is no JSON object: {why}"),
                ),
                BadBody::Without(name) => failed(
                    FailureCode::InvalidResponse,
                    &format!("the body is no answer: it has no `{name}`"),
                ),
                BadBody::Error => said_no_midway(&whole),
            }
        })?;
        let seen = Seen {
            request_bytes: self.request_bytes,
            output_tokens: judged.output_estimate,
        };
        let (usage, odd_usage) = usage::settle(self.endpoint, judged.reported, seen);
        self.progress.output_tokens(usage.output_tokens);
        Ok(Answer {
            status: head.status,
            body: judged.body,
            content_type: head
                .content_type
                .clone()
                .unwrap_or_else(|| "application/json".to_owned()),
            usage,
            odd_usage,
            finish_reasons: judged.finish_reasons,
            streamed: false,
        })
    }

    async fn read_stream(
        &self,
        mut source: Body,
        first: Bytes,
        head: &Head,
        come: &mut Come,
    ) -> Result<Answer, Stop> {
        let max = self.limits.max_response_bytes;
        let assembler = Assembler::new(self.endpoint, self.outgoing.expected_choices, max);
        *come = Come::Stream(head.status, Box::new(assembler));
        let Come::Stream(_, answer) = &mut *come else {
            unreachable!("set above")
        };
        if self.endpoint == Endpoint::Embeddings {
            return Err(failed(
                FailureCode::InvalidResponse,
                "embeddings came as a stream of events",
            ));
        }
        let mut parser = Parser::new(max);
        let mut next = Some(first);
        let mut moved_at = Instant::now();
        // Why no more comes; does not matter to an answer that is whole by then.
        let ended = loop {
            let Some(bytes) = next else { break None };
            let mut progress = false;
            for event in parser.push(&bytes).map_err(|_| self.too_large())? {
                match self.take_event(&event, answer)? {
                    Took::Done => break,
                    Took::Progress => progress = true,
                    Took::Nothing => {}
                }
            }
            if answer.is_done() {
                break None;
            }
            let bound = self.timeouts.between_chunks;
            let bound = if answer.is_whole() {
                bound.min(TAIL_WAIT)
            } else {
                bound
            };
            match self
                .next_bytes(&mut source, progress, &mut moved_at, bound)
                .await
            {
                Ok(read) => next = read,
                Err(stop) => break Some(stop),
            }
        };
        if answer.is_whole() {
            return Ok(self.streamed_answer(answer, head.status));
        }
        Err(ended.unwrap_or_else(|| cut(&answer.missing())))
    }

    fn take_event(&self, event: &Event, answer: &mut Assembler) -> Result<Took, Stop> {
        if event.data.trim_ascii() == b"[DONE]" {
            answer.note_done();
            return Ok(Took::Done);
        }
        if event.named_error {
            return Err(said_no_midway(&event.data));
        }
        let before = answer.output_tokens();
        let brought = answer.add(&event.data).map_err(|bad| match bad {
            BadChunk::Invalid(why) => failed(
                FailureCode::InvalidResponse,
                &format!("an event of the stream cannot be read: {why}"),
            ),
            BadChunk::Error => said_no_midway(&event.data),
            BadChunk::TooLarge => self.too_large(),
        })?;
        if !brought.usage_only || self.outgoing.caller_wants_usage {
            self.progress.chunk(&event.data);
        }
        let output_tokens = answer.output_tokens();
        if output_tokens != before {
            self.progress.output_tokens(output_tokens);
        }
        Ok(if brought.progress {
            Took::Progress
        } else {
            Took::Nothing
        })
    }

    /// The answer of a stream that is whole.
    pub(super) fn streamed_answer(&self, assembler: &Assembler, status: u16) -> Answer {
        let seen = Seen {
            request_bytes: self.request_bytes,
            output_tokens: assembler.pieces(),
        };
        let (usage, odd_usage) = usage::settle(self.endpoint, assembler.reported(), seen);
        Answer {
            status,
            body: assembler.body().into(),
            content_type: "application/json".to_owned(),
            usage,
            odd_usage,
            finish_reasons: assembler.finish_reasons(),
            streamed: true,
        }
    }
}

/// What an event did.
enum Took {
    Done,
    Progress,
    Nothing,
}

fn cut(why: &str) -> Stop {
    failed(
        FailureCode::IncompleteResponse,
        &format!("the answer broke off: {why}"),
    )
}

fn read_head(response: &Response) -> Head {
    let text = |name| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let content_type = text(CONTENT_TYPE)
        .filter(|value| !value.is_empty() && value.len() <= MAX_CONTENT_TYPE_BYTES);
    Head {
        status: response.status().as_u16(),
        content_type: content_type.map(str::to_owned),
    }
}
