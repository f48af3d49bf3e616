//! Putting the layers together: the last one that sets a key wins, and every layer is judged.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::error::{ConfigError, Origin};
use super::schema::{Place, Setting, resolve};
use super::unsupported;
use super::value::{Raw, convert};

/// One key as one layer sets it.
pub(crate) struct Given {
    pub(crate) path: Vec<String>,
    pub(crate) setting: &'static Setting,
    pub(crate) raw: Raw,
    pub(crate) origin: Origin,
}

/// A dotted key.
pub(crate) fn join(path: &[String]) -> String {
    path.join(".")
}

/// Everything that was set, by its final value.
#[derive(Default)]
pub(crate) struct Merged {
    /// The sections as nested objects.
    pub(crate) tree: Map<String, Value>,
    /// Where each key that was set comes from.
    pub(crate) origins: BTreeMap<String, Origin>,
    /// Keys with a problem of their own: what they would be is unknown, so nothing is compared with them.
    pub(crate) bad: BTreeSet<String>,
    pub(crate) problems: Vec<ConfigError>,
}

impl Merged {
    /// Adds a layer on top.
    pub(crate) fn add(&mut self, layer: Vec<Given>) {
        for given in layer {
            let key = join(&given.path);
            // The store's address may carry a password, so a refusal must not repeat it.
            match convert(given.setting.kind, &given.raw, key == "store.url") {
                Ok(value) => {
                    self.bad.remove(&key);
                    self.origins.insert(key, given.origin);
                    self.put(&given.path, value);
                }
                Err(message) => {
                    self.bad.insert(key.clone());
                    self.problems.push(ConfigError {
                        origin: given.origin,
                        key,
                        message,
                    });
                }
            }
        }
    }

    /// Adds flags: dotted keys with words as values.
    pub(crate) fn add_flags(&mut self, flags: &[(String, String)]) {
        let mut layer = Vec::new();
        for (key, value) in flags {
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            let message = match resolve(&path) {
                Place::Setting(setting) => {
                    layer.push(Given {
                        path,
                        setting,
                        raw: Raw::Word(value.clone()),
                        origin: Origin::Flag,
                    });
                    continue;
                }
                Place::Section => "names a section; a flag sets one key of it".into(),
                Place::Unknown(message) => message,
            };
            self.problems.push(ConfigError {
                origin: Origin::Flag,
                key: key.clone(),
                message,
            });
        }
        self.add(layer);
    }

    /// Makes the section exist, with nothing set in it.
    pub(crate) fn section(&mut self, path: &[String]) {
        let mut at = &mut self.tree;
        for name in path {
            let below = at
                .entry(name.clone())
                .or_insert_with(|| Value::Object(Map::new()));
            match below {
                Value::Object(map) => at = map,
                _ => return,
            }
        }
    }

    fn put(&mut self, path: &[String], value: Value) {
        let Some((last, parent)) = path.split_last() else {
            return;
        };
        self.section(parent);
        let mut at = &mut self.tree;
        for name in parent {
            match at.get_mut(name) {
                Some(Value::Object(map)) => at = map,
                _ => return,
            }
        }
        at.insert(last.clone(), value);
    }

    /// The final value of a key that was set.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        let mut parts = key.split('.');
        let mut at = self.tree.get(parts.next()?)?;
        for part in parts {
            at = at.get(part)?;
        }
        Some(at)
    }

    /// Refuses what this release does not have.
    pub(crate) fn refuse_unsupported(&mut self) {
        let mut problems = Vec::new();
        for (key, origin) in &self.origins {
            let Some(value) = self.get(key) else { continue };
            if let Some(message) = unsupported::refusal(key, value) {
                problems.push(ConfigError {
                    origin: origin.clone(),
                    key: key.clone(),
                    message,
                });
            }
        }
        self.problems.append(&mut problems);
    }
}
