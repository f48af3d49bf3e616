//! Seeded text and vectors: the same seed and prompt always give the same answer, on every machine and version.

use super::script::{Finish, Script};

/// Words of the answers; their choice means nothing.
const WORDS: [&str; 32] = [
    "amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "harbour", "inlet", "juniper",
    "kelp", "lagoon", "meadow", "north", "ocean", "pebble", "quarry", "river", "shore", "tide",
    "upland", "valley", "water", "xylem", "yarrow", "zephyr", "the", "and", "of", "under", "over",
    "near",
];
/// Longest unscripted answer as a multiple of the mean: one in 3,000 would be longer.
const LONGEST_IN_MEANS: u64 = 8;
/// Text bytes of an output token where a script gives a length in bytes, and of an input token always.
const BYTES_PER_TEXT_TOKEN: usize = 4;
/// Text bytes of a chunk where a script gives a length in bytes and no number of chunks.
const CHUNK_BYTES: usize = 4 * 1024;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), seeded through FNV-1a of the
/// prompt. Written here because a generator of a crate may change its sequence between versions.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64, prompt: &str, stream: u64) -> Self {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in seed
            .to_le_bytes()
            .iter()
            .chain(prompt.as_bytes())
            .chain(stream.to_le_bytes().iter())
        {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(hash)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The upper sixteen bits, where a small number does.
    fn small(&mut self) -> u16 {
        let [.., low, high] = self.next().to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    fn word(&mut self) -> &'static str {
        WORDS[usize::from(self.small()) % WORDS.len()]
    }

    /// Exponential around `mean`, from 1 to [`LONGEST_IN_MEANS`] means: most answers short, a few long.
    fn length(&mut self, mean: u32) -> u64 {
        let unit = (f64::from(self.small()) + 1.0) / 65_536.0;
        let length = (-unit.ln() * f64::from(mean)).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "above zero and at most twelve times a u32"
        )]
        let length = length as u64;
        length.clamp(1, u64::from(mean.max(1)) * LONGEST_IN_MEANS)
    }
}

/// What one content chunk carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) output_tokens: u64,
}

/// One choice's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) pieces: Vec<Piece>,
    pub(super) finish: Finish,
}

impl Answer {
    pub(super) fn text(&self) -> String {
        self.pieces.iter().map(|p| p.text.as_str()).collect()
    }

    pub(super) fn output_tokens(&self) -> u64 {
        self.pieces.iter().map(|p| p.output_tokens).sum()
    }
}

/// The answer to `prompt` for choice `choice`. A script's text, bytes or chunks are exact; else the length is drawn around
/// `mean` and bounded by `max_output_tokens`.
pub(super) fn answer(
    seed: u64,
    prompt: &str,
    choice: u64,
    mean: u32,
    max_output_tokens: Option<u64>,
    script: &Script,
) -> Answer {
    let mut random = Random::new(seed, prompt, choice);
    let mut finish = Finish::Stop;
    let pieces = if let Some(text) = &script.text {
        group(
            text.split_inclusive(' ').map(str::to_owned).collect(),
            script.chunks,
        )
    } else if let Some(bytes) = script.bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        sized(&mut random, bytes, script.chunks)
    } else {
        let drawn = script.chunks.map_or_else(|| random.length(mean), u64::from);
        let length = if script.chunks.is_some() {
            drawn
        } else {
            drawn.min(max_output_tokens.unwrap_or(u64::MAX))
        };
        if length < drawn {
            finish = Finish::Length;
        }
        words(&mut random, length)
    };
    Answer {
        pieces,
        finish: script.finish.unwrap_or(finish),
    }
}

fn words(random: &mut Random, length: u64) -> Vec<Piece> {
    let space = |i: u64| if i == 0 { "" } else { " " };
    (0..length)
        .map(|i| Piece {
            text: format!("{}{}", space(i), random.word()),
            output_tokens: 1,
        })
        .collect()
}

