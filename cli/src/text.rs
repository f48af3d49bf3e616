//! Values as a person reads them. Nothing that comes from data can steer the terminal.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// Longest text of one cell, in characters: a row should fit into a wide terminal.
const MAX_CELL_CHARS: usize = 80;

/// Whether a character would move the cursor, change colours or reorder what is read.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape_into(out: &mut String, c: char) {
    if steers(c) {
        out.extend(c.escape_default());
    } else {
        out.push(c);
    }
}

/// One line: control characters escaped.
pub(crate) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| escape_into(&mut out, c));
    out
}

/// Running text: as [`visible`], but line ends and tabs stay.
pub(crate) fn readable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c => escape_into(&mut out, c),
        }
    }
    out
}

/// A value in one cell.
pub(crate) fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return "-".into(),
        Value::String(text) if text.is_empty() => return "-".into(),
        Value::String(text) => visible(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(cell).collect();
            if items.is_empty() {
                return "-".into();
            }
            items.join(",")
        }
        other => visible(&other.to_string()),
    };
    shorten(text)
}

fn shorten(text: String) -> String {
    if text.chars().count() <= MAX_CELL_CHARS {
        return text;
    }
    let mut short: String = text.chars().take(MAX_CELL_CHARS - 1).collect();
    short.push('…');
    short
}

/// A time in ms since 1970, to the second, in UTC.
pub(crate) fn time(value: &Value) -> String {
    value
        .as_i64()
        .and_then(|ms| Timestamp::from_second(ms.div_euclid(1000)).ok())
        .map_or_else(|| "-".into(), |time| time.to_string())
}

/// A length of time, in its two largest units.
pub(crate) fn span_ms(ms: u64) -> String {
    let (s, m, h) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", s, ms % 1000 / 100),
        60_000..3_600_000 => format!("{m}m{:02}s", s % 60),
        3_600_000..86_400_000 => format!("{h}h{:02}m", m % 60),
        _ => format!("{}d{:02}h", h / 24, h % 24),
    }
}

/// Seconds of the command line: a positive number, up to a year.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    const YEAR_S: f64 = 31_536_000.0;
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= YEAR_S => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("must be a number of seconds above 0, e.g. 30 or 0.5".into()),
    }
}

/// A length of time with its unit: `90d`, `12h`, `30m`, `45s`, `500ms`. In ms.
pub(crate) fn parse_span_ms(text: &str) -> Result<u64, String> {
    let bad = || "must be a whole number with a unit, e.g. 90d, 12h, 30m, 45s or 500ms".to_owned();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(unit_ms).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn control_characters_of_data_are_escaped() {
        assert_eq!(visible("a\u{1b}[31mb\r\n"), "a\\u{1b}[31mb\\r\\n");
        assert_eq!(visible("x\u{9b}2J\u{202e}y"), "x\\u{9b}2J\\u{202e}y");
        assert_eq!(readable("a\tb\nc\u{7}"), "a\tb\nc\\u{7}");
        assert_eq!(visible("Grüße 你好"), "Grüße 你好");
    }

    #[test]
    fn cells_are_short_and_never_empty() {
        assert_eq!(cell(&json!(null)), "-");
        assert_eq!(cell(&json!("")), "-");
        assert_eq!(cell(&json!(["a", "b"])), "a,b");
        assert_eq!(
            cell(&json!("x".repeat(500))).chars().count(),
            MAX_CELL_CHARS
        );
    }

    #[test]
    fn spans_are_read_and_written() {
        assert_eq!(parse_span_ms("90d"), Ok(7_776_000_000));
        assert_eq!(parse_span_ms("500ms"), Ok(500));
        for bad in ["", "90", "d", "-1d", "1.5h", "1y", "99999999999999999w"] {
            assert!(parse_span_ms(bad).is_err(), "{bad}");
        }
        assert_eq!(span_ms(950), "950 ms");
        assert_eq!(span_ms(1_250), "1.2 s");
        assert_eq!(span_ms(3_700_000), "1h01m");
        assert_eq!(time(&json!(0)), "1970-01-01T00:00:00Z");
        assert_eq!(time(&json!(null)), "-");
    }
}
