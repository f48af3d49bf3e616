//! Putting a stream's chunks together into the body that a plain call would have given.
//!
//! Texts are joined as they stand between their quotes, so every character comes out as the server wrote it, and numbers
//! are never read. What the interface does not name is kept too (see [`rules`]).

mod members;
mod rules;

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use self::members::{Malformed, Member, Members, Tally, write_member};
use self::rules::Place;
use super::raw::{self, RawObject};
use super::types::Endpoint;
use super::usage::{self, Reported};

/// Most choices of one answer; servers allow at most a few hundred.
const MAX_CHOICES: usize = 4_096;

/// Why a chunk ends the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BadChunk {
    /// No JSON object, or not one of this interface; the text says why.
    Invalid(String),
    /// The server reports an error.
    Error,
    /// The answer grew beyond its bound.
    TooLarge,
}

impl From<Malformed> for BadChunk {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Invalid(why.to_owned())
    }
}

/// What a chunk brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Brought {
    /// It moved the answer on: it has choices or usage.
    pub(super) progress: bool,
    /// It has usage and nothing else.
    pub(super) usage_only: bool,
}

#[derive(Debug, Default)]
struct Choice(Members);

impl Choice {
    fn finish_reason(&self) -> Option<&str> {
        match self.0.get("finish_reason") {
            Some(Member::Raw(text)) if text.starts_with('"') && text.len() > 2 => Some(text),
            _ => None,
        }
    }
}

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Assembler {
    endpoint: Endpoint,
    expected_choices: u64,
    max_bytes: usize,
    top: Members,
    choices: BTreeMap<u64, Choice>,
    usage: Option<String>,
    reported: Reported,
    kept_bytes: usize,
    pieces: u64,
    done_marker: bool,
}

impl Assembler {
    /// An answer of `expected_choices` choices that may keep `max_bytes`.
    pub(super) fn new(endpoint: Endpoint, expected_choices: u64, max_bytes: usize) -> Self {
        Self {
            endpoint,
            expected_choices,
            max_bytes,
            top: Members::default(),
            choices: BTreeMap::new(),
            usage: None,
            reported: Reported::default(),
            kept_bytes: 0,
            pieces: 0,
            done_marker: false,
        }
    }

    /// Takes in the data of one event.
    pub(super) fn add(&mut self, data: &[u8]) -> Result<Brought, BadChunk> {
        let chunk = RawObject::parse(data).map_err(|error| BadChunk::Invalid(error.to_string()))?;
        let says_error = chunk
            .get("object")
            .is_some_and(|object| object.get() == "\"error\"");
        if says_error || chunk.get("error").is_some_and(raw::is_truthy) {
            return Err(BadChunk::Error);
        }
        let mut tally = Tally {
            kept_bytes: self.kept_bytes,
            text_came: false,
        };
        self.top.grow(Place::Chunk, &chunk, &mut tally)?;
        let choices = match chunk.get("choices") {
            Some(choices) if !raw::is_null(choices) => raw::items(choices)
                .ok_or_else(|| BadChunk::Invalid("choices is no list".to_owned()))?,
            _ => Vec::new(),
        };
        for choice in &choices {
            self.add_choice(choice, &mut tally)?;
        }
        let usage = chunk.get("usage").filter(|usage| !raw::is_null(usage));
        if let Some(usage) = usage {
            self.note_usage(usage, &mut tally);
        }
        self.kept_bytes = tally.kept_bytes;
        if self.kept_bytes > self.max_bytes {
            return Err(BadChunk::TooLarge);
        }
        Ok(Brought {
            progress: usage.is_some() || !choices.is_empty(),
            usage_only: usage.is_some() && choices.is_empty(),
        })
    }

    fn add_choice(&mut self, choice: &RawValue, tally: &mut Tally) -> Result<(), BadChunk> {
        let choice = RawObject::of(choice)
            .ok_or_else(|| BadChunk::Invalid("a choice is no object".to_owned()))?;
        let index = rules::index_of(&choice).unwrap_or(0);
        if !self.choices.contains_key(&index) && self.choices.len() >= MAX_CHOICES {
            return Err(BadChunk::Invalid("there are too many choices".to_owned()));
        }
        let mut own = Tally {
            kept_bytes: tally.kept_bytes,
            text_came: false,
        };
        self.choices
            .entry(index)
            .or_default()
            .0
            .grow(Place::Choice, &choice, &mut own)?;
        tally.kept_bytes = own.kept_bytes;
        self.pieces += u64::from(own.text_came);
        Ok(())
    }

    fn note_usage(&mut self, usage: &RawValue, tally: &mut Tally) {
        let odd = self.reported.odd;
        self.reported = usage::read(Some(usage));
        self.reported.odd |= odd;
        let before = self.usage.replace(usage.get().to_owned());
        tally.kept_bytes = (tally.kept_bytes + usage.get().len())
            .saturating_sub(before.map_or(0, |text| text.len()));
    }

    /// The server sent its end marker.
    pub(super) fn note_done(&mut self) {
        self.done_marker = true;
    }

