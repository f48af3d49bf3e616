//! What names and addresses may look like. Pure; a refusal says what would be right.

use std::net::SocketAddr;

/// A refusal: what would be right, as in "must be …".
pub(crate) type Rule = fn(&str) -> Result<(), &'static str>;

/// Longest free text of a setting, in bytes: these are names for people and paths.
const MAX_TEXT_BYTES: usize = 4096;

fn name_like(text: &str, max_bytes: usize, also: &[u8]) -> bool {
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= max_bytes
        && (bytes[0].is_ascii_lowercase() || bytes[0].is_ascii_digit())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || also.contains(byte))
}

/// Name of a pool: it is part of job ids and of the store's key tags.
///
/// # Errors
/// What would be right.
pub fn pool_name(name: &str) -> Result<(), &'static str> {
    if name_like(name, 32, b"-") {
        Ok(())
    } else {
        Err("1 to 32 of a-z, 0-9 and '-', not starting with '-'")
    }
}

/// Name of a tenant.
///
/// # Errors
/// What would be right.
pub fn tenant_name(name: &str) -> Result<(), &'static str> {
    if name_like(name, 64, b"_-") {
        Ok(())
    } else {
        Err("1 to 64 of a-z, 0-9, '_' and '-', starting with a letter or digit")
    }
}

/// Name of a class: it is a label of metrics.
///
/// # Errors
/// What would be right.
pub fn class_name(name: &str) -> Result<(), &'static str> {
    if name_like(name, 32, b"_-") {
        Ok(())
    } else {
        Err("1 to 32 of a-z, 0-9, '_' and '-', starting with a letter or digit")
    }
}

/// A pool, or `*` for all of them.
pub(crate) fn pool_or_all(name: &str) -> Result<(), &'static str> {
    if name == "*" { Ok(()) } else { pool_name(name) }
}

/// Name of a model as requests carry it.
pub(crate) fn model_name(name: &str) -> Result<(), &'static str> {
    let fine = !name.is_empty() && name.len() <= 256 && !name.chars().any(char::is_control);
    if fine {
        Ok(())
    } else {
        Err("the name of a model, 1 to 256 bytes without control characters, or \"*\"")
    }
}

/// Free text.
pub(crate) fn text(text: &str) -> Result<(), &'static str> {
    let fine = text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control);
    if fine {
        Ok(())
    } else {
        Err("at most 4096 bytes without control characters")
    }
}

/// A label for people.
pub(crate) fn label(text: &str) -> Result<(), &'static str> {
    let fine = text.len() <= 128 && !text.chars().any(char::is_control);
    if fine {
        Ok(())
    } else {
        Err("at most 128 bytes without control characters")
    }
}

/// Address and port of a listener.
pub(crate) fn listen(address: &str) -> Result<(), &'static str> {
    address
        .parse::<SocketAddr>()
        .map(drop)
        .map_err(|_| "an IP address and port, e.g. \"127.0.0.1:8080\" or \"[::1]:8080\"")
}

/// Address and port of a listener, or nothing.
pub(crate) fn listen_or_none(address: &str) -> Result<(), &'static str> {
    if address.is_empty() {
        Ok(())
    } else {
        listen(address)
    }
}

/// Base address of a model server.
pub(crate) fn backend(url: &str) -> Result<(), &'static str> {
    const RIGHT: &str = "an http:// or https:// address without user, query or fragment, e.g. \"http://127.0.0.1:8000\"";
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))
        .ok_or(RIGHT)?;
    let authority = rest.split('/').next().unwrap_or_default();
    let host_and_port = match authority.strip_prefix('[') {
        Some(v6) => v6
            .split_once(']')
            .map(|(host, port)| (host, port.strip_prefix(':').unwrap_or(port))),
        None => Some(authority.split_once(':').unwrap_or((authority, ""))),
    };
    let (host, port) = host_and_port.ok_or(RIGHT)?;
    let port_fine = port.is_empty() || port.parse::<u16>().is_ok_and(|port| port > 0);
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '@' | '?' | '#');
    if host.is_empty() || !port_fine || url.len() > 2048 || url.contains(odd) {
        Err(RIGHT)
    } else {
        Ok(())
    }
}

