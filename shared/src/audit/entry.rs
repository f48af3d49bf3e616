//! One script's run as it was recorded, and files of them.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{packed, unbind};
use crate::domain::PoolName;
use crate::domain::step::{Command, Reply};

/// One script's run: lua/lib/audit.lua writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// 1, 2, 3 … without a hole.
    pub number: u64,
    /// The step's name.
    pub step: String,
    /// The server's clock as the script read it, in ms; not made monotonic.
    pub raw_ms: u64,
    /// Its arguments, packed.
    #[serde(with = "serde_bytes")]
    pub args: Vec<u8>,
    /// What it replied, packed.
    #[serde(with = "serde_bytes")]
    pub reply: Vec<u8>,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// What was asked.
    pub command: Command,
    /// What the script replied.
    pub reply: Reply,
    /// The pool's time of that reply; none where the step says none.
    pub now_ms: Option<u64>,
}

impl Entry {
    /// Reads an entry of the stream.
    ///
    /// # Errors
    /// Where id or fields are not those of an entry; says which.
    pub fn from_stream(id: &str, fields: Vec<(String, Vec<u8>)>) -> Result<Self, String> {
        let number = id
            .strip_prefix("0-")
            .and_then(|n| n.parse().ok())
            .ok_or_else(|| format!("`{id}` is no number of an entry"))?;
        let mut entry = Self {
            number,
            step: String::new(),
            raw_ms: 0,
            args: Vec::new(),
            reply: Vec::new(),
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|e| e.to_string());
        for (name, value) in fields {
            match name.as_str() {
                "step" => entry.step = text(value)?,
                "raw_ms" => entry.raw_ms = text(value)?.parse().map_err(|_| "raw_ms".to_owned())?,
                "args" => entry.args = value,
                "reply" => entry.reply = value,
                other => return Err(format!("entry {number}: field `{other}`")),
            }
        }
        Ok(entry)
    }

    /// What it says of `pool`.
    ///
    /// # Errors
    /// Where its arguments or its reply are not in the step's header.
    pub fn read(&self, pool: &PoolName) -> Result<Read, String> {
        let args = packed::strings(&self.args)?;
        let (command, op) = unbind::command(&self.step, pool, args)?;
        let (now_ms, reply) = unbind::reply(&command.action, &op, packed::value(&self.reply)?)?;
        Ok(Read {
            command,
            reply,
            now_ms,
        })
    }
}

/// Writes a record to a file: the pool's name and each entry, MessagePack one behind the other.
///
/// # Errors
/// Where the file cannot be written.
pub fn save<'a>(
    path: &Path,
    pool: &PoolName,
    entries: impl IntoIterator<Item = &'a Entry>,
) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    rmp_serde::encode::write(&mut file, pool.as_str()).map_err(io::Error::other)?;
    for entry in entries {
        rmp_serde::encode::write(&mut file, entry).map_err(io::Error::other)?;
    }
    file.flush()
}

/// Reads what [`save`] wrote.
///
/// # Errors
/// Where the file cannot be read, or is no record.
pub fn load(path: &Path) -> io::Result<(PoolName, Vec<Entry>)> {
    let mut file = BufReader::new(File::open(path)?);
    let pool: String = rmp_serde::from_read(&mut file).map_err(io::Error::other)?;
    let pool = pool.parse().map_err(io::Error::other)?;
    let mut entries = Vec::new();
    while !file.fill_buf()?.is_empty() {
        entries.push(rmp_serde::from_read(&mut file).map_err(io::Error::other)?);
    }
    Ok((pool, entries))
}
