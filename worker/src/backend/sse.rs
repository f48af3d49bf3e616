//! Cutting a byte stream into server-sent events, by the rules of the WHATWG HTML standard (§9.2.6).
//!
//! A parser of our own, because bytes must come out exactly as they came in, wherever the network cut them, and because
//! one event must be bounded.

use super::plain::BOM;

/// One event with data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Its data: the `data` lines joined by line feeds. Never empty.
    pub(super) data: Vec<u8>,
    /// Whether its `event` field says `error`.
    pub(super) named_error: bool,
}

/// An event grew beyond the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventTooLarge;

/// The parser's state between two pieces of input.
#[derive(Debug)]
pub(super) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    named_error: bool,
    after_cr: bool,
    at_start: bool,
    max_event_bytes: usize,
}

impl Parser {
    /// A parser that refuses an event (or a line) of more than `max_event_bytes`.
    pub(super) fn new(max_event_bytes: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            named_error: false,
            after_cr: false,
            at_start: true,
            max_event_bytes,
        }
    }

    /// Takes the next bytes and gives the events they complete. An event without data is no event. What is left
    /// incomplete at the end of the stream was never an event, as the standard has it.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Event>, EventTooLarge> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + part.len() > self.max_event_bytes {
                return Err(EventTooLarge);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events.extend(self.end_line()?);
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Result<Option<Event>, EventTooLarge> {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if std::mem::take(&mut self.at_start) {
            text = text.strip_prefix(BOM).unwrap_or(text);
        }
        if text.is_empty() {
            return Ok(self.end_event());
        }
        let (name, value) = match text.iter().position(|byte| *byte == b':') {
            Some(colon) => (&text[..colon], &text[colon + 1..]),
            None => (text, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if self.data.len() + value.len() + 1 > self.max_event_bytes {
                    return Err(EventTooLarge);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.named_error = value == b"error",
            // Comments have an empty name; `id`, `retry` and unknown fields say nothing about the answer.
            _ => {}
        }
        // The room is used again for the next line.
        self.line = line;
        self.line.clear();
        Ok(None)
    }

    fn end_event(&mut self) -> Option<Event> {
        let data = std::mem::take(&mut self.data);
        let named_error = std::mem::take(&mut self.named_error);
        self.has_data = false;
        (!data.iter().all(u8::is_ascii_whitespace)).then_some(Event { data, named_error })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn parse(input: &[u8]) -> Vec<String> {
        let events = Parser::new(1_000).push(input).unwrap();
        events
            .into_iter()
            .map(|event| String::from_utf8(event.data).unwrap())
            .collect()
    }

    #[test]
    fn every_line_ending_ends_a_line() {
        for input in [
            "data: a\n\ndata: b\n\n",
            "data: a\r\n\r\ndata: b\r\n\r\n",
            "data: a\r\rdata: b\r\r",
            "data: a\r\n\ndata:b\n\r\n",
        ] {
            assert_eq!(parse(input.as_bytes()), ["a", "b"], "{input:?}");
        }
    }

    #[test]
    fn data_lines_are_joined_and_only_one_space_is_taken() {
        assert_eq!(
            parse(b"data: a\ndata:  b\ndata\ndata:c\n\n"),
            ["a\n b\n\nc"]
        );
    }

    #[test]
    fn comments_other_fields_and_a_byte_order_mark_are_passed_over() {
        assert_eq!(
            parse(b"\xef\xbb\xbfdata: a\n: ping\nid: 1\nretry: 5\nfoo\nevent: x\n\n:\n\n\n"),
            ["a"]
        );
        assert_eq!(parse(b"\xef\xbb\xbf: x\n\n"), [""; 0]);
    }

    #[test]
    fn an_event_without_data_is_none() {
        assert_eq!(
            parse(b"event: ping\n\ndata:\n\ndata: \n\ndata: a\n\n"),
            ["a"]
        );
    }

    #[test]
    fn an_event_that_never_ended_is_none() {
        assert_eq!(parse(b"data: a\n\ndata: b\n"), ["a"]);
        assert_eq!(parse(b"data: a\n\ndata: b"), ["a"]);
    }

    #[test]
    fn an_error_event_is_known_by_its_name_for_one_event() {
        let events = Parser::new(100)
            .push(b"event: error\ndata: x\n\ndata: y\n\n")
            .unwrap();
        assert_eq!(
            events
                .iter()
                .map(|event| event.named_error)
                .collect::<Vec<_>>(),
            [true, false]
        );
    }

    #[test]
    fn one_event_is_bounded_in_a_line_and_over_lines() {
        assert_eq!(
            Parser::new(10).push(b"data: 12345678901"),
            Err(EventTooLarge)
        );
        assert_eq!(
            Parser::new(10).push(b"data:12\ndata:34\ndata:56\ndata:78\n"),
            Err(EventTooLarge)
        );
        let mut parser = Parser::new(10);
        for _ in 0..100 {
            assert_eq!(parser.push(b"data:1234\n\n").unwrap().len(), 1);
            assert_eq!(parser.push(b": a\n: b\n").unwrap(), []);
        }
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        prop::sample::select(vec![
            &b"data: {\"a\":\"\xc3\xa4\"}"[..],
            b"data",
            b"data:x",
            b": ping",
            b"event: error",
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"\r\n\r\n",
            b"\xef\xbb\xbf",
            b"data: [DONE]",
        ])
        .prop_map(<[u8]>::to_vec)
    }

    proptest! {
        #[test]
        fn splitting_anywhere_gives_the_same_events(
            pieces in prop::collection::vec(piece(), 0..30),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let input = pieces.concat();
            let whole = Parser::new(10_000).push(&input).unwrap();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
            at.extend([0, input.len()]);
            at.sort_unstable();
            let mut parser = Parser::new(10_000);
            let mut parts = Vec::new();
            for pair in at.windows(2) {
                parts.extend(parser.push(&input[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(&parts, &whole);
            let mut parser = Parser::new(10_000);
            let bytewise: Vec<_> = input.iter().flat_map(|byte| parser.push(&[*byte]).unwrap()).collect();
            prop_assert_eq!(&bytewise, &whole);
        }
    }
}