/// Address of the store, or several of them, comma-separated. `rediss://` is judged elsewhere.
pub(crate) fn store_url(urls: &str) -> Result<(), &'static str> {
    const RIGHT: &str =
        "a redis://, rediss://, unix:// or redis+unix:// address, e.g. \"redis://127.0.0.1:6379\"";
    if urls.len() > MAX_TEXT_BYTES || urls.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(RIGHT);
    }
    // A comma may also stand in a password: only the part in front of "://" is judged, and the first one must have it.
    let (scheme, rest) = urls.split_once("://").ok_or(RIGHT)?;
    let fine = matches!(scheme, "redis" | "rediss" | "unix" | "redis+unix") && !rest.is_empty();
    if fine { Ok(()) } else { Err(RIGHT) }
}

/// How many addresses a store's address names: parts between commas that have a scheme of their own.
pub(crate) fn store_url_count(urls: &str) -> usize {
    urls.split(',').filter(|part| part.contains("://")).count()
}

/// Where files live.
pub(crate) fn storage(url: &str) -> Result<(), &'static str> {
    let named = |prefix: &str| {
        url.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty())
    };
    if (named("file:") || named("s3://")) && text(url).is_ok() {
        Ok(())
    } else {
        Err("\"file:PATH\" or \"s3://BUCKET/PREFIX\"")
    }
}

/// The candidate nearest to `given`, if it is near enough to be what was meant: at most a third of its letters changed,
/// and at least two allowed (one swap).
pub(crate) fn nearest<'a>(
    given: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (given.len() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(given, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= limit && *distance < candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance over bytes, in one row (Wagner and Fischer, 1974).
fn edit_distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_ids_tags_and_labels_can_carry() {
        for good in ["a", "0", "gpu-a100", "a-"] {
            assert_eq!(pool_name(good), Ok(()), "{good}");
        }
        let long = "a".repeat(33);
        for bad in [
            "",
            "-a",
            "A",
            "a_b",
            "a.b",
            "{a}",
            "a:b",
            "ä",
            long.as_str(),
        ] {
            assert!(pool_name(bad).is_err(), "{bad}");
        }
        assert_eq!(class_name("batch_low"), Ok(()));
        assert!(class_name(&long).is_err());
        assert_eq!(tenant_name(&"t".repeat(64)), Ok(()));
        assert!(tenant_name(&"t".repeat(65)).is_err());
        assert!(tenant_name("_a").is_err());
        assert_eq!(pool_or_all("*"), Ok(()));
    }

    #[test]
    fn a_model_server_has_a_scheme_a_host_and_a_real_port() {
        for good in [
            "http://127.0.0.1:8000",
            "https://gpu.local/v1",
            "http://[::1]:80",
            "http://h",
        ] {
            assert_eq!(backend(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:8000",
            "ftp://h",
            "http://",
            "http://:80",
            "http://h:0",
            "http://h:99999",
            "http://h:x",
            "http://u@h",
            "http://h?x",
            "http://[::1",
        ] {
            assert!(backend(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_store_address_has_a_known_scheme() {
        for good in [
            "redis://h",
            "rediss://h",
            "unix:///s",
            "redis+unix:///s",
            "redis://a,redis://b",
            "redis://:p,w@h",
        ] {
            assert_eq!(store_url(good), Ok(()), "{good}");
        }
        for bad in ["", "h:6379", "http://h", "redis://", "redis:// h"] {
            assert!(store_url(bad).is_err(), "{bad}");
        }
        assert_eq!(store_url_count("redis://:p,w@h"), 1);
        assert_eq!(store_url_count("redis://a,redis://b"), 2);
    }

    #[test]
    fn the_nearest_name_is_offered_only_when_it_is_near() {
        let known = ["lease_ms", "renew_ms", "slots", "backends"];
        for (given, meant) in [
            ("lese_ms", Some("lease_ms")),
            ("slot", Some("slots")),
            ("colour", None),
            ("lease_msec", Some("lease_ms")),
        ] {
            assert_eq!(nearest(given, known), meant, "{given}");
        }
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
