//! One pass over a JSON text before anything is built from it: grammar, encoding, nesting, duplicate keys and the range
//! of numbers. It does not recurse and allocates no more than the text is long.
//!
//! It accepts what `serde_json` reads into a `Value`, less what its own two bounds refuse; a property test holds both
//! together.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::error::{Code, Problem};
use keys::Keys;

mod keys;

/// Longest path that is shown, in bytes: a path is as deep as the caller's text.
const MAX_PATH_BYTES: usize = 200;
/// Integer digits up to which a number without an exponent is in the range of a double, whose largest has 309.
const SAFE_DIGITS: usize = 300;

/// Why a text is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not JSON: at this byte something else was expected.
    Syntax { at: usize, expected: &'static str },
    /// Not UTF-8 at this byte.
    Encoding { at: usize },
    /// Nested deeper than allowed.
    TooDeep { path: String, max_depth: u32 },
    /// The key stands twice in one object.
    DuplicateKey { path: String },
    /// A number that no double can hold.
    OutOfRange { path: String },
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Syntax { at, expected } => Self::new(
                Code::InvalidJson,
                format!("the body is not valid JSON: expected {expected} at byte {at}"),
            ),
            Fault::Encoding { at } => Self::new(
                Code::InvalidJson,
                format!("the body is not valid UTF-8 at byte {at}"),
            ),
            Fault::TooDeep { path, max_depth } => Self::field(
                Code::TooDeep,
                path,
                format!("is nested deeper than {max_depth} levels"),
            )
            .limit("max_depth", u64::from(max_depth)),
            Fault::DuplicateKey { path } => {
                Self::field(Code::DuplicateKey, path, "stands twice in its object")
            }
            Fault::OutOfRange { path } => Self::field(
                Code::InvalidValue,
                path,
                "is a number beyond the range of a double",
            ),
        }
    }
}

/// Judges `bytes`. Nesting counts from the text's own value; inside the member `rebase` of the outermost object, if it
/// is named, it counts from that member's value, so that a request is judged alike wherever it travels.
pub(crate) fn scan(bytes: &[u8], max_depth: u32, rebase: Option<&str>) -> Result<(), Fault> {
    let text = std::str::from_utf8(bytes).map_err(|e| Fault::Encoding {
        at: e.valid_up_to(),
    })?;
    let mut scanner = Scanner {
        text,
        bytes,
        at: 0,
        max_depth,
        rebase,
        frames: Vec::new(),
    };
    loop {
        if scanner.value()? {
            continue;
        }
        if !scanner.next_value()? {
            return Ok(());
        }
    }
}

