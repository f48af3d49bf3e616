//! How a step is bound: a script, its arguments by name, and its reply as plain values.

use std::fmt;

use super::op::Op;
use super::script::Script;
use crate::domain::PoolName;

/// Version of the data layout; part of every key, raised where old and new processes could not share keys.
pub const SCHEMA: u32 = 1;

/// Prefix of all keys of a pool. The pool's name is the hash tag, so one node holds them all.
pub fn base(pool: &PoolName) -> String {
    format!("tg{SCHEMA}:{{{pool}}}")
}

/// One invocation of a step.
pub struct Call {
    /// The step's script.
    pub script: &'static Script,
    /// KEYS[1].
    pub base: String,
    /// ARGV, in the order of the script's header.
    pub args: Vec<Vec<u8>>,
}

impl Call {
    /// Starts to bind `script` for `pool`.
    pub fn new(script: &'static Script, pool: &PoolName) -> Self {
        Self {
            script,
            base: base(pool),
            args: Vec::with_capacity(16),
        }
    }

    /// Binds the next argument. Debug and test builds compare its name with the header.
    pub fn arg(&mut self, name: &str, value: impl Arg) -> &mut Self {
        debug_assert!(
            self.script.names_arg(self.args.len(), name),
            "{}: argument {} is not `{name}`",
            self.script.name,
            self.args.len() + 1
        );
        self.args.push(value.to_arg());
        self
    }
}

/// What may be an argument.
pub trait Arg {
    /// Its bytes.
    fn to_arg(self) -> Vec<u8>;
}

impl Arg for &str {
    fn to_arg(self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl Arg for &[u8] {
    fn to_arg(self) -> Vec<u8> {
        self.to_vec()
    }
}

impl Arg for u64 {
    fn to_arg(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

impl Arg for Option<u64> {
    /// Unknown is -1.
    fn to_arg(self) -> Vec<u8> {
        self.map_or_else(|| b"-1".to_vec(), Arg::to_arg)
    }
}

impl Arg for bool {
    fn to_arg(self) -> Vec<u8> {
        if self { b"1".to_vec() } else { b"0".to_vec() }
    }
}

/// A reply as the server gave it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Nil,
    /// A number; steps reply none.
    Int(i64),
    /// A string.
    Bytes(Vec<u8>),
    /// A list.
    Array(Vec<Value>),
}

/// A reply that is not in the step's header: the script and its face have drifted, or the data is not ours.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: unexpected reply: {what}")]
pub struct Corrupt {
    /// The step.
    pub step: &'static str,
    /// What was wrong with it.
    pub what: String,
}

/// Why a reply was not believed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misread {
    /// It does not carry the identity of this send: it answers something else, and what became of the step is unknown.
    #[error("{step}: the reply answers another command")]
    Foreign {
        /// The step that was sent.
        step: &'static str,
    },
    /// It answers this send, with what its header does not have.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// A step's reply after its refusals that all steps share.
#[derive(Debug, PartialEq)]
pub enum Outcome<T> {
    /// It arrived after its deadline and did nothing.
    Late,
    /// There is no such pool.
    NoPool,
    /// The step's own reply.
    Done(T),
}

/// Reads a reply from left to right.
pub struct Reply {
    step: &'static str,
    now_ms: u64,
    items: std::vec::IntoIter<Value>,
}

impl Reply {
    /// Opens a reply of `step`.
    ///
    /// # Errors
    /// Where it is not a list.
    pub fn new(step: &'static str, value: Value) -> Result<Self, Corrupt> {
        match value {
            Value::Array(items) => Ok(Self {
                step,
                now_ms: 0,
                items: items.into_iter(),
            }),
            other => Err(Corrupt {
                step,
                what: format!("{other:?} is no list"),
            }),
        }
    }

    /// The pool's time at the step, once the reply's head was read.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Remembers the pool's time.
    pub(super) fn set_now_ms(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// An error about this reply.
    pub fn corrupt(&self, what: impl fmt::Display) -> Corrupt {
        Corrupt {
            step: self.step,
            what: what.to_string(),
        }
    }

    /// The next item's bytes.
    ///
    /// # Errors
    /// Where it is missing or no string.
    pub fn bytes(&mut self) -> Result<Vec<u8>, Corrupt> {
        match self.items.next() {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            Some(Value::Int(n)) => Ok(n.to_string().into_bytes()),
            Some(Value::Nil) => Ok(Vec::new()),
            other => Err(self.corrupt(format_args!("{other:?} is no string"))),
        }
    }

    /// The next item as text.
    ///
    /// # Errors
    /// As [`Reply::bytes`], or where it is not UTF-8.
    pub fn text(&mut self) -> Result<String, Corrupt> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes).map_err(|e| self.corrupt(e))
    }

    /// The next item as a number.
    ///
    /// # Errors
    /// As [`Reply::text`], or where it is no number.
    pub fn number(&mut self) -> Result<u64, Corrupt> {
        let text = self.text()?;
        text.parse()
            .map_err(|_| self.corrupt(format_args!("`{text}` is no number")))
    }

    /// The next item as a number that is followed by the identity of the send `op`.
    ///
    /// # Errors
    /// Where it is anything else.
    pub fn answers(&mut self, op: &Op) -> Result<u64, Corrupt> {
        let text = self.text()?;
        text.strip_suffix(op.as_str())
            .and_then(|number| number.strip_suffix(' '))
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| self.corrupt(format_args!("`{text}` does not answer {op}")))
    }

    /// The next item as a number, none where it is empty.
    ///
    /// # Errors
    /// As [`Reply::number`].
    pub fn maybe_number(&mut self) -> Result<Option<u64>, Corrupt> {
        let text = self.text()?;
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|_| self.corrupt(format_args!("`{text}` is no number")))
    }

    /// The next item as a word of the protocol.
    ///
    /// # Errors
    /// As [`Reply::text`], or where the word is unknown.
    pub fn word<T: std::str::FromStr<Err: fmt::Display>>(&mut self) -> Result<T, Corrupt> {
        let text = self.text()?;
        text.parse().map_err(|e| self.corrupt(e))
    }

    /// The next item as a list, none at the end.
    ///
    /// # Errors
    /// Where it is no list.
    pub fn list(&mut self) -> Result<Option<Reply>, Corrupt> {
        match self.items.next() {
            None => Ok(None),
            Some(value) => Reply::new(self.step, value).map(Some),
        }
    }

    /// All that remains, as pairs.
    ///
    /// # Errors
    /// As [`Reply::text`], or where the count is odd.
    pub fn pairs<C: FromIterator<(String, String)>>(&mut self) -> Result<C, Corrupt> {
        let mut pairs = Vec::with_capacity(self.items.len() / 2);
        while self.items.len() > 0 {
            pairs.push((self.text()?, self.text()?));
        }
        Ok(pairs.into_iter().collect())
    }

    /// Whether nothing remains.
    pub fn is_done(&self) -> bool {
        self.items.len() == 0
    }
}
