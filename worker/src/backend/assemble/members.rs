//! Values that grow, chunk by chunk, out of raw JSON.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::super::raw::{self, RawObject};
use super::rules::{self, Place, Rule};

/// Most members of one object and most items by index; a real answer has a dozen. Looking a member up is linear, so
/// this keeps a hostile answer from costing quadratic time.
const MAX_MEMBERS: usize = 1_024;

/// A chunk that cannot be part of an answer; the text says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// What taking a value in did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    /// Bytes kept, all in all.
    pub(super) kept_bytes: usize,
    /// A piece of text that was not empty came.
    pub(super) text_came: bool,
}

/// Members of an object in the order they were first seen.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<(String, Member)>);

/// One value.
#[derive(Debug)]
pub(super) enum Member {
    /// As it came.
    Raw(String),
    /// The inside of a JSON string, escapes as they came.
    Text(String),
    /// The inside of a JSON array.
    List(String),
    /// An object that grows.
    Object(Members),
    /// Objects that grow, by index.
    Indexed(BTreeMap<u64, Members>),
}

impl Members {
    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, member)| member)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.0.iter().map(|(key, member)| (key.as_str(), member))
    }

    /// Takes in every member of an object that stands at `place`.
    pub(super) fn grow(
        &mut self,
        place: Place,
        object: &RawObject<'_>,
        tally: &mut Tally,
    ) -> Result<(), Malformed> {
        if object.len() > MAX_MEMBERS {
            return Err(Malformed("an object has too many members"));
        }
        for (name, value) in object.iter() {
            let rule = rules::rule(place, name, value);
            if rule != Rule::Skip {
                let kept_as = if place == Place::Choice && name == "delta" {
                    "message"
                } else {
                    name
                };
                self.take(kept_as, rule, value, tally)?;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        name: &str,
        rule: Rule,
        value: &RawValue,
        tally: &mut Tally,
    ) -> Result<(), Malformed> {
        let position = match self.0.iter().position(|(key, _)| key == name) {
            // A null says that there is nothing new.
            Some(_) if raw::is_null(value) => return Ok(()),
            Some(position) => position,
            None if self.0.len() >= MAX_MEMBERS => {
                return Err(Malformed("an object has too many members"));
            }
            None => {
                tally.kept_bytes += name.len() + 4;
                self.0
                    .push((name.to_owned(), Member::Raw("null".to_owned())));
                self.0.len() - 1
            }
        };
        if !raw::is_null(value) {
            self.0[position].1.take(rule, value, tally)?;
        }
        Ok(())
    }

    /// Writes the object.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (name, member) in self.iter() {
            write_member(out, name, |out| member.write(out));
        }
        out.push(b'}');
    }
}

impl Member {
    fn take(&mut self, rule: Rule, value: &RawValue, tally: &mut Tally) -> Result<(), Malformed> {
        match rule {
            Rule::Join | Rule::JoinNew => {
                let piece = raw::string_inside(value).ok_or(Malformed("a text is no text"))?;
                self.join(piece, rule == Rule::JoinNew, tally);
            }
            Rule::Append => {
                let inside = value
                    .get()
                    .strip_prefix('[')
                    .and_then(|text| text.strip_suffix(']'));
                let inside = inside.ok_or(Malformed("a list is no list"))?.trim();
                let list = self.become_list();
                if !list.is_empty() && !inside.is_empty() {
                    list.push(',');
                }
                list.push_str(inside);
                tally.kept_bytes += inside.len() + 1;
            }
            Rule::Grow(place) => {
                let object = RawObject::of(value).ok_or(Malformed("an object cannot be read"))?;
                self.become_object().grow(place, &object, tally)?;
            }
            Rule::GrowByIndex => self.grow_by_index(value, tally)?,
            Rule::First if !matches!(self, Self::Raw(text) if rules::says_nothing(text)) => {}
            Rule::First | Rule::Last => {
                // Added before it is taken away, so that the count cannot pass below zero.
                tally.kept_bytes += value.get().len();
                if let Self::Raw(text) = self {
                    tally.kept_bytes = tally.kept_bytes.saturating_sub(text.len());
                }
                *self = Self::Raw(value.get().to_owned());
            }
            Rule::Skip => {}
        }
        Ok(())
    }

    fn join(&mut self, piece: &str, only_if_new: bool, tally: &mut Tally) {
        if !matches!(self, Self::Text(_)) {
            *self = Self::Text(String::new());
        }
        if let Self::Text(text) = self
            && !(only_if_new && text == piece)
        {
            text.push_str(piece);
            tally.kept_bytes += piece.len();
        }
        tally.text_came |= !piece.is_empty();
    }

    fn become_list(&mut self) -> &mut String {
        if !matches!(self, Self::List(_)) {
            *self = Self::List(String::new());
        }
        match self {
            Self::List(list) => list,
            _ => unreachable!("made a list above"),
        }
    }

    fn become_object(&mut self) -> &mut Members {
        if !matches!(self, Self::Object(_)) {
            *self = Self::Object(Members::default());
        }
        match self {
            Self::Object(members) => members,
            _ => unreachable!("made an object above"),
        }
    }

    fn grow_by_index(&mut self, value: &RawValue, tally: &mut Tally) -> Result<(), Malformed> {
        if !matches!(self, Self::Indexed(_)) {
            *self = Self::Indexed(BTreeMap::new());
        }
        let Self::Indexed(entries) = self else {
            return Ok(());
        };
        for item in raw::items(value).ok_or(Malformed("a list cannot be read"))? {
            let item = RawObject::of(item).ok_or(Malformed("a tool call is no object"))?;
            let index = rules::index_of(&item).unwrap_or_else(|| unnumbered(entries, &item));
            if !entries.contains_key(&index) && entries.len() >= MAX_MEMBERS {
                return Err(Malformed("there are too many tool calls"));
            }
            entries
                .entry(index)
                .or_default()
                .grow(Place::ToolCall, &item, tally)?;
        }
        Ok(())
    }

    /// Writes the value.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut around = |open: u8, text: &str, close: u8| {
            out.push(open);
            out.extend_from_slice(text.as_bytes());
            out.push(close);
        };
        match self {
            Self::Raw(text) => out.extend_from_slice(text.as_bytes()),
            Self::Text(text) => around(b'"', text, b'"'),
            Self::List(list) => around(b'[', list, b']'),
            Self::Object(members) => members.write(out),
            Self::Indexed(entries) => {
                out.push(b'[');
                for (position, members) in entries.values().enumerate() {
                    if position > 0 {
                        out.push(b',');
                    }
                    members.write(out);
                }
                out.push(b']');
            }
        }
    }
}

/// Where an item without an index belongs: to the one with its id, else it starts a new one if it carries an id, else it
/// goes on with the last.
fn unnumbered(entries: &BTreeMap<u64, Members>, item: &RawObject<'_>) -> u64 {
    let last = entries.keys().next_back().copied();
    let id = item
        .get("id")
        .filter(|id| !raw::is_null(id))
        .map(RawValue::get);
    let same_id = id.and_then(|id| {
        entries
            .iter()
            .find(|(_, members)| matches!(members.get("id"), Some(Member::Raw(text)) if text == id))
    });
    match (same_id, last) {
        (Some((index, _)), _) => *index,
        (None, Some(last)) if id.is_some() => last.saturating_add(1),
        (None, last) => last.unwrap_or(0),
    }
}

/// Writes one member of an object, with the comma before it where there is need for one.
pub(super) fn write_member(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    raw::write_key(out, name);
    value(out);
}