/// A container that is open.
enum Frame<'a> {
    Array { index: usize },
    Object { keys: Keys<'a>, key: Cow<'a, str> },
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    max_depth: u32,
    rebase: Option<&'a str>,
    frames: Vec<Frame<'a>>,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, Fault> {
        Err(Fault::Syntax {
            at: self.at,
            expected,
        })
    }

    /// Reads a value, or the opening of one that is not empty: then the next value is inside it (true).
    fn value(&mut self) -> Result<bool, Fault> {
        self.space();
        match self.peek() {
            Some(b'{') => {
                self.open(Frame::Object {
                    keys: Keys::default(),
                    key: Cow::Borrowed(""),
                })?;
                if self.closes(b'}') {
                    return Ok(false);
                }
                self.key()?;
                return Ok(true);
            }
            Some(b'[') => {
                self.open(Frame::Array { index: 0 })?;
                return Ok(!self.closes(b']'));
            }
            Some(b'"') => self.string().map(|_| ())?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            Some(b'n') => self.literal("null")?,
            _ => return self.expected("a value"),
        }
        Ok(false)
    }

    /// After a value: moves to the next one. False at the end of the text.
    fn next_value(&mut self) -> Result<bool, Fault> {
        loop {
            self.space();
            let byte = self.peek();
            match (self.frames.last_mut(), byte) {
                (None, None) => return Ok(false),
                (None, Some(_)) => return self.expected("the end"),
                (Some(Frame::Array { index }), Some(b',')) => {
                    *index += 1;
                    self.at += 1;
                    return Ok(true);
                }
                (Some(Frame::Object { .. }), Some(b',')) => {
                    self.at += 1;
                    self.space();
                    self.key()?;
                    return Ok(true);
                }
                (Some(Frame::Array { .. }), Some(b']'))
                | (Some(Frame::Object { .. }), Some(b'}')) => {
                    self.at += 1;
                    self.frames.pop();
                }
                (Some(Frame::Array { .. }), _) => return self.expected("`,` or `]`"),
                (Some(Frame::Object { .. }), _) => return self.expected("`,` or `}`"),
            }
        }
    }

    fn open(&mut self, frame: Frame<'a>) -> Result<(), Fault> {
        let based = match (self.rebase, self.frames.first()) {
            (Some(name), Some(Frame::Object { key, .. })) => usize::from(key == name),
            _ => 0,
        };
        if self.frames.len() + 1 - based > self.max_depth as usize {
            return Err(Fault::TooDeep {
                path: self.path(),
                max_depth: self.max_depth,
            });
        }
        self.at += 1;
        self.frames.push(frame);
        self.space();
        Ok(())
    }

    /// Closes the container that was just opened, if it is empty.
    fn closes(&mut self, with: u8) -> bool {
        let closes = self.peek() == Some(with);
        if closes {
            self.at += 1;
            self.frames.pop();
        }
        closes
    }

    fn key(&mut self) -> Result<(), Fault> {
        if self.peek() != Some(b'"') {
            return self.expected("a key in quotes");
        }
        let start = self.at;
        let escaped = self.string()?;
        let quoted = &self.text[start..self.at];
        // `\u0061` and `a` are the same key.
        let name = if escaped {
            Cow::Owned(serde_json::from_str(quoted).map_err(|_| Fault::Syntax {
                at: start,
                expected: "a key",
            })?)
        } else {
            Cow::Borrowed(&quoted[1..quoted.len() - 1])
        };
        let mut new = true;
        if let Some(Frame::Object { keys, key }) = self.frames.last_mut() {
            new = keys.add(name.clone());
            *key = name;
        }
        if !new {
            return Err(Fault::DuplicateKey { path: self.path() });
        }
        self.space();
        if self.peek() != Some(b':') {
            return self.expected("`:`");
        }
        self.at += 1;
        Ok(())
    }

    fn literal(&mut self, word: &'static str) -> Result<(), Fault> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            self.expected("a value")
        }
    }

    /// Reads a string; true where it has escapes.
    fn string(&mut self) -> Result<bool, Fault> {
        self.at += 1;
        let mut escaped = false;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.at += 1;
                    self.escape()?;
                }
                Some(0..=0x1f) => return self.expected("no raw control character inside a string"),
                Some(_) => self.at += 1,
                None => return self.expected("the string's closing quote"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                match self.hex4()? {
                    0xD800..=0xDBFF if self.bytes[self.at..].starts_with(b"\\u") => {
                        self.at += 2;
                        match self.hex4()? {
                            0xDC00..=0xDFFF => Ok(()),
                            _ => self.expected("the second half of a surrogate pair"),
                        }
                    }
                    // Half a pair is no text: a model server fails on it where it can explain nothing.
                    0xD800..=0xDFFF => self.expected("a whole surrogate pair"),
                    _ => Ok(()),
                }
            }
            _ => self.expected("an escape"),
        }
    }

    fn hex4(&mut self) -> Result<u32, Fault> {
        let mut value = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return self.expected("four hexadecimal digits");
            };
            value = value * 16 + digit;
            self.at += 1;
        }
        Ok(value)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let first = self.peek();
        let whole = self.digits();
        if whole == 0 || (first == Some(b'0') && whole > 1) {
            return self.expected("a number");
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return self.expected("a digit");
            }
        }
        let mut exponent = false;
        if matches!(self.peek(), Some(b'e' | b'E')) {
            exponent = true;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.expected("a digit");
            }
        }
        let doubtful = exponent || whole > SAFE_DIGITS;
        if doubtful
            && !self.text[start..self.at]
                .parse::<f64>()
                .is_ok_and(f64::is_finite)
        {
            return Err(Fault::OutOfRange { path: self.path() });
        }
        Ok(())
    }

    /// Where we are, e.g. `body.messages[0].content`; cut where it gets long.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match frame {
                Frame::Array { index } => write!(path, "[{index}]").expect("a string takes all"),
                Frame::Object { key, .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.extend(key.chars().take(MAX_PATH_BYTES));
                }
            }
            if path.len() > MAX_PATH_BYTES {
                let mut end = MAX_PATH_BYTES;
                while !path.is_char_boundary(end) {
                    end -= 1;
                }
                path.truncate(end);
                path.push('…');
                break;
            }
        }
        if path.is_empty() {
            path.push_str("(the body)");
        }
        path
    }
}

#[cfg(test)]
mod tests;
