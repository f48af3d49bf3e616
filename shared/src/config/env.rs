//! The environment: `TIDEGATE_SECTION__KEY`, `TIDEGATE_SECTION__KEY_FILE`, and a few names without a section.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, Origin};
use super::file::read_bounded;
use super::layers::{Given, join};
use super::names::nearest;
use super::schema::{Place, SECTIONS, resolve};
use super::secret::Secret;
use super::value::Raw;

/// What every variable begins with.
pub const PREFIX: &str = "TIDEGATE_";

/// Address of the ingress, for the client commands.
pub const URL: &str = "TIDEGATE_URL";
/// API key, for the client commands.
pub const API_KEY: &str = "TIDEGATE_API_KEY";
/// File with the API key, for the client commands.
pub const API_KEY_FILE: &str = "TIDEGATE_API_KEY_FILE";
/// Time between the first signal and the kill, in milliseconds, as whoever starts the role grants it.
pub const TERMINATION_GRACE_MS: &str = "TIDEGATE_TERMINATION_GRACE_MS";
/// Filter of the log, in the form of `tracing`: `info`, `tidegate=debug,warn`.
pub const LOG: &str = "TIDEGATE_LOG";
/// The configuration file where no flag names one.
pub const CONFIG: &str = "TIDEGATE_CONFIG";

/// Every variable without a section.
pub const BARE: [&str; 6] = [
    URL,
    API_KEY,
    API_KEY_FILE,
    TERMINATION_GRACE_MS,
    LOG,
    CONFIG,
];

/// Largest secret file, in bytes: a long bundle of PEM certificates fits.
pub(crate) const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// Longest grace that is believed, in milliseconds: a day.
const MAX_GRACE_MS: u64 = 86_400_000;

/// What the environment sets, and every problem of its form.
#[derive(Default)]
pub(crate) struct EnvLayer {
    pub(crate) given: Vec<Given>,
    pub(crate) problems: Vec<ConfigError>,
    pub(crate) config: Option<PathBuf>,
    pub(crate) grace_ms: Option<u64>,
    pub(crate) log_filter: Option<String>,
}

/// Reads the variables under the prefix; others are nobody's business.
pub(crate) fn read(variables: impl Iterator<Item = (String, String)>) -> EnvLayer {
    let ours: BTreeMap<String, String> = variables
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    let mut layer = EnvLayer::default();
    for (name, value) in &ours {
        let rest = &name[PREFIX.len()..];
        if rest.contains("__") {
            layer.setting(name, rest, value)
        } else {
            layer.bare(name, value)
        }
    }
    layer.twice();
    layer
}

impl EnvLayer {
    fn problem(&mut self, name: &str, key: String, message: String) {
        self.problems.push(ConfigError {
            origin: Origin::Env { name: name.into() },
            key,
            message,
        });
    }

    fn bare(&mut self, name: &str, value: &str) {
        match name {
            CONFIG if !value.is_empty() => self.config = Some(value.into()),
            LOG if !value.is_empty() => match tracing_subscriber::EnvFilter::try_new(value) {
                Ok(_) => self.log_filter = Some(value.into()),
                Err(error) => {
                    let message = format!(
                        "is no log filter ({error}); write e.g. info, or tidegate_worker=debug,info"
                    );
                    self.problem(name, String::new(), message);
                }
            },
            TERMINATION_GRACE_MS => match value.parse::<u64>() {
                Ok(grace_ms) if (1..=MAX_GRACE_MS).contains(&grace_ms) => {
                    self.grace_ms = Some(grace_ms)
                }
                _ => {
                    let message = format!(
                        "must be an integer number of milliseconds from 1 to {MAX_GRACE_MS}, e.g. 30000"
                    );
                    self.problem(name, String::new(), message);
                }
            },
            _ if BARE.contains(&name) => {}
            _ => self.problem(name, String::new(), unknown(name)),
        }
    }

