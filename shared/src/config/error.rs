//! Problems of a configuration: all of them, each with its place.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// Where a setting's value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum Origin {
    /// Nobody set it.
    #[default]
    Default,
    /// The configuration file.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// Line of the key, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Env {
        /// The variable.
        name: String,
    },
    /// A flag of the command line.
    Flag,
    /// A body of the API.
    Request,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env { name } => write!(f, "environment {name}"),
            Self::Flag => f.write_str("flag"),
            Self::Request => f.write_str("request"),
        }
    }
}

/// One problem: where, which key, what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    /// Where the wrong value stands; [`Origin::Default`] where no value was given.
    pub origin: Origin,
    /// Dotted key, e.g. `pools.default.lease_ms`; empty where the problem is the file as a whole.
    pub key: String,
    /// What is wrong and what would be right; no line end.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin != Origin::Default {
            write!(f, "{}: ", self.origin)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Every problem of a configuration, file first and in its order, then the environment, then the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl ConfigErrors {
    /// `Ok` when there is no problem, otherwise all of them in the order in which they are shown.
    pub(crate) fn check(mut problems: Vec<ConfigError>) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by_key(|problem| match &problem.origin {
            Origin::File { line, .. } => (0, *line),
            Origin::Env { .. } => (1, 0),
            Origin::Flag => (2, 0),
            Origin::Default | Origin::Request => (3, 0),
        });
        problems.dedup();
        Err(Self(problems))
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
