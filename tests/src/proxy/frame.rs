//! Cuts a stream of bytes into the messages of the store's protocol (RESP2, and the further types of RESP3).
//!
//! Format: <https://redis.io/docs/latest/develop/reference/protocol-spec/>. Nothing here fails: what is not the protocol is
//! passed as it comes, unframed, from there on.

use bytes::{Bytes, BytesMut};

use super::Direction;

/// A longer message is passed unframed. Above the largest request body and result that the product takes.
const FRAME_MAX_BYTES: usize = 64 * 1024 * 1024;
/// Longest line of a length or a simple value; the store's errors are far shorter.
const LINE_MAX_BYTES: usize = 64 * 1024;
/// Most lists open at once; the product's replies have four.
const DEPTH_MAX: usize = 32;

/// A piece of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// One whole message.
    Frame(Bytes),
    /// Bytes as they came.
    Raw(Bytes),
}

/// Finds messages in one direction of one connection.
#[derive(Debug)]
pub(super) struct Framer {
    direction: Direction,
    buffer: BytesMut,
    /// Up to where the message at the buffer's start was understood.
    at: usize,
    /// Items still to come of each open list; empty at the start of a message.
    open: Vec<usize>,
    raw: bool,
}

/// What stands at a place of the buffer.
enum Item {
    /// A value that ends there.
    Value(usize),
    /// A list that begins, and how many items it has.
    List(usize, usize),
    /// Its end has not come yet.
    Partial,
    /// It is something else.
    Foreign,
}

impl Framer {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            buffer: BytesMut::new(),
            at: 0,
            open: Vec::new(),
            raw: false,
        }
    }

    /// From here on nothing is framed: the connection speaks something else.
    pub(super) fn give_up(&mut self) {
        self.raw = true;
    }

    /// Takes what was read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole piece. All bytes come out, in order, each once.
    pub(super) fn next(&mut self) -> Option<Piece> {
        if !self.raw {
            match self.scan() {
                Some(end) => {
                    self.at = 0;
                    return Some(Piece::Frame(self.buffer.split_to(end).freeze()));
                }
                None if self.buffer.len() > FRAME_MAX_BYTES => self.raw = true,
                None => {}
            }
        }
        (self.raw && !self.buffer.is_empty()).then(|| Piece::Raw(self.buffer.split().freeze()))
    }

    /// What is left of a message whose end never came.
    pub(super) fn rest(&mut self) -> Bytes {
        self.buffer.split().freeze()
    }

    /// End of the message at the buffer's start, once it is there.
    fn scan(&mut self) -> Option<usize> {
        loop {
            match self.item() {
                Item::Value(end) => self.at = end,
                Item::List(end, 0) => self.at = end,
                Item::List(end, items) if self.open.len() < DEPTH_MAX => {
                    self.at = end;
                    self.open.push(items);
                    continue;
                }
                Item::Partial => return None,
                Item::List(..) | Item::Foreign => {
                    self.raw = true;
                    return None;
                }
            }
            while let Some(left) = self.open.last_mut() {
                *left -= 1;
                if *left > 0 {
                    break;
                }
                self.open.pop();
            }
            if self.open.is_empty() {
                return Some(self.at);
            }
        }
    }

    fn item(&self) -> Item {
        let rest = &self.buffer[self.at..];
        let Some(&kind) = rest.first() else {
            return Item::Partial;
        };
        // A command is a list of strings; an inline command, or another protocol, is not taken apart.
        let expected: &[u8] = match (self.direction, self.open.is_empty()) {
            (Direction::Request, true) => b"*",
            (Direction::Request, false) => b"$",
            (Direction::Reply, _) => b"+-:$*_#,(!=%~>",
        };
        if !expected.contains(&kind) {
            return Item::Foreign;
        }
        let Some(line) = rest
            .windows(2)
            .take(LINE_MAX_BYTES)
            .position(|w| w == b"\r\n")
        else {
            return match rest.len() > LINE_MAX_BYTES {
                true => Item::Foreign,
                false => Item::Partial,
            };
        };
        let end = self.at + line + 2;
        if b"+-:_#,(".contains(&kind) {
            return Item::Value(end);
        }
        let Some(length) = length(&rest[1..line]) else {
            return Item::Foreign;
        };
        match (kind, length) {
            // No value.
            (_, None) => Item::Value(end),
            (b'*' | b'~' | b'>', Some(items)) => Item::List(end, items),
            (b'%', Some(pairs)) => Item::List(end, pairs * 2),
            (_, Some(bytes)) if self.buffer.len() < end + bytes + 2 => Item::Partial,
            (_, Some(bytes)) => Item::Value(end + bytes + 2),
        }
    }
}

/// A length as it is written; `-1` says that there is no value. None where it is neither.
fn length(text: &[u8]) -> Option<Option<usize>> {
    if text == b"-1" {
        return Some(None);
    }
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let length: usize = std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()?;
    (length <= FRAME_MAX_BYTES).then_some(Some(length))
}

