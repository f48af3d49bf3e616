//! From the layers to a configuration, or to every problem of it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::check::{Judge, has_password};
use super::env::{self, without_line_end};
use super::error::{ConfigError, ConfigErrors, Origin};
use super::file::{self, read_bounded};
use super::layers::{Given, Merged};
use super::schema::{Place, resolve};
use super::secret::Secret;
use super::value::Raw;
use super::{AuthMode, Config, PoolConfig, names, show};

/// What a process is going to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The HTTP front.
    Ingress,
    /// The one that calls the model servers.
    Worker,
    /// The one that gives back what dead workers held.
    Reaper,
}

/// A configuration without a problem.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Where each setting comes from, by dotted key.
    pub origins: BTreeMap<String, Origin>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<ConfigError>,
    /// `TIDEGATE_TERMINATION_GRACE_MS`, in milliseconds.
    pub grace_ms: Option<u64>,
    /// `TIDEGATE_LOG`.
    pub log_filter: Option<String>,
}

impl Config {
    /// Loads the settings for no role in particular: drains are judged against `TIDEGATE_TERMINATION_GRACE_MS` only
    /// where they were set. See [`Config::load_for`].
    ///
    /// # Errors
    /// Every problem of every layer.
    pub fn load(
        path: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: &[(String, String)],
    ) -> Result<Loaded, ConfigErrors> {
        Self::load_for(None, path, env, flags)
    }

    /// Loads the settings for a role. `path` is the file (else the one that `TIDEGATE_CONFIG` names, else none), `env`
    /// all variables of the process, `flags` dotted keys with their values as they stand on the command line.
    ///
    /// # Errors
    /// Every problem of every layer.
    pub fn load_for(
        role: Option<Role>,
        path: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: &[(String, String)],
    ) -> Result<Loaded, ConfigErrors> {
        let env = env::read(env);
        let mut merged = Merged::default();
        if let Some(path) = path.or(env.config.as_deref()) {
            let layer = file::read(path);
            merged.problems.extend(layer.problems);
            layer
                .sections
                .iter()
                .for_each(|section| merged.section(section));
            merged.add(layer.given);
        }
        merged.problems.extend(env.problems);
        merged.add(env.given);
        merged.add_flags(flags);
        merged.refuse_unsupported();

        let mut config = assemble(&mut merged);
        read_password(&mut config, &mut merged);
        let mut judge = Judge {
            origins: &merged.origins,
            bad: &merged.bad,
            problems: Vec::new(),
        };
        judge.config(&config, role, env.grace_ms);
        let mut problems = merged.problems;
        problems.extend(judge.problems);
        ConfigErrors::check(problems)?;

        let warnings = warnings(&config, &merged.origins);
        let mut origins = merged.origins;
        for (key, _) in show::keys(&config) {
            origins.entry(key).or_default();
        }
        Ok(Loaded {
            config,
            origins,
            warnings,
            grace_ms: env.grace_ms,
            log_filter: env.log_filter,
        })
    }
}

/// The settings out of the merged tree. Values of a wrong kind are not in it, so defaults stand in for them.
fn assemble(merged: &mut Merged) -> Config {
    match serde_json::from_value(Value::Object(merged.tree.clone())) {
        Ok(config) => config,
        Err(error) => {
            let message = format!("cannot be read: {error}");
            merged.problems.push(ConfigError {
                origin: Origin::Default,
                key: String::new(),
                message,
            });
            Config::default()
        }
    }
}

/// Reads the file behind `store.password_file`.
fn read_password(config: &mut Config, merged: &mut Merged) {
    const KEY: &str = "store.password_file";
    let path = config.store.password_file.clone();
    if path.is_empty() || merged.bad.contains(KEY) {
        return;
    }
    let problem = match read_bounded(Path::new(&path), env::MAX_SECRET_BYTES) {
        Ok(text) if without_line_end(&text).is_empty() => {
            format!("the file {path} is empty; put the password into it")
        }
        Ok(text) => {
            config.store.password = Secret::new(without_line_end(&text));
            return;
        }
        Err(why) => format!("the file {path} {why}"),
    };
    let origin = merged.origins.get(KEY).cloned().unwrap_or_default();
    merged.problems.push(ConfigError {
        origin,
        key: KEY.into(),
        message: problem,
    });
}

