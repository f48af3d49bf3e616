//! Headers of a request, judged. One that may stand once and stands twice is a refusal: two readers of the request could
//! take different ones.

use axum::http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, TRANSFER_ENCODING,
};
use axum::http::{HeaderMap, HeaderValue};

use crate::error::{Code, Problem, echo};

/// A caller's name for one request.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// RFC 7240.
pub(crate) const PREFER: HeaderName = HeaderName::from_static("prefer");
/// RFC 7240.
pub(crate) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Where a stream's reader left off.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Longest idempotency key, in bytes.
const MAX_KEY_BYTES: usize = 255;
/// Longest wait of a long-poll, in seconds: below the idle time-outs of the usual proxies.
pub(crate) const MAX_WAIT_S: u64 = 60;

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Not at all.
    Plain,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// Refuses a request on which a header that decides something stands twice.
pub(crate) fn once(headers: &HeaderMap) -> Result<(), Problem> {
    for name in [
        AUTHORIZATION,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        CONTENT_ENCODING,
        IDEMPOTENCY_KEY,
        LAST_EVENT_ID,
    ] {
        if headers.get_all(&name).iter().nth(1).is_some() {
            return Err(repeated(name.as_str()));
        }
    }
    // Where a body ends must not be a matter of opinion, and no other coding is undone here.
    let mut codings = headers.get_all(&TRANSFER_ENCODING).iter();
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(|first| !plain(first)) || codings.next().is_some() {
        return Err(Problem::field(
            Code::InvalidValue,
            TRANSFER_ENCODING.as_str(),
            "is a header that must be chunked, once and alone, or absent",
        )
        .close());
    }
    Ok(())
}

/// The refusal of a header that stands twice.
pub(crate) fn repeated(name: &str) -> Problem {
    Problem::field(Code::DuplicateKey, name, "is a header that may stand once")
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(_) => Err(Problem::field(
            Code::InvalidValue,
            name.as_str(),
            "is a header that must be visible ASCII",
        )),
    }
}

/// Refuses a body that is not JSON by its header.
pub(crate) fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |detail: String| Problem::new(Code::UnsupportedMediaType, detail);
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return Err(refused(
            "the header content-type is missing; it must be application/json".into(),
        ));
    };
    let shown = value.to_str().unwrap_or("not ASCII").to_ascii_lowercase();
    let mut parts = shown.split(';').map(str::trim);
    let json = parts.next() == Some("application/json");
    let charset = parts.all(|part| match part.split_once('=') {
        Some(("charset", set)) => matches!(set.trim_matches('"'), "utf-8" | "utf8"),
        _ => true,
    });
    if json && charset {
        return Ok(());
    }
    Err(refused(format!(
        "content-type must be application/json in UTF-8, not {}",
        echo(&shown)
    )))
}

/// How the body is packed.
pub(crate) fn encoding(headers: &HeaderMap) -> Result<Encoding, Problem> {
    let Some(value) = text(headers, &CONTENT_ENCODING)? else {
        return Ok(Encoding::Plain);
    };
    match value.to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(Encoding::Plain),
        "gzip" | "x-gzip" => Ok(Encoding::Gzip),
        "zstd" => Ok(Encoding::Zstd),
        other => Err(Problem::new(
            Code::UnsupportedMediaType,
            format!(
                "content-encoding must be gzip or zstd, or absent, not {}",
                echo(other)
            ),
        )),
    }
}

/// The caller's key, without the quotes that the draft standard asks for: `"k"` and `k` are the same key.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = text(headers, &IDEMPOTENCY_KEY)? else {
        return Ok(None);
    };
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(&value);
    let visible = inner
        .bytes()
        .all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'"');
    if inner.is_empty() || inner.len() > MAX_KEY_BYTES || !visible {
        let detail = format!(
            "is a header that must be 1 to {MAX_KEY_BYTES} visible characters, quoted or bare"
        );
        return Err(Problem::field(
            Code::InvalidValue,
            IDEMPOTENCY_KEY.as_str(),
            detail,
        ));
    }
    Ok(Some(inner.to_owned()))
}

/// How long the caller would rather wait than be told to come back, in seconds. A preference that cannot be read is
/// ignored, as RFC 7240 wants; a longer one than we hold is cut.
pub(crate) fn prefer_wait_s(headers: &HeaderMap) -> Option<u64> {
    let preferences = headers.get_all(&PREFER);
    let mut each = preferences
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split([',', ';']));
    each.find_map(|one| {
        let (name, seconds) = one.split_once('=')?;
        let seconds = seconds.trim().trim_matches('"').parse::<u64>().ok()?;
        name.trim()
            .eq_ignore_ascii_case("wait")
            .then_some(seconds.min(MAX_WAIT_S))
    })
}