    /// Whether the end marker came.
    pub(super) fn is_done(&self) -> bool {
        self.done_marker
    }

    /// Whether the answer is whole: every choice seen has its finish reason, and none is missing. A server that sent its
    /// end marker is believed about how many choices there are, since some ignore `n`.
    pub(super) fn is_whole(&self) -> bool {
        let seen = self.choices.len() as u64;
        let enough = if self.done_marker {
            seen > 0
        } else {
            seen >= self.expected_choices.max(1)
        };
        enough
            && self
                .choices
                .values()
                .all(|choice| choice.finish_reason().is_some())
    }

    /// What is missing, for people.
    pub(super) fn missing(&self) -> String {
        let finished = self
            .choices
            .values()
            .filter(|choice| choice.finish_reason().is_some())
            .count();
        format!(
            "the stream ended with {finished} of {} choices finished{}",
            self.expected_choices.max(self.choices.len() as u64),
            if self.done_marker {
                ", though it says [DONE]"
            } else {
                ""
            }
        )
    }

    /// Whether anything of an answer came.
    pub(super) fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// Output tokens so far: the server's count if it gave one, else the pieces of text.
    pub(super) fn output_tokens(&self) -> u64 {
        self.reported.output.map_or(self.pieces, |reported| {
            if reported == 0 { self.pieces } else { reported }
        })
    }

    /// Pieces of text that came, the estimate of output tokens.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// The last usage the server reported.
    pub(super) fn reported(&self) -> Reported {
        self.reported
    }

    /// The finish reasons by index of their choices.
    pub(super) fn finish_reasons(&self) -> Vec<String> {
        let texts = self.choices.values().filter_map(Choice::finish_reason);
        texts
            .filter_map(|text| serde_json::from_str(text).ok())
            .collect()
    }

    /// The body so far; whole once [`Self::is_whole`].
    pub(super) fn body(&self) -> Vec<u8> {
        let object = match self.endpoint {
            Endpoint::Completions => "\"text_completion\"",
            _ => "\"chat.completion\"",
        };
        let write_object = |out: &mut Vec<u8>| out.extend_from_slice(object.as_bytes());
        let mut out = Vec::with_capacity(self.kept_bytes + 256);
        out.push(b'{');
        for (name, member) in self.top.iter() {
            write_member(&mut out, name, |out| {
                if name == "object" {
                    write_object(out)
                } else {
                    member.write(out)
                }
            });
        }
        if self.top.get("object").is_none() {
            write_member(&mut out, "object", write_object);
        }
        write_member(&mut out, "choices", |out| self.write_choices(out));
        if let Some(usage) = &self.usage {
            write_member(&mut out, "usage", |out| {
                out.extend_from_slice(usage.as_bytes())
            });
        }
        out.push(b'}');
        out
    }

    fn write_choices(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (position, (index, choice)) in self.choices.iter().enumerate() {
            if position > 0 {
                out.push(b',');
            }
            self.write_choice(*index, choice, out);
        }
        out.push(b']');
    }

    fn write_choice(&self, index: u64, choice: &Choice, out: &mut Vec<u8>) {
        // What every choice has, even one that broke off before its first piece.
        let (answer, empty) = match self.endpoint {
            Endpoint::Completions => ("text", "\"\""),
            _ => ("message", r#"{"role":"assistant","content":null}"#),
        };
        out.push(b'{');
        write_member(out, "index", |out| {
            out.extend_from_slice(index.to_string().as_bytes())
        });
        write_member(out, answer, |out| match choice.0.get(answer) {
            Some(Member::Object(message)) => write_message(message, out),
            Some(text @ Member::Text(_)) => text.write(out),
            _ => out.extend_from_slice(empty.as_bytes()),
        });
        for (name, member) in choice.0.iter().filter(|(name, _)| *name != answer) {
            write_member(out, name, |out| member.write(out));
        }
        if choice.0.get("finish_reason").is_none() {
            write_member(out, "finish_reason", |out| out.extend_from_slice(b"null"));
        }
        out.push(b'}');
    }
}

/// A message has a role and a content in any case; the content of one that only calls tools is null.
fn write_message(message: &Members, out: &mut Vec<u8>) {
    let calls = ["tool_calls", "function_call"].iter().any(|name| {
        matches!(
            message.get(name),
            Some(Member::Indexed(_) | Member::Object(_))
        )
    });
    out.push(b'{');
    write_member(out, "role", |out| match message.get("role") {
        Some(Member::Raw(role)) if role != "null" => out.extend_from_slice(role.as_bytes()),
        _ => out.extend_from_slice(b"\"assistant\""),
    });
    write_member(out, "content", |out| match message.get("content") {
        Some(Member::Text(text)) if text.is_empty() && calls => out.extend_from_slice(b"null"),
        Some(content) => content.write(out),
        None => out.extend_from_slice(b"null"),
    });
    for (name, member) in message
        .iter()
        .filter(|(name, _)| !matches!(*name, "role" | "content"))
    {
        write_member(out, name, |out| member.write(out));
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
