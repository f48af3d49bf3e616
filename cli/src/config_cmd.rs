//! `tidegate config check|show`.

use std::path::PathBuf;

use serde_json::json;
use tidegate_shared::config::{Config, Loaded};

use crate::exit::Failure;
use crate::globals::Globals;
use crate::output::{self, Format};

/// Commands of `config`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Judge a configuration; every problem at once, on standard error, with exit code 2.
    Check(Args),
    /// Print the effective settings with where each comes from; secrets stay hidden.
    Show(Args),
}

/// What is judged or shown.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file; else the one that TIDEGATE_CONFIG names, else none.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A setting on top of the file and the environment.
    #[arg(long, value_name = "SECTION.KEY=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
}

/// `section.key=value`.
pub(crate) fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if key.contains('.') => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("must be SECTION.KEY=VALUE, e.g. worker.concurrency=8".into()),
    }
}

/// All variables that are text: a setting is never anything else.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Prints what is allowed and probably not meant.
fn warn(loaded: &Loaded) {
    for warning in &loaded.warnings {
        output::note(&format!(
            "warning: {}",
            crate::text::visible(&warning.to_string())
        ));
    }
}

/// Runs a command of `config`.
pub(crate) fn run(command: Command, globals: &Globals) -> Result<(), Failure> {
    let (Command::Check(args) | Command::Show(args)) = &command;
    let mut flags = args.set.clone();
    if let Some(url) = &globals.redis {
        flags.push(("store.url".into(), url.clone()));
    }
    let loaded = Config::load(args.config.as_deref(), environment(), &flags)?;
    warn(&loaded);
    match command {
        Command::Check(_) if globals.output.is_json() => {
            output::line(&json!({"ok": true}).to_string())
        }
        Command::Check(_) => output::line("ok"),
        Command::Show(_) => show(&loaded, globals.output),
    }
}

fn show(loaded: &Loaded, format: Format) -> Result<(), Failure> {
    let settings = loaded.effective();
    let rows = settings.iter().map(|(key, value, origin)| {
        let value: serde_json::Value =
            serde_json::from_str(value).unwrap_or_else(|_| value.as_str().into());
        json!({"id": key, "key": key, "value": value, "origin": origin.to_string()})
    });
    if format.is_json() || format == Format::Name {
        return output::Printer::new(format, &[]).list(&rows.collect::<Vec<_>>());
    }
    let mut text = String::new();
    for (key, value, origin) in &settings {
        let setting = crate::text::visible(&format!("{key} = {value}"));
        let origin = crate::text::visible(&origin.to_string());
        text.push_str(&format!("{setting:<60} # {origin}\n"));
    }
    output::bytes(text.as_bytes())
}