    fn setting(&mut self, name: &str, rest: &str, value: &str) {
        let origin = Origin::Env { name: name.into() };
        let path = path_of(rest);
        let refusal = match resolve(&path) {
            Place::Setting(setting) => {
                self.given.push(Given {
                    path,
                    setting,
                    raw: Raw::Word(value.into()),
                    origin,
                });
                return;
            }
            Place::Section => "names a section; a variable sets one key of it".into(),
            Place::Unknown(refusal) => refusal,
        };
        // `KEY_FILE` reads KEY from a file, unless KEY_FILE is a setting of its own.
        let mut target = path.clone();
        let from_file = target
            .last_mut()
            .is_some_and(|last| match last.strip_suffix("_file") {
                Some(key) => {
                    *last = key.into();
                    true
                }
                None => false,
            });
        match resolve(&target) {
            Place::Setting(setting) if from_file => {
                match read_bounded(Path::new(value), MAX_SECRET_BYTES) {
                    Ok(text) => {
                        let word = without_line_end(&text).to_owned();
                        self.given.push(Given {
                            path: target,
                            setting,
                            raw: Raw::Word(word),
                            origin,
                        });
                    }
                    Err(why) => {
                        self.problem(name, join(&target), format!("the file {value} {why}"))
                    }
                }
            }
            _ => self.problem(name, join(&path), refusal),
        }
    }

    /// A setting given both as `KEY` and as `KEY_FILE` has two answers.
    fn twice(&mut self) {
        let mut seen: BTreeMap<String, Origin> = BTreeMap::new();
        let mut problems = Vec::new();
        for given in &self.given {
            let key = join(&given.path);
            if let Some(other) = seen.insert(key.clone(), given.origin.clone()) {
                let message = format!("is set by {other} too; keep one of the two");
                problems.push(ConfigError {
                    origin: given.origin.clone(),
                    key,
                    message,
                });
            }
        }
        self.problems.append(&mut problems);
    }
}

/// `POOLS__GPU_A__SLOTS` is `pools.gpu-a.slots`: a variable cannot hold the '-' of a pool's name, and no pool's name
/// holds a '_'.
fn path_of(rest: &str) -> Vec<String> {
    let mut path: Vec<String> = rest.split("__").map(str::to_ascii_lowercase).collect();
    if path.len() > 1 && path[0] == "pools" {
        path[1] = path[1].replace('_', "-");
    }
    path
}

fn unknown(name: &str) -> String {
    let fixed = SECTIONS
        .iter()
        .filter(|section| !section.path.contains(&"*"));
    let settings = fixed.flat_map(|section| {
        section.settings.iter().map(|setting| {
            format!(
                "{PREFIX}{}__{}",
                section.path[0].to_ascii_uppercase(),
                setting.key.to_ascii_uppercase()
            )
        })
    });
    let known: Vec<String> = BARE
        .iter()
        .map(|name| (*name).to_owned())
        .chain(settings)
        .collect();
    // All share the prefix: only the rest may count, or everything would be near to everything.
    let rests = known.iter().map(|name| &name[PREFIX.len()..]);
    match nearest(&name[PREFIX.len()..], rests) {
        Some(meant) => format!("unknown variable; did you mean {PREFIX}{meant}?"),
        None => format!(
            "unknown variable; settings are {PREFIX}SECTION__KEY, the others {}",
            BARE.join(", ")
        ),
    }
}

/// Text of a secret file without the one line end that editors and `echo` put there.
pub(crate) fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// The API key of the client commands: `TIDEGATE_API_KEY`, or what the file `TIDEGATE_API_KEY_FILE` holds.
///
/// # Errors
/// When both are set, or the file cannot be read.
pub fn api_key(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Secret>, ConfigError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let fail = |message: String| {
        let origin = Origin::Env {
            name: API_KEY_FILE.into(),
        };
        Err(ConfigError {
            origin,
            key: String::new(),
            message,
        })
    };
    match (set(API_KEY), set(API_KEY_FILE)) {
        (None, None) => Ok(None),
        (Some(key), None) => Ok(Some(Secret::new(key))),
        (None, Some(path)) => match read_bounded(Path::new(&path), MAX_SECRET_BYTES) {
            Ok(text) => Ok(Some(Secret::new(without_line_end(&text)))),
            Err(why) => fail(format!("the file {path} {why}")),
        },
        (Some(_), Some(_)) => fail(format!("is set beside {API_KEY}; keep one of the two")),
    }
}
