//! The store, for commands that go straight to it.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use tidegate_shared::config::{AuthMode, Config};
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;

use crate::config_cmd::environment;
use crate::exit::Failure;
use crate::globals::Globals;

/// The settings that say where the store is: `--redis`, else the environment, else the file.
pub(crate) fn config(globals: &Globals, path: Option<&Path>) -> Result<Config, Failure> {
    let flags: Vec<_> = globals
        .redis
        .iter()
        .map(|url| ("store.url".to_owned(), url.clone()))
        .collect();
    Ok(Config::load(path, environment(), &flags)?.config)
}

/// The store, which has answered once.
pub(crate) async fn connect(globals: &Globals, path: Option<&Path>) -> Result<Store, Failure> {
    let config = config(globals, path)?;
    open(&config).await
}

/// The store of these settings, which has answered once.
pub(crate) async fn open(config: &Config) -> Result<Store, Failure> {
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    Store::connect(&config.store, metrics)
        .await
        .map_err(|error| {
            Failure::Unreachable(format!(
                "the store at {} cannot be reached: {error}",
                config.store.url
            ))
        })
}

/// An ingress's routes over the store of the flags, in this process: no listener, and whoever may write to the store
/// may do everything.
pub(crate) async fn routes(globals: &Globals) -> Result<Router, Failure> {
    let mut config = config(globals, None)?;
    config.ingress.auth = AuthMode::Open;
    let store = open(&config).await?;
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    Ok(tidegate_ingress::routes(&config, store, metrics))
}