/// `words` in `chunks` pieces of nearly equal number; more chunks than words leave the last ones empty.
fn group(words: Vec<String>, chunks: Option<u32>) -> Vec<Piece> {
    let count = chunks.map_or(words.len(), |c| usize::try_from(c).unwrap_or(usize::MAX));
    let bound = |i: usize| i * words.len() / count;
    let piece = |i: usize| {
        let part = &words[bound(i)..bound(i + 1)];
        Piece {
            text: part.concat(),
            output_tokens: part.len() as u64,
        }
    };
    (0..count).map(piece).collect()
}

fn sized(random: &mut Random, bytes: usize, chunks: Option<u32>) -> Vec<Piece> {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(random.word());
        text.push(' ');
    }
    text.truncate(bytes);
    let count = chunks.map_or(bytes.div_ceil(CHUNK_BYTES), |c| {
        usize::try_from(c).unwrap_or(usize::MAX)
    });
    let bound = |i: usize| i * bytes / count;
    let until = |at: usize| (at.div_ceil(BYTES_PER_TEXT_TOKEN)) as u64;
    let piece = |i: usize| Piece {
        text: text[bound(i)..bound(i + 1)].to_owned(),
        output_tokens: until(bound(i + 1)) - until(bound(i)),
    };
    (0..count).map(piece).collect()
}

/// Input tokens of a text, by its length.
pub(super) fn input_tokens(text: &str) -> u64 {
    text.len().div_ceil(BYTES_PER_TEXT_TOKEN) as u64
}

/// The unit vector of `input`.
pub(super) fn embedding(seed: u64, input: &str, dimensions: usize) -> Vec<f32> {
    let mut random = Random::new(seed, input, 0);
    let vector: Vec<f32> = (0..dimensions)
        .map(|_| f32::from(random.small()) / 32_767.5 - 1.0)
        .collect();
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.into_iter().map(|x| x / norm).collect()
}

/// Base64 with padding (RFC 4648, section 4), as embeddings are sent by default to the official clients.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4u32 {
            let index = (bits >> (18 - 6 * i)) & 63;
            let known = usize::try_from(i).is_ok_and(|i| i <= group.len());
            out.push(if known {
                char::from(ALPHABET[usize::try_from(index).unwrap_or(0)])
            } else {
                '='
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn answers_depend_on_seed_prompt_and_choice_and_on_nothing_else() {
        let text = |seed, prompt, choice| {
            answer(seed, prompt, choice, 50, None, &Script::untagged()).text()
        };
        assert_eq!(text(1, "a", 0), text(1, "a", 0));
        assert_ne!(text(1, "a", 0), text(2, "a", 0));
        assert_ne!(text(1, "a", 0), text(1, "b", 0));
        assert_ne!(text(1, "a", 0), text(1, "a", 1));
    }

    #[test]
    fn the_mean_length_is_the_one_asked_for() {
        let total: u64 = (0..4_000)
            .map(|i| answer(7, "p", i, 100, None, &Script::untagged()).output_tokens())
            .sum();
        assert!((95..105).contains(&(total / 4_000)), "{total}");
    }

    #[test]
    fn scripted_text_is_exact_whatever_the_number_of_chunks() {
        for chunks in [1, 2, 3, 50] {
            let text = answer(
                1,
                "p",
                0,
                9,
                Some(1),
                &Script::untagged().text("one two  three ").chunks(chunks),
            );
            assert_eq!(
                (text.text().as_str(), text.pieces.len()),
                ("one two  three ", chunks as usize)
            );
            let bytes = answer(
                1,
                "p",
                0,
                9,
                Some(1),
                &Script::untagged().bytes(10_001).chunks(chunks),
            );
            assert_eq!((bytes.text().len(), bytes.output_tokens()), (10_001, 2_501));
        }
        assert_eq!(
            answer(1, "p", 0, 9, None, &Script::untagged().bytes(0)).text(),
            ""
        );
    }
}
