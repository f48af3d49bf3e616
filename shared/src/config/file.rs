//! The TOML file, with the line of every key.

use std::io::Read;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin};
use super::layers::{Given, join};
use super::schema::{Place, resolve};
use super::value::Raw;

/// Largest file that is read, in bytes: 10,000 tenants fit with room; a device or a log file does not.
pub(crate) const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// What a file sets, and every problem of its form.
#[derive(Default)]
pub(crate) struct FileLayer {
    pub(crate) given: Vec<Given>,
    pub(crate) problems: Vec<ConfigError>,
    /// Names of sections that stand in the file even if nothing is set in them: `[pools.a]` alone is a pool.
    pub(crate) sections: Vec<Vec<String>>,
}

/// Reads and parses the file at `path`.
pub(crate) fn read(path: &Path) -> FileLayer {
    match read_bounded(path, MAX_FILE_BYTES) {
        Ok(text) => parse(path, &text),
        Err(why) => {
            let message = format!("the configuration file {} {why}", path.display());
            let problem = ConfigError {
                origin: Origin::Default,
                key: String::new(),
                message,
            };
            FileLayer {
                problems: vec![problem],
                ..FileLayer::default()
            }
        }
    }
}

/// The text of a file of at most `max_bytes`.
///
/// # Errors
/// Why not, as the rest of a sentence which begins with the file.
pub(crate) fn read_bounded(path: &Path, max_bytes: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(max_bytes + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > max_bytes {
        return Err(format!("is larger than {max_bytes} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        format!(
            "is not UTF-8 (line {})",
            1 + valid.iter().filter(|byte| **byte == b'\n').count()
        )
    })
}

/// Parses a file's text; `path` is only named.
pub(crate) fn parse(path: &Path, text: &str) -> FileLayer {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut walk = Walk {
        path,
        text,
        layer: FileLayer::default(),
    };
    for error in errors {
        let origin = walk.origin(error.span().map_or(0, |span| span.start));
        let message = format!("is not TOML: {}", error.message());
        walk.layer.problems.push(ConfigError {
            origin,
            key: String::new(),
            message,
        });
    }
    // What the parser made up to go on behind an error must not be judged: only what stands on other lines is.
    let broken: Vec<Origin> = walk
        .layer
        .problems
        .iter()
        .map(|problem| problem.origin.clone())
        .collect();
    walk.table(&mut Vec::new(), table.get_ref());
    walk.layer
        .given
        .retain(|given| !broken.contains(&given.origin));
    let form = broken.len();
    let mut index = 0;
    walk.layer.problems.retain(|problem| {
        index += 1;
        index <= form || !broken.contains(&problem.origin)
    });
    walk.layer
}

struct Walk<'a> {
    path: &'a Path,
    text: &'a str,
    layer: FileLayer,
}

impl Walk<'_> {
    fn origin(&self, offset: usize) -> Origin {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Origin::File {
            path: self.path.to_owned(),
            line,
        }
    }

    fn table(&mut self, prefix: &mut Vec<String>, table: &DeTable<'_>) {
        for (key, value) in table {
            let origin = self.origin(key.span().start);
            prefix.push(key.get_ref().to_string());
            self.entry(prefix, origin, value.get_ref());
            prefix.pop();
        }
    }

    fn entry(&mut self, path: &mut Vec<String>, origin: Origin, value: &DeValue<'_>) {
        match (resolve(path), value) {
            (Place::Unknown(message), _) => self.problem(origin, path, message),
            (Place::Section, DeValue::Table(table)) => {
                self.layer.sections.push(path.clone());
                self.table(path, table);
            }
            (Place::Section, _) => {
                let message = format!("must be a section, e.g. [{}]", join(path));
                self.problem(origin, path, message);
            }
            (Place::Setting(setting), value) => {
                self.layer.given.push(Given {
                    path: path.clone(),
                    setting,
                    raw: raw(value),
                    origin,
                });
            }
        }
    }

    fn problem(&mut self, origin: Origin, path: &[String], message: String) {
        self.layer.problems.push(ConfigError {
            origin,
            key: join(path),
            message,
        });
    }
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(int) => match i128::from_str_radix(int.as_str(), int.radix()) {
            Ok(value) => Raw::Int(value),
            Err(_) => Raw::Other("an integer of more than 128 bits"),
        },
        DeValue::Float(float) => match float.as_str().parse() {
            Ok(value) => Raw::Number(value),
            Err(_) => Raw::Other("a malformed number"),
        },
        DeValue::Boolean(flag) => Raw::Flag(*flag),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Array(items) => Raw::List(items.iter().map(|item| raw(item.get_ref())).collect()),
        DeValue::Table(_) => Raw::Other("a section"),
    }
}
