//! What has come of an answer so far.

use bytes::{Bytes, BytesMut};

use super::assemble::Assembler;

/// What has come of the answer; outlives the reading, so that it is there when the reading is broken off.
#[derive(Debug, Default)]
pub(super) enum Come {
    /// Nothing yet.
    #[default]
    Nothing,
    /// A plain body.
    Plain(BytesMut),
    /// A stream, and the status it came under.
    Stream(u16, Box<Assembler>),
}

impl Come {
    /// Output tokens so far; a plain body shows none.
    pub(super) fn output_tokens(&self) -> u64 {
        match self {
            Self::Stream(_, assembler) => assembler.output_tokens(),
            _ => 0,
        }
    }

    /// What there is of an answer, if anything.
    pub(super) fn partial(&self) -> Option<Bytes> {
        match self {
            Self::Plain(bytes) if !bytes.is_empty() => Some(Bytes::copy_from_slice(bytes)),
            Self::Stream(_, assembler) if !assembler.is_empty() => Some(assembler.body().into()),
            _ => None,
        }
    }
}
