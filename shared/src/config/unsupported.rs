//! Settings of the documented file which this release does not act on yet: setting one is an error at start, never
//! something silently ignored. Support for one begins by deleting its line here.

use serde_json::Value;

/// What a setting may still be.
enum Allowed {
    /// This value only (as JSON): its default, which asks for nothing.
    Only(&'static str),
    /// Nothing: an explicit value of any kind is refused.
    Nothing,
    /// Anything that does not begin so; then what to use instead.
    NotPrefix(&'static str, &'static str),
}

use Allowed::{NotPrefix, Nothing, Only};

/// The one table. `*` stands for a name.
static TABLE: &[(&str, Allowed)] = &[
    (
        "store.url",
        NotPrefix("rediss://", "use redis://, unix:// or redis+unix://"),
    ),
    ("store.ca_file", Only("\"\"")),
    ("ingress.storage", Only("\"file:./data\"")),
    ("pools.*.inflight_tokens", Only("0")),
    ("pools.*.tokens_per_minute", Only("0")),
    ("pools.*.blocked", Only("false")),
    ("pools.*.gate", Only("\"\"")),
    ("pools.*.estimate", Only("\"worst_case\"")),
    ("pools.*.default_output_tokens", Only("1024")),
    ("pools.*.max_bypass_ms", Only("10000")),
    ("pools.*.classes.*.floor", Only("0")),
    ("pools.*.classes.*.ceiling", Nothing),
    ("pools.*.classes.*.floor_tokens", Only("0")),
    ("pools.*.classes.*.ceiling_tokens", Nothing),
    ("pools.*.classes.*.max_wait_ms", Nothing),
    ("pools.*.classes.*.when_limited", Only("\"wait\"")),
    ("pools.*.classes.*.lend", Only("false")),
    ("tenants.*.weight", Only("1")),
    ("tenants.*.requests_per_minute", Nothing),
    ("tenants.*.tokens_per_minute", Nothing),
    ("tenants.*.burst_ms", Only("60000")),
    ("tenants.*.max_running", Nothing),
    ("tenants.*.max_queued", Nothing),
    ("tenants.*.budget_usd", Nothing),
    ("tenants.*.budget_window_ms", Only("86400000")),
    ("tenants.*.pools", Only("[\"*\"]")),
];

/// The refusal of a value that was set, where this release does not have it.
pub(crate) fn refusal(key: &str, value: &Value) -> Option<String> {
    let (_, allowed) = TABLE.iter().find(|(pattern, _)| matches(pattern, key))?;
    let text = value.as_str().unwrap_or_default();
    let rendered = value.to_string();
    match allowed {
        Only(json) if rendered == *json => None,
        Only(_) | Nothing => Some("is not available in this version of tidegate; remove it".into()),
        // Every address of a list counts, not the first alone.
        NotPrefix(prefix, instead) => text
            .split(',')
            .any(|part| part.starts_with(prefix))
            .then(|| format!("{prefix} is not available in this version of tidegate; {instead}")),
    }
}

fn matches(pattern: &str, key: &str) -> bool {
    let mut known = pattern.split('.');
    let mut given = key.split('.');
    loop {
        match (known.next(), given.next()) {
            (None, None) => return true,
            (Some(known), Some(given)) if known == "*" || known == given => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::SECTIONS;
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_setting() {
        for (pattern, _) in TABLE {
            let (section, key) = pattern.rsplit_once('.').expect("a section and a key");
            let found = SECTIONS.iter().any(|known| {
                known.path.join(".") == section
                    && known.settings.iter().any(|setting| setting.key == key)
            });
            assert!(found, "{pattern}");
        }
    }
}
