//! How long a server asks to be left alone: `Retry-After` in both forms (RFC 9110 §10.2.3) and `retry-after-ms`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::fmt::{rfc2822, strtime};
use jiff::tz::TimeZone;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// A wait beyond this is taken for nonsense: no job may be delayed for longer either.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The header some servers send beside the standard one, in milliseconds.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// The wait a response asks for, from its arrival.
///
/// Read are whole and decimal seconds, the three date forms of HTTP, and milliseconds. A date counts from the response's
/// own `Date`, so that clocks that disagree do not matter, else from `now_wall`. Of several valid values the longest
/// holds: no call may come earlier than any of them. `None` when there is no valid hint: negative, not a number, a date
/// in the past, or over [`LONGEST_WAIT`]. Nothing is capped: compare the wait with the job's deadline.
pub fn parse_retry_after(headers: &HeaderMap, now_wall: SystemTime) -> Option<Duration> {
    let origin = headers
        .get(DATE)
        .and_then(|value| value.to_str().ok())
        .and_then(parse_http_date)
        .unwrap_or(now_wall);
    let texts = |name: &HeaderName| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
    };
    let standard = texts(&RETRY_AFTER).filter_map(|text| {
        let text = text.trim();
        parse_decimal(text, 1_000_000_000)
            .or_else(|| parse_http_date(text)?.duration_since(origin).ok())
    });
    let millis = texts(&RETRY_AFTER_MS).filter_map(|text| parse_decimal(text.trim(), 1_000_000));
    standard
        .chain(millis)
        .filter(|wait| *wait <= LONGEST_WAIT)
        .max()
}

/// `digits[.digits]` of a unit that has `unit_nanos` nanoseconds; anything else, or what does not fit, is `None`.
fn parse_decimal(text: &str, unit_nanos: u64) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    // Nine places are a nanosecond of a second; what is finer than that is dropped.
    let places = &fraction[..fraction.len().min(9)];
    let scale = 10u64.pow(u32::try_from(places.len()).ok()?);
    let nanos = u128::from(whole) * u128::from(unit_nanos)
        + u128::from(places.parse::<u64>().ok()?) * u128::from(unit_nanos) / u128::from(scale);
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// A date in one of the three forms RFC 9110 §5.6.7 has recipients accept; `None` for anything else.
pub fn parse_http_date(text: &str) -> Option<SystemTime> {
    // The obsolete forms: RFC 850, then the one of asctime.
    const OLD_FORMS: [&str; 2] = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let seconds = match rfc2822::DateTimeParser::new().parse_timestamp(text) {
        Ok(timestamp) => timestamp.as_second(),
        Err(_) => OLD_FORMS.iter().find_map(|form| {
            let datetime = strtime::parse(form, text).ok()?.to_datetime().ok()?;
            Some(TimeZone::UTC.to_timestamp(datetime).ok()?.as_second())
        })?,
    };
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tue, 01 Dec 2026 12:00:00 GMT.
    fn noon() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_796_126_400)
    }

    fn wait(headers: &[(&'static str, &str)]) -> Option<Duration> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a header value"));
        }
        parse_retry_after(&map, noon())
    }

    fn after(value: &str) -> Option<Duration> {
        wait(&[("retry-after", value)])
    }

    const fn ms(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    #[test]
    fn seconds_are_read_whole_or_decimal() {
        assert_eq!(after("2"), ms(2_000));
        assert_eq!(after("0"), ms(0));
        assert_eq!(after(" 7 "), ms(7_000));
        assert_eq!(after("1.5"), ms(1_500));
        assert_eq!(after("0.001"), ms(1));
        assert_eq!(after("1.0000000001"), ms(1_000));
    }

    #[test]
    fn a_long_wait_is_kept_for_the_caller_to_judge() {
        assert_eq!(after("999999"), ms(999_999_000));
        assert_eq!(after("2592000"), Some(LONGEST_WAIT));
    }

    #[test]
    fn nonsense_is_no_hint() {
        for value in [
            "",
            "-1",
            "abc",
            "1e3",
            "+2",
            "1.",
            ".5",
            "1.5.2",
            "NaN",
            "inf",
            "2592001",
            "99999999999999999999999",
            "2 s",
        ] {
            assert_eq!(after(value), None, "{value}");
        }
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn a_date_counts_from_the_local_clock_without_a_date_header() {
        assert_eq!(after("Tue, 01 Dec 2026 12:00:03 GMT"), ms(3_000));
        assert_eq!(after("Wed, 02 Dec 2026 12:00:00 GMT"), ms(86_400_000));
        assert_eq!(after("Tue, 01 Dec 2026 12:00:00 GMT"), ms(0));
    }

    #[test]
    fn a_date_counts_from_the_responses_own_clock() {
        let an_hour_off = ("date", "Tue, 01 Dec 2026 13:00:00 GMT");
        assert_eq!(
            wait(&[
                an_hour_off,
                ("retry-after", "Tue, 01 Dec 2026 13:00:03 GMT")
            ]),
            ms(3_000)
        );
        assert_eq!(
            wait(&[
                an_hour_off,
                ("retry-after", "Tue, 01 Dec 2026 12:59:59 GMT")
            ]),
            None
        );
        assert_eq!(
            wait(&[
                ("date", "yesterday"),
                ("retry-after", "Tue, 01 Dec 2026 12:00:03 GMT")
            ]),
            ms(3_000)
        );
    }

    #[test]
    fn a_past_date_is_no_hint() {
        assert_eq!(after("Tue, 01 Dec 2026 11:59:59 GMT"), None);
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), None);
    }

    #[test]
    fn all_three_date_forms_are_read() {
        let moment = Some(UNIX_EPOCH + Duration::from_secs(784_111_777));
        assert_eq!(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), moment);
        assert_eq!(parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT"), moment);
        assert_eq!(parse_http_date("Sun Nov  6 08:49:37 1994"), moment);
        for text in [
            "",
            "tomorrow",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "1994-11-06",
        ] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }

    #[test]
    fn milliseconds_are_read() {
        assert_eq!(wait(&[("retry-after-ms", "250")]), ms(250));
        assert_eq!(
            wait(&[("retry-after-ms", "0.5")]),
            Some(Duration::from_micros(500))
        );
        assert_eq!(wait(&[("retry-after-ms", "-3")]), None);
    }

    #[test]
    fn of_conflicting_hints_the_longest_valid_one_holds() {
        assert_eq!(
            wait(&[("retry-after", "2"), ("retry-after", "5")]),
            ms(5_000)
        );
        assert_eq!(
            wait(&[("retry-after", "5"), ("retry-after", "abc")]),
            ms(5_000)
        );
        assert_eq!(
            wait(&[("retry-after", "1"), ("retry-after-ms", "1500")]),
            ms(1_500)
        );
        assert_eq!(
            wait(&[("retry-after", "2"), ("retry-after", "99999999")]),
            ms(2_000)
        );
    }
}
