//! Following a job by its events, over as many connections as it takes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::backend::{Answer, Backend, Request};
use crate::exit::Failure;
use crate::job::{is_terminal, path};
use crate::output::{self, Format, note};
use crate::text;

/// Longest line of a stream of events, in bytes: a chunk of a model's answer with a wide margin.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Connections in a row that bring nothing before we give up.
const MAX_EMPTY_TRIES: u32 = 10;
/// Pause before the next connection.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its id, to go on after.
    pub(crate) id: String,
    /// `status`, `chunk` or `terminal`.
    pub(crate) kind: String,
    /// Its text.
    pub(crate) data: String,
}

/// Reads events out of the pieces of a body (WHATWG HTML, "Server-sent events").
#[derive(Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
}

impl Parser {
    /// Takes the next bytes; gives the events that are complete with them.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                events.extend(self.take(&String::from_utf8_lossy(line)));
            } else if self.line.len() >= MAX_LINE_BYTES {
                return Err(Failure::Error("an event of the stream is too long".into()));
            } else {
                self.line.push(byte);
            }
        }
        Ok(events)
    }

    fn take(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = Event {
                id: self.event.id.clone(),
                ..Event::default()
            };
            let full = std::mem::replace(&mut self.event, event);
            return std::mem::take(&mut self.has_data).then_some(full);
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.event.id = value.to_owned(),
            "event" => self.event.kind = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            _ => {}
        }
        None
    }
}

/// Prints what happens to a job.
pub(crate) struct Show {
    format: Format,
    /// The state last said.
    said: String,
    /// Text was written and its line is open.
    open: bool,
}

impl Show {
    /// Prints in `format`.
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            said: String::new(),
            open: false,
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        let data: Value =
            serde_json::from_str(&event.data).unwrap_or_else(|_| event.data.as_str().into());
        if self.format.is_json() {
            return output::line(
                &json!({"id": event.id, "event": event.kind, "data": data}).to_string(),
            );
        }
        if event.kind == "chunk" {
            return self.text(&chunk_text(&data));
        }
        self.state(&data)
    }

    fn text(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        self.open = !text.ends_with('\n');
        output::bytes(text::readable(text).as_bytes())
    }

    fn state(&mut self, data: &Value) -> Result<(), Failure> {
        let Some(status) = data["status"].as_str() else {
            return Ok(());
        };
        let why = data["pending_reason"]
            .as_str()
            .map(|why| format!(" ({why})"))
            .unwrap_or_default();
        let line = format!("{}{}", text::visible(status), text::visible(&why));
        if line != self.said {
            self.close()?;
            note(&line);
            self.said = line;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Failure> {
        match std::mem::take(&mut self.open) {
            true => output::bytes(b"\n"),
            false => Ok(()),
        }
    }
}

/// The text that a chunk of a chat or a completion adds.
pub(crate) fn chunk_text(chunk: &Value) -> String {
    let choices = chunk["choices"].as_array().into_iter().flatten();
    choices
        .filter_map(|choice| {
            choice["delta"]["content"]
                .as_str()
                .or_else(|| choice["text"].as_str())
        })
        .collect()
}

/// Follows a job to its terminal and gives the job as it then is.
pub(crate) async fn follow(backend: &Backend, id: &str, show: &mut Show) -> Result<Value, Failure> {
    let mut last_id = String::new();
    let mut tries = 0;
    loop {
        let mut call =
            Request::get(format!("{}/events", path(id))).header("accept", "text/event-stream");
        if !last_id.is_empty() {
            call = call.header("last-event-id", last_id.clone());
        }
        let before = last_id.clone();
        let ended = match backend.send(call).await {
            Ok(answer) if answer.status.is_server_error() => answer.ok().await.map(|_| false),
            Ok(answer) => {
                let mut answer = answer.ok().await?;
                read(&mut answer, &mut last_id, show).await
            }
            Err(failure) => Err(failure),
        };
        match ended {
            Ok(true) => break,
            Err(failure) if tries >= MAX_EMPTY_TRIES || !passes(&failure) => return Err(failure),
            Ok(false) if tries >= MAX_EMPTY_TRIES => {
                return Err(Failure::Unreachable(
                    "the stream of events ends again and again".into(),
                ));
            }
            Ok(false) | Err(_) => {}
        }
        tries = if last_id == before { tries + 1 } else { 0 };
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
    show.close()?;
    let job = backend.json(Request::get(path(id))).await?;
    match is_terminal(&job) {
        true => Ok(job),
        // Only a store that lost its last seconds can take a terminal back.
        false => Err(Failure::Error(format!(
            "{id} ended and is {} again",
            text::cell(&job["status"])
        ))),
    }
}

fn passes(failure: &Failure) -> bool {
    matches!(failure, Failure::Unreachable(_) | Failure::Refused(_))
}

/// Reads one connection. True once the terminal has come.
async fn read(answer: &mut Answer, last_id: &mut String, show: &mut Show) -> Result<bool, Failure> {
    let mut parser = Parser::default();
    while let Some(piece) = answer.piece().await? {
        for event in parser.feed(&piece)? {
            if !event.id.is_empty() {
                last_id.clone_from(&event.id);
            }
            show.event(&event)?;
            if event.kind == "terminal" {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whatever_the_pieces() {
        let body = ": hello\nid: 1-0\nevent: status\ndata: {\"a\":\ndata: 1}\n\nevent: chunk\r\ndata: x\r\n\r\n:\n\n";
        let whole = Parser::default().feed(body.as_bytes()).expect("reads");
        let mut parser = Parser::default();
        let mut pieces = Vec::new();
        for byte in body.as_bytes() {
            pieces.extend(parser.feed(&[*byte]).expect("reads"));
        }
        assert_eq!(whole, pieces);
        let event = |kind: &str, data: &str| Event {
            id: "1-0".into(),
            kind: kind.into(),
            data: data.into(),
        };
        assert_eq!(whole, [event("status", "{\"a\":\n1}"), event("chunk", "x")]);
    }

    #[test]
    fn chunks_of_chats_and_completions_give_their_text() {
        let chat = json!({"choices": [{"delta": {"role": "assistant", "content": "a"}}]});
        assert_eq!(chunk_text(&chat), "a");
        assert_eq!(chunk_text(&json!({"choices": [{"text": "b"}]})), "b");
        assert_eq!(chunk_text(&json!({"choices": [], "usage": {}})), "");
    }
}
