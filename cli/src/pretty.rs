//! JSON laid out anew without being understood: every number and every string stays as it was written.

/// Two spaces a level, one member a line. `json` must be valid.
pub(crate) fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let fresh = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let mut pieces = Pieces(json).peekable();
    while let Some(piece) = pieces.next() {
        match piece {
            "{" | "[" => {
                out.push_str(piece);
                if let Some(close @ ("}" | "]")) = pieces.peek().copied() {
                    out.push_str(close);
                    pieces.next();
                } else {
                    depth += 1;
                    fresh(&mut out, depth);
                }
            }
            "}" | "]" => {
                depth = depth.saturating_sub(1);
                fresh(&mut out, depth);
                out.push_str(piece);
            }
            "," => {
                out.push(',');
                fresh(&mut out, depth);
            }
            ":" => out.push_str(": "),
            piece => out.push_str(piece),
        }
    }
    out
}

/// On one line. `json` must be valid.
pub(crate) fn compact(json: &str) -> String {
    Pieces(json).collect()
}

/// Punctuation, strings, and everything else, without the space between.
struct Pieces<'a>(&'a str);

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start_matches([' ', '\t', '\n', '\r']);
        let length = match rest.as_bytes().first()? {
            b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
            b'"' => string_length(rest),
            _ => rest
                .find([',', ':', '}', ']', ' ', '\t', '\n', '\r'])
                .unwrap_or(rest.len()),
        };
        let (piece, rest) = rest.split_at(length);
        self.0 = rest;
        Some(piece)
    }
}

/// Bytes of the string that `text` begins with, both quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str =
        r#" {"a" :1.50, "b":[ ],"c":[1e400,{"d":"x, {\"y\": 1}"}],"e":{}, "ü":"\\"} "#;

    #[test]
    fn numbers_and_strings_stay_as_they_were_written() {
        let compacted = r#"{"a":1.50,"b":[],"c":[1e400,{"d":"x, {\"y\": 1}"}],"e":{},"ü":"\\"}"#;
        assert_eq!(compact(GIVEN), compacted);
        assert_eq!(compact(&indented(GIVEN)), compacted);
    }

    #[test]
    fn a_member_has_a_line_of_its_own() {
        let lines = "{\n  \"a\": 1,\n  \"b\": [],\n  \"c\": [\n    2,\n    3\n  ]\n}";
        assert_eq!(indented(r#"{"a":1,"b":[],"c":[2,3]}"#), lines);
    }
}