/// Where a stream's reader left off, `<fence>-<n>`.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<(u64, u64)>, Problem> {
    let Some(value) = text(headers, &LAST_EVENT_ID)?.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    event_id(&value).map(Some).ok_or_else(|| {
        Problem::field(
            Code::InvalidValue,
            LAST_EVENT_ID.as_str(),
            "is a header that must be an id of this stream, such as 1-17",
        )
    })
}

/// Largest number in an event's id: exact in every client. The store knows no id behind its own largest.
const MAX_EVENT_NUMBER: u64 = (1 << 53) - 1;

/// An event's id as numbers.
pub(crate) fn event_id(text: &str) -> Option<(u64, u64)> {
    let digits = |part: &str| {
        let all = part.bytes().all(|byte| byte.is_ascii_digit());
        let number = all.then(|| part.parse().ok()).flatten();
        number.filter(|number| *number <= MAX_EVENT_NUMBER)
    };
    let (fence, n) = text.split_once('-')?;
    Some((digits(fence)?, digits(n)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        map
    }

    #[test]
    fn a_header_that_decides_may_stand_once() {
        assert!(
            once(&headers(&[
                ("authorization", "a"),
                ("prefer", "a"),
                ("prefer", "b")
            ]))
            .is_ok()
        );
        for name in ["authorization", "idempotency-key", "content-length"] {
            let problem = once(&headers(&[(name, "1"), (name, "1")])).unwrap_err();
            assert_eq!(
                (problem.code(), problem.param()),
                ("duplicate_key", Some(name))
            );
        }
    }

    #[test]
    fn a_body_is_cut_in_chunks_or_has_a_length_and_nothing_else() {
        let coded = |values: &[&str]| {
            let pairs: Vec<_> = values.iter().map(|v| ("transfer-encoding", *v)).collect();
            once(&headers(&pairs))
        };
        for good in [&[][..], &["chunked"], &["Chunked"]] {
            assert_eq!(coded(good), Ok(()), "{good:?}");
        }
        for bad in [
            &["gzip, chunked"][..],
            &["chunked, chunked"],
            &["chunked", "chunked"],
            &["identity"],
            &[""],
        ] {
            let problem = coded(bad).unwrap_err();
            assert_eq!(problem.param(), Some("transfer-encoding"), "{bad:?}");
        }
    }

    #[test]
    fn only_json_in_utf8_is_json() {
        for good in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
        ] {
            assert!(
                is_json(&headers(&[("content-type", good)])).is_ok(),
                "{good}"
            );
        }
        for bad in [
            "text/plain",
            "application/json; charset=latin1",
            "application/jsonl",
            "",
        ] {
            assert!(
                is_json(&headers(&[("content-type", bad)])).is_err(),
                "{bad}"
            );
        }
        assert!(is_json(&headers(&[])).is_err());
    }

    #[test]
    fn an_idempotency_key_is_the_same_quoted_and_bare() {
        let key = |value: &str| idempotency_key(&headers(&[("idempotency-key", value)]));
        assert_eq!(key("\"abc\"").unwrap(), key("abc").unwrap());
        assert_eq!(key(&"k".repeat(255)).unwrap().unwrap().len(), 255);
        for bad in ["", "\"\"", "a b", "a\"b", &"k".repeat(256)] {
            assert!(key(bad).is_err(), "{bad}");
        }
        assert_eq!(idempotency_key(&headers(&[])), Ok(None));
    }

    #[test]
    fn a_preference_is_read_cut_or_ignored() {
        let wait = |value: &str| prefer_wait_s(&headers(&[("prefer", value)]));
        assert_eq!(wait("wait=5"), Some(5));
        assert_eq!(wait("respond-async, WAIT = 600"), Some(60));
        assert_eq!(wait("wait=-1"), None);
        assert_eq!(wait("respond-async"), None);
    }

    #[test]
    fn an_event_id_has_a_fence_and_a_number() {
        assert_eq!(event_id("3-17"), Some((3, 17)));
        let terminal = Some((1, 9_007_199_254_740_991));
        assert_eq!(event_id("1-9007199254740991"), terminal);
        for bad in [
            "",
            "3",
            "-",
            "3-",
            "-1",
            "+1-2",
            "a-b",
            "1-99999999999999999999",
            "1-9007199254740992",
            "18446744073709551615-18446744073709551615",
        ] {
            assert_eq!(event_id(bad), None, "{bad}");
        }
    }
}
