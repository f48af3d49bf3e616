//! What a call used: the server's own count where it can be true, else an estimate that says so.

use serde_json::value::RawValue;

use super::raw::{self, RawObject};
use super::types::{Endpoint, Usage};

/// Beyond this a count is not believed; the longest contexts are a thousand times shorter.
const MOST_TOKENS: u64 = 1_000_000_000;
/// Bytes of text for one token, the usual rule of thumb, for estimates alone.
const BYTES_PER_TOKEN: u64 = 4;

/// What the server reported, member by member; `None` where it reported nothing that can be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reported {
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) total: Option<u64>,
    /// Something reported cannot be true.
    pub(super) odd: bool,
}

/// What we saw ourselves, to fill the gaps with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// Bytes of the request's body.
    pub(super) request_bytes: usize,
    /// Output tokens: pieces of a stream, or [`tokens_of_bytes`] of a plain answer's text.
    pub(super) output_tokens: u64,
}

/// Reads a `usage` value. Absent or null is no report; a wrong type is an odd one.
pub(super) fn read(usage: Option<&RawValue>) -> Reported {
    let Some(usage) = usage.filter(|value| !raw::is_null(value)) else {
        return Reported::default();
    };
    let Some(members) = RawObject::of(usage) else {
        return Reported {
            odd: true,
            ..Reported::default()
        };
    };
    let mut odd = false;
    let mut count = |name: &str| {
        let value = members.get(name)?;
        let count = raw::whole_number(value).filter(|count| *count <= MOST_TOKENS);
        odd |= count.is_none();
        count
    };
    let (input, output, total) = (
        count("prompt_tokens"),
        count("completion_tokens"),
        count("total_tokens"),
    );
    Reported {
        input,
        output,
        total,
        odd,
    }
}

/// An estimate of tokens from bytes of text, rounded up.
pub(crate) fn tokens_of_bytes(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// Settles what a finished call used; the flag tells whether the report was odd.
///
/// No output reported although text came is odd as well: believed, it would make work free.
pub(super) fn settle(endpoint: Endpoint, reported: Reported, seen: Seen) -> (Usage, bool) {
    let free_work =
        endpoint != Endpoint::Embeddings && reported.output == Some(0) && seen.output_tokens > 0;
    let output = reported.output.filter(|_| !free_work);
    // Embeddings produce none, and their servers do not say so.
    let no_output = endpoint == Endpoint::Embeddings && output.is_none();
    let input_tokens = reported
        .input
        .unwrap_or_else(|| tokens_of_bytes(seen.request_bytes));
    let output_tokens = if no_output {
        0
    } else {
        output.unwrap_or(seen.output_tokens)
    };
    let sum = input_tokens + output_tokens;
    let usage = Usage {
        input_tokens,
        output_tokens,
        total_tokens: reported.total.map_or(sum, |total| total.max(sum)),
        estimated: reported.input.is_none() || (output.is_none() && !no_output),
    };
    (usage, reported.odd || free_work)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settled(endpoint: Endpoint, usage: Option<&str>) -> (Usage, bool) {
        let raw = usage.map(|text| RawValue::from_string(text.to_owned()).unwrap());
        settle(
            endpoint,
            read(raw.as_deref()),
            Seen {
                request_bytes: 41,
                output_tokens: 5,
            },
        )
    }

    fn chat(usage: &str) -> (Usage, bool) {
        settled(Endpoint::ChatCompletions, Some(usage))
    }

    #[test]
    fn a_sound_report_is_taken() {
        let (usage, odd) =
            chat(r#"{"prompt_tokens":10,"completion_tokens":2e1,"total_tokens":30,"x":null}"#);
        assert_eq!(
            usage,
            Usage {
                input_tokens: 10,
                output_tokens: 20,
                total_tokens: 30,
                estimated: false
            }
        );
        assert!(!odd);
    }

    #[test]
    fn no_report_is_estimated_and_not_odd() {
        for usage in [None, Some("null"), Some("{}")] {
            let (usage, odd) = settled(Endpoint::ChatCompletions, usage);
            assert_eq!(
                usage,
                Usage {
                    input_tokens: 11,
                    output_tokens: 5,
                    total_tokens: 16,
                    estimated: true
                }
            );
            assert!(!odd);
        }
    }

    #[test]
    fn what_cannot_be_true_is_odd_and_estimated() {
        for bad in [
            "-1",
            "null",
            "\"7\"",
            "1.5",
            "1000000001",
            "1e300",
            "true",
            "[]",
        ] {
            let (usage, odd) = chat(&format!(
                r#"{{"prompt_tokens":10,"completion_tokens":{bad},"total_tokens":12}}"#
            ));
            assert_eq!(
                usage,
                Usage {
                    input_tokens: 10,
                    output_tokens: 5,
                    total_tokens: 15,
                    estimated: true
                },
                "{bad}"
            );
            assert!(odd, "{bad}");
        }
        assert!(chat("[1]").1);
        assert!(chat("\"much\"").1);
    }

    #[test]
    fn text_for_no_tokens_is_not_believed() {
        let (usage, odd) = chat(r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#);
        assert_eq!((usage.output_tokens, usage.estimated, odd), (5, true, true));
    }

    #[test]
    fn a_total_below_its_parts_is_corrected() {
        assert_eq!(
            chat(r#"{"prompt_tokens":10,"completion_tokens":20,"total_tokens":3}"#)
                .0
                .total_tokens,
            30
        );
        assert_eq!(
            chat(r#"{"prompt_tokens":10,"completion_tokens":20,"total_tokens":45}"#)
                .0
                .total_tokens,
            45
        );
    }

    #[test]
    fn embeddings_have_no_output() {
        let (usage, odd) = settled(
            Endpoint::Embeddings,
            Some(r#"{"prompt_tokens":8,"total_tokens":8}"#),
        );
        assert_eq!(
            usage,
            Usage {
                input_tokens: 8,
                output_tokens: 0,
                total_tokens: 8,
                estimated: false
            }
        );
        assert!(!odd);
    }
}