fn warnings(config: &Config, origins: &BTreeMap<String, Origin>) -> Vec<ConfigError> {
    let mut found = Vec::new();
    let mut warn = |key: &str, message: String| {
        found.push(ConfigError {
            origin: origins.get(key).cloned().unwrap_or_default(),
            key: key.into(),
            message,
        });
    };
    if config.ingress.auth == AuthMode::Open {
        warn(
            "ingress.auth",
            "\"open\": whoever reaches the listener may do everything".into(),
        );
    }
    if matches!(origins.get("store.url"), Some(Origin::File { .. }))
        && has_password(config.store.url.expose())
    {
        warn(
            "store.url",
            "has a password in it; store.password_file keeps it out of this file".into(),
        );
    }
    if !config.pools.is_empty() {
        for name in config
            .worker
            .pools
            .iter()
            .filter(|name| !config.pools.contains_key(*name))
        {
            warn(
                "worker.pools",
                format!("pool \"{name}\" has no section here; it must be in the store"),
            );
        }
    }
    found
}

/// The pools of a file, for `pool apply -f FILE`.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolsFile {
    /// Pools by name; at least one.
    pub pools: BTreeMap<String, PoolConfig>,
}

impl PoolsFile {
    /// Loads the pools of a file which may be a whole configuration. The settings of the other sections are not
    /// judged, but a section or key that does not exist is a problem, and so is a file without a pool.
    ///
    /// # Errors
    /// Every problem of the pools.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let layer = file::read(path);
        let mut merged = Merged {
            problems: layer.problems,
            ..Merged::default()
        };
        let pools = |path: &[String]| path.first().is_some_and(|top| top == "pools");
        layer
            .sections
            .iter()
            .filter(|path| pools(path))
            .for_each(|section| merged.section(section));
        merged.add(
            layer
                .given
                .into_iter()
                .filter(|given| pools(&given.path))
                .collect(),
        );
        merged.refuse_unsupported();
        let config = assemble(&mut merged);
        let mut judge = Judge {
            origins: &merged.origins,
            bad: &merged.bad,
            problems: Vec::new(),
        };
        for (name, pool) in &config.pools {
            judge.pool(&format!("pools.{name}"), pool);
        }
        let mut problems = merged.problems;
        problems.extend(judge.problems);
        if config.pools.is_empty() && problems.is_empty() {
            let message = format!(
                "{} has no pool; it must have a section [pools.NAME]",
                path.display()
            );
            problems.push(ConfigError {
                origin: Origin::Default,
                key: String::new(),
                message,
            });
        }
        ConfigErrors::check(problems)?;
        Ok(Self {
            pools: config.pools,
        })
    }
}

impl PoolConfig {
    /// Judges the settings of pool `name` as the API gets them, by the same rules as the file's. `settings` are the
    /// keys of the file, without the read-only members of a pool's answer.
    ///
    /// # Errors
    /// Every problem; keys are dotted from `pools.NAME`.
    pub fn from_json(name: &str, settings: &Map<String, Value>) -> Result<Self, ConfigErrors> {
        let mut merged = Merged::default();
        let at = vec!["pools".to_owned(), name.to_owned()];
        if let Err(right) = names::pool_name(name) {
            let message = format!("is no name of a pool; it must be {right}");
            return Err(ConfigErrors(vec![ConfigError {
                origin: Origin::Request,
                key: "pools".into(),
                message,
            }]));
        }
        merged.section(&at);
        let mut given = Vec::new();
        request(&mut merged, &at, settings, &mut given);
        merged.add(given);
        merged.refuse_unsupported();
        let pool = assemble(&mut merged).pools.remove(name).unwrap_or_default();
        let mut judge = Judge {
            origins: &merged.origins,
            bad: &merged.bad,
            problems: Vec::new(),
        };
        judge.pool(&format!("pools.{name}"), &pool);
        let mut problems = merged.problems;
        problems.extend(judge.problems);
        ConfigErrors::check(problems)?;
        Ok(pool)
    }
}

/// Walks an object of the API as the file's walk does. The schema is four levels deep, so this is too.
fn request(
    merged: &mut Merged,
    at: &[String],
    object: &Map<String, Value>,
    given: &mut Vec<Given>,
) {
    for (name, value) in object {
        let mut path = at.to_vec();
        path.push(name.clone());
        let message = match (resolve(&path), value) {
            (Place::Section, Value::Object(below)) => {
                merged.section(&path);
                request(merged, &path, below, given);
                continue;
            }
            (Place::Section, _) => "must be an object".into(),
            (Place::Setting(setting), value) => {
                given.push(Given {
                    path,
                    setting,
                    raw: Raw::from(value),
                    origin: Origin::Request,
                });
                continue;
            }
            (Place::Unknown(message), _) => message,
        };
        merged.problems.push(ConfigError {
            origin: Origin::Request,
            key: path.join("."),
            message,
        });
    }
}
