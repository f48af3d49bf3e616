//! Values which must not be printed: a secret, and a store address that may carry a password.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// What stands where a secret would be shown.
pub const REDACTED: &str = "***";

/// A secret: its `Debug`, `Display` and `Serialize` forms are `***`, only [`Secret::expose`] gives the text.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`; an empty text is "no secret".
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether no secret is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

/// Address of the store. Printed and serialised with every password replaced by `***`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// Wraps an address; what is allowed is judged by the configuration's checks.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The address with its password, for the store's connection alone.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Default for StoreUrl {
    fn default() -> Self {
        Self("redis://127.0.0.1:6379".into())
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&scrub_urls(&self.0))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Replaces the password of each of several comma-separated addresses: the part between `:` and the last `@` of the
/// authority, and the value of a `pass` parameter (the form that unix sockets use).
///
/// A part without a scheme continues the one before it, because a password may hold a comma of its own.
pub fn scrub_urls(urls: &str) -> String {
    url_parts(urls)
        .iter()
        .map(|url| scrub_url(url))
        .collect::<Vec<_>>()
        .join(",")
}

/// The addresses of a comma-separated list. A part without a scheme continues the one before it.
pub(crate) fn url_parts(urls: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in urls.split(',') {
        match parts.last_mut() {
            Some(last) if !part.contains("://") => {
                last.push(',');
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

fn scrub_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    // A '?' in a password cannot be told from the start of a query: then nothing is shown. A socket's path has no user.
    let socket = rest.starts_with('/');
    if !socket
        && rest
            .split_once('?')
            .is_some_and(|(_, query)| query.contains('@'))
    {
        return format!("{scheme}://{REDACTED}");
    }
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(scrub_query(query))),
        None => (rest, None),
    };
    // A raw '/' or '@' in a password still ends at the last '@', so nothing of it is left over.
    let rest = match rest.rsplit_once('@') {
        Some((user, host)) if !socket => {
            let name = user.split_once(':').map_or("", |(name, _)| name);
            format!("{name}:{REDACTED}@{host}")
        }
        _ => rest.to_owned(),
    };
    match query {
        Some(query) => format!("{scheme}://{rest}?{query}"),
        None => format!("{scheme}://{rest}"),
    }
}

fn scrub_query(query: &str) -> String {
    let scrubbed: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((key, _)) if key == "pass" || key == "password" => format!("{key}={REDACTED}"),
            _ => pair.to_owned(),
        })
        .collect();
    scrubbed.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_itself_in_no_printed_form() {
        let secret = Secret::new("hunter2");
        let shown = format!(
            "{secret} {secret:?} {}",
            serde_json::to_string(&secret).expect("serialises")
        );
        assert_eq!(shown, "*** *** \"***\"");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn a_store_address_is_printed_without_its_passwords() {
        for (given, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://:pw@h:1/2", "redis://:***@h:1/2"),
            ("redis://app:pw@h:1", "redis://app:***@h:1"),
            ("redis://app:p/w@x@h:1", "redis://app:***@h:1"),
            ("redis://pw@h:1", "redis://:***@h:1"),
            (
                "redis://:a@h:1,redis://:b,c@i:2",
                "redis://:***@h:1,redis://:***@i:2",
            ),
            (
                "unix:///run/r.sock?db=1&pass=pw",
                "unix:///run/r.sock?db=1&pass=***",
            ),
            ("redis://:p?w@h:1", "redis://***"),
            (
                "unix:///run/r@1.sock?pass=p@w",
                "unix:///run/r@1.sock?pass=***",
            ),
        ] {
            let url = StoreUrl::new(given);
            assert_eq!(url.to_string(), shown, "{given}");
            assert!(!format!("{url:?}").contains("pw"), "{given}");
        }
    }
}