/// The strings of a command.
pub(super) fn arguments(frame: &Bytes) -> Vec<Bytes> {
    let mut arguments = Vec::new();
    let mut at = line_end(frame, 0);
    while at < frame.len() && frame[at] == b'$' {
        let from = line_end(frame, at);
        let written = frame.get(at + 1..from.saturating_sub(2));
        let bytes = written.and_then(length).flatten();
        let until = from + bytes.unwrap_or(0);
        if until > frame.len() {
            break;
        }
        arguments.push(frame.slice(from..until));
        at = if bytes.is_some() { until + 2 } else { from };
    }
    arguments
}

/// Behind the end of the line that begins at `from`.
fn line_end(frame: &[u8], from: usize) -> usize {
    let line = frame[from..].windows(2).position(|w| w == b"\r\n");
    line.map_or(frame.len(), |n| from + n + 2)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// Feeds `stream` cut at `cuts`, and gives the pieces.
    fn feed(direction: Direction, stream: &[u8], cuts: &[usize]) -> (Vec<Piece>, Bytes) {
        let mut framer = Framer::new(direction);
        let mut pieces = Vec::new();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            framer.push(&stream[pair[0]..pair[1]]);
            pieces.extend(std::iter::from_fn(|| framer.next()));
        }
        (pieces, framer.rest())
    }

    fn command(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut frame = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            frame.extend(format!("${}\r\n", argument.len()).into_bytes());
            frame.extend(argument);
            frame.extend(b"\r\n");
        }
        frame
    }

    fn reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            Just(b"$-1\r\n".to_vec()),
            Just(b"*0\r\n".to_vec()),
            Just(b"_\r\n".to_vec()),
            "[a-zA-Z ]{0,20}".prop_map(|s| format!("+{s}\r\n").into_bytes()),
            "[A-Z]{1,9} [a-z ]{0,20}".prop_map(|s| format!("-{s}\r\n").into_bytes()),
            any::<i64>().prop_map(|n| format!(":{n}\r\n").into_bytes()),
            prop::collection::vec(any::<u8>(), 0..60).prop_map(|bytes| {
                [format!("${}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat()
            }),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop::collection::vec(inner, 1..5).prop_map(|items| {
                [format!("*{}\r\n", items.len()).into_bytes(), items.concat()].concat()
            })
        })
    }

    proptest! {
        #[test]
        fn commands_come_out_whole_however_they_are_cut(
            commands in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 1..6),
            cuts in prop::collection::vec(any::<usize>(), 0..30),
        ) {
            let frames: Vec<Vec<u8>> = commands.iter().map(|c| command(c)).collect();
            let (pieces, rest) = feed(Direction::Request, &frames.concat(), &cuts);
            let wanted: Vec<Piece> = frames.iter().map(|f| Piece::Frame(f.clone().into())).collect();
            prop_assert_eq!(&pieces, &wanted);
            prop_assert!(rest.is_empty());
            for (frame, command) in frames.into_iter().zip(&commands) {
                let read = arguments(&frame.into());
                prop_assert_eq!(&read, command);
            }
        }

        #[test]
        fn replies_come_out_whole_however_they_are_cut(
            replies in prop::collection::vec(reply(), 1..6),
            cuts in prop::collection::vec(any::<usize>(), 0..30),
        ) {
            let (pieces, rest) = feed(Direction::Reply, &replies.concat(), &cuts);
            let wanted: Vec<Piece> = replies.iter().map(|r| Piece::Frame(r.clone().into())).collect();
            prop_assert_eq!(pieces, wanted);
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_pass_unchanged(
            replies in prop::collection::vec(reply(), 0..3),
            junk in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'9')], 0..200),
            cuts in prop::collection::vec(any::<usize>(), 0..30),
            request in any::<bool>(),
        ) {
            let direction = if request { Direction::Request } else { Direction::Reply };
            let stream = [replies.concat(), junk].concat();
            let (pieces, rest) = feed(direction, &stream, &cuts);
            let mut out = Vec::new();
            for piece in &pieces {
                let (Piece::Frame(bytes) | Piece::Raw(bytes)) = piece;
                let _ = arguments(bytes);
                out.extend_from_slice(bytes);
            }
            out.extend_from_slice(&rest);
            prop_assert_eq!(out, stream);
        }
    }

    #[test]
    fn what_is_no_command_passes_at_once() {
        let (pieces, rest) = feed(Direction::Request, b"GET / HTTP/1.1\r\n", &[3]);
        assert_eq!(pieces.len(), 2, "{pieces:?}");
        assert!(rest.is_empty());
        for huge in ["*99999999999999999999\r\n", "$99999999999\r\n", "*-7\r\n"] {
            let (pieces, rest) = feed(Direction::Reply, huge.as_bytes(), &[]);
            assert_eq!(pieces, [Piece::Raw(huge.into())]);
            assert!(rest.is_empty());
        }
        let nested = "*1\r\n".repeat(100);
        let (pieces, _) = feed(Direction::Reply, nested.as_bytes(), &[]);
        assert_eq!(pieces, [Piece::Raw(nested.into())]);
    }
}
