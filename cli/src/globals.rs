//! Flags that every command takes.

use std::time::Duration;

use clap::Args;
use tidegate_shared::config::env;

use crate::exit::Failure;
use crate::output::Format;
use crate::text::parse_seconds;

/// Where an ingress listens by default.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// Largest file with an API key, in bytes: a key has fewer than 100.
const MAX_KEY_BYTES: usize = 4096;

/// Flags that every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Globals {
    /// Format of what is printed.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub(crate) output: Format,
    /// Address of the ingress; TIDEGATE_URL, else http://127.0.0.1:8080.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// API key; TIDEGATE_API_KEY, else the content of TIDEGATE_API_KEY_FILE.
    #[arg(long, global = true, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// Address of the store: go straight to it, without an ingress.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) redis: Option<String>,
    /// Give up after so many seconds, with exit code 124.
    #[arg(long, global = true, value_name = "S", value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Lists: print again every two seconds, until Ctrl-C.
    #[arg(short, long, global = true)]
    pub(crate) watch: bool,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Globals {
    /// Address of the ingress, without a slash at its end.
    pub(crate) fn url(&self) -> String {
        let url = self.url.clone().or_else(|| variable(env::URL));
        let url = url.unwrap_or_else(|| DEFAULT_URL.into());
        url.trim_end_matches('/').trim_end_matches("/v1").to_owned()
    }

    /// The API key, if there is one.
    pub(crate) fn api_key(&self) -> Result<Option<String>, Failure> {
        if let Some(key) = self.api_key.clone().or_else(|| variable(env::API_KEY)) {
            return Ok(Some(key));
        }
        let Some(path) = variable(env::API_KEY_FILE) else {
            return Ok(None);
        };
        match std::fs::read_to_string(&path) {
            Ok(text) if text.len() <= MAX_KEY_BYTES => Ok(Some(text.trim().to_owned())),
            Ok(_) => Err(Failure::Usage(format!(
                "{}: {path} is too large for an API key",
                env::API_KEY_FILE
            ))),
            Err(error) => Err(Failure::Usage(format!(
                "{}: {path}: {error}",
                env::API_KEY_FILE
            ))),
        }
    }
}
