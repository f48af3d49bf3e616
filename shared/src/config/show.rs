//! The effective settings, each with where it comes from. Secrets stay hidden.

use serde_json::Value;

use super::error::Origin;
use super::schema::SECTIONS;
use super::{Config, Loaded};

impl Loaded {
    /// Every setting in the order of the documented file: dotted key, value as the file would write it, origin. A
    /// limit that is absent is left out. Passwords are `***`.
    pub fn effective(&self) -> Vec<(String, String, Origin)> {
        keys(&self.config)
            .into_iter()
            .map(|(key, value)| {
                let origin = self.origins.get(&key).cloned().unwrap_or_default();
                let shown = render(&value);
                (key, shown, origin)
            })
            .collect()
    }
}

/// Every setting that has a value, in the order of the documented file.
pub(crate) fn keys(config: &Config) -> Vec<(String, Value)> {
    let tree = serde_json::to_value(config)
        .expect("settings are strings, numbers and lists, which always serialise");
    let mut found = Vec::new();
    for section in &SECTIONS {
        // Classes are listed with their pool.
        if section.path.len() <= 2 {
            collect(&tree, section.path, &mut Vec::new(), &mut found);
        }
    }
    found
}

fn collect(at: &Value, rest: &[&str], names: &mut Vec<String>, found: &mut Vec<(String, Value)>) {
    let Some((next, rest)) = rest.split_first() else {
        settings(at, names, found);
        return;
    };
    let Value::Object(map) = at else { return };
    for (name, below) in map
        .iter()
        .filter(|(name, _)| *next == "*" || name.as_str() == *next)
    {
        names.push(name.clone());
        collect(below, rest, names, found);
        names.pop();
    }
}

fn settings(at: &Value, names: &mut Vec<String>, found: &mut Vec<(String, Value)>) {
    let section = SECTIONS.iter().find(|section| {
        section.path.len() == names.len()
            && section
                .path
                .iter()
                .zip(names.iter())
                .all(|(known, name)| *known == "*" || known == name)
    });
    for setting in section.map_or(&[][..], |section| section.settings) {
        if let Some(value) = at.get(setting.key).filter(|value| !value.is_null()) {
            found.push((
                format!("{}.{}", names.join("."), setting.key),
                value.clone(),
            ));
        }
    }
    if names.len() == 2 {
        collect(at, &["classes", "*"], names, found);
    }
}

/// A value as the file writes it: JSON's strings, numbers and lists are TOML's too.
fn render(value: &Value) -> String {
    match value {
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(render).collect::<Vec<_>>().join(", ")
        ),
        other => other.to_string(),
    }
}
