//! `tidegate key`: API keys, straight in the store, because the first one has to come from somewhere.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};
use tidegate_shared::config::names;
use tidegate_shared::store::{ApiKeyRecord, Scope};

use crate::exit::Failure;
use crate::globals::Globals;
use crate::output::{self, Column, Printer, column, confirm, note};
use crate::{page, store, text};

/// Commands of `key`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create a key; its secret is printed this once.
    Create(CreateArgs),
    /// List keys, without their secrets.
    List(ListArgs),
    /// End keys at once.
    Revoke(RevokeArgs),
}

/// The new key.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Whose key; of an admin key: admin.
    #[arg(long, value_name = "NAME", value_parser = tenant)]
    tenant: String,
    /// What it may do: jobs, read, admin. May be given several times.
    #[arg(long, value_name = "SCOPE", required = true, value_parser = scope)]
    scope: Vec<Scope>,
    /// When it ends, from now: 90d, 12h.
    #[arg(long, value_name = "SPAN", value_parser = text::parse_span_ms)]
    expires: Option<u64>,
    #[command(flatten)]
    config: ConfigArg,
}

/// Where the store is, unless `--redis` says so.
#[derive(Debug, Args)]
pub(crate) struct ConfigArg {
    /// Configuration file that names the store; else TIDEGATE_CONFIG.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Which keys are listed.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Of this tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    #[command(flatten)]
    config: ConfigArg,
}

/// Which keys end.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Ids of keys, as `key list` prints them.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Do not ask before several keys are revoked.
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    config: ConfigArg,
}

const COLUMNS: &[Column] = &[
    column("ID", |key| text::cell(&key["id"])),
    column("TENANT", |key| text::cell(&key["tenant"])),
    column("SCOPES", |key| text::cell(&key["scopes"])),
    column("CREATED", |key| text::time(&key["created_at_ms"])),
    column("EXPIRES", |key| text::time(&key["expires_at_ms"])),
];

fn tenant(name: &str) -> Result<String, String> {
    names::tenant_name(name).map_err(|right| format!("must be {right}"))?;
    Ok(name.to_owned())
}

fn scope(word: &str) -> Result<Scope, String> {
    word.parse()
        .map_err(|_| "must be jobs, read or admin".into())
}

/// The wall clock, in ms since 1970: keys end by it.
#[expect(
    clippy::disallowed_methods,
    reason = "the end of a key is a date, and so is the age of a dead letter"
)]
pub(crate) fn now_ms() -> u64 {
    let past = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(past.as_millis()).unwrap_or(u64::MAX)
}

/// A key without its secret.
fn shown(record: &ApiKeyRecord) -> Value {
    json!({
        "id": record.id,
        "object": "key",
        "tenant": record.tenant,
        "scopes": record.scopes,
        "created_at_ms": record.created_at_ms,
        "expires_at_ms": record.expires_at_ms,
    })
}

/// Runs a command of `key`.
pub(crate) async fn run(command: Command, globals: &Globals) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create(args, globals).await,
        Command::List(args) => {
            let store = store::connect(globals, args.config.config.as_deref()).await?;
            page::print_whole(globals, COLUMNS, async || {
                let keys = store.keys().await?;
                let wanted =
                    |key: &&ApiKeyRecord| args.tenant.as_ref().is_none_or(|t| *t == key.tenant);
                Ok(keys.iter().filter(wanted).map(shown).collect())
            })
            .await
        }
        Command::Revoke(args) => revoke(&args, globals).await,
    }
}

async fn create(args: CreateArgs, globals: &Globals) -> Result<(), Failure> {
    let mut scopes = args.scope;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.contains(&Scope::Admin) && args.tenant != "admin" {
        note("note: this key has the scope admin, so it may do everything for every tenant");
    }
    let store = store::connect(globals, args.config.config.as_deref()).await?;
    let now_ms = now_ms();
    let expires_at_ms = args.expires.map(|span_ms| now_ms.saturating_add(span_ms));
    let (record, key) = ApiKeyRecord::mint(&args.tenant, scopes, now_ms, expires_at_ms);
    store.put_key(&record).await?;
    let shown = json!({
        "id": record.id,
        "tenant": record.tenant,
        "scopes": record.scopes,
        "key": key,
        "created_at_ms": record.created_at_ms,
        "expires_at_ms": record.expires_at_ms,
    });
    match globals.output {
        output::Format::Name => output::line(&record.id),
        output::Format::Json => output::document(&shown),
        // The contract's one line of JSON, also for people: the secret is shown this once.
        _ => output::line(&shown.to_string()),
    }
}

async fn revoke(args: &RevokeArgs, globals: &Globals) -> Result<(), Failure> {
    if args.ids.len() > 1 {
        confirm(format!("Revoke {} keys?", args.ids.len()), args.yes).await?;
    }
    let store = store::connect(globals, args.config.config.as_deref()).await?;
    let mut revoked = Vec::new();
    for id in &args.ids {
        // Somebody may paste the whole key: what stands between the underscores is its id.
        let bare = ApiKeyRecord::split(id).map_or(id.as_str(), |(bare, _)| bare);
        match store.revoke_key(bare).await? {
            true => revoked.push(json!({"id": bare, "object": "key", "revoked": true})),
            false => note(&format!("there is no key {}", text::visible(bare))),
        }
    }
    const REVOKED: &[Column] = &[
        column("ID", |key| text::cell(&key["id"])),
        column("REVOKED", |key| text::cell(&key["revoked"])),
    ];
    let missing = args.ids.len() - revoked.len();
    if !revoked.is_empty() {
        Printer::new(globals.output, REVOKED).list(&revoked)?;
    }
    match (missing, revoked.is_empty()) {
        (0, _) => Ok(()),
        (_, true) => Err(Failure::NotFound("nothing was revoked".into())),
        (_, false) => Err(Failure::Refused(format!(
            "{missing} of {} keys do not exist",
            args.ids.len()
        ))),
    }
}
