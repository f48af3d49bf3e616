#![allow(clippy::unwrap_used)]

mod refusals;
mod sources;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::json;

use super::schema::{Kind, SECTIONS};
use super::*;

/// The documented example, without what this release refuses.
const DOCUMENTED: &str = include_str!("documented.toml");

struct File {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn file(text: &str) -> File {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    std::fs::write(&path, text).unwrap();
    File { _dir: dir, path }
}

fn load_all(text: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Loaded, String> {
    load_for(None, text, env, flags)
}

/// Loads a file of this text; problems come as one text with the folder's name taken out.
fn load_for(
    role: Option<Role>,
    text: &str,
    env: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Loaded, String> {
    let file = file(text);
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let flags: Vec<(String, String)> = flags
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    Config::load_for(role, Some(&file.path), env, &flags)
        .map_err(|errors| plain(&errors, &file.path))
}

fn plain(errors: &ConfigErrors, path: &std::path::Path) -> String {
    errors
        .to_string()
        .replace(&path.display().to_string(), "t.toml")
}

/// Asserts the problems of a file, each on a line of its own.
fn refuses(text: &str, problems: &str) {
    let shown = load_all(text, &[], &[]).expect_err(text);
    assert_eq!(shown, problems, "\n{text}");
}

#[test]
fn nothing_set_means_the_documented_defaults() {
    let config = Config::load(None, std::iter::empty(), &[]).unwrap().config;
    assert_eq!(config, Config::default());
    assert_eq!(
        (
            config.store.command_timeout_ms,
            config.ingress.drain_ms,
            config.worker.drain_ms
        ),
        (2000, 30_000, 25_000)
    );
    assert_eq!(config.worker.pools, ["default"]);
    assert!(config.pools.is_empty());
}

#[test]
fn the_documented_file_is_the_defaults() {
    let loaded = load_all(DOCUMENTED, &[], &[]).unwrap();
    let pool = PoolConfig {
        models: vec!["llama-3-8b".into()],
        ..PoolConfig::default()
    };
    let config = Config {
        pools: BTreeMap::from([("default".to_owned(), pool)]),
        ..Config::default()
    };
    assert_eq!(loaded.config, config);
    let documented: BTreeSet<String> = loaded
        .origins
        .iter()
        .filter(|(_, origin)| **origin != Origin::Default)
        .map(|(key, _)| key.clone())
        .collect();
    let known: BTreeSet<String> = show::keys(&config)
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| key != "pools.default.blocked")
        .collect();
    assert_eq!(documented, known, "every setting is in the documented file");
}

#[test]
fn the_table_of_settings_and_the_structs_have_the_same_keys() {
    let class = ClassConfig {
        ceiling: Some(1),
        ceiling_tokens: Some(1),
        max_wait_ms: Some(1),
        ..ClassConfig::default()
    };
    let pool = PoolConfig {
        classes: BTreeMap::from([("c".into(), class)]),
        ..PoolConfig::default()
    };
    let tenant = TenantConfig {
        requests_per_minute: Some(1),
        tokens_per_minute: Some(1),
        max_running: Some(1),
        max_queued: Some(1),
        budget_usd: Some(1.0),
        ..TenantConfig::default()
    };
    let full = Config {
        pools: BTreeMap::from([("p".into(), pool)]),
        tenants: BTreeMap::from([("t".into(), tenant)]),
        ..Config::default()
    };
    let tree = serde_json::to_value(&full).unwrap();
    for section in &SECTIONS {
        let pointer: String = section
            .path
            .join("/")
            .replace("pools/*", "pools/p")
            .replace("classes/*", "classes/c")
            .replace("tenants/*", "tenants/t");
        let object = tree
            .pointer(&format!("/{pointer}"))
            .unwrap()
            .as_object()
            .unwrap();
        let fields: BTreeSet<&str> = object
            .keys()
            .map(String::as_str)
            .filter(|key| *key != "classes")
            .collect();
        let settings: BTreeSet<&str> = section.settings.iter().map(|setting| setting.key).collect();
        assert_eq!(fields, settings, "{pointer}");
        for setting in section.settings {
            let raw = value::Raw::from(&object[setting.key]);
            value::convert(setting.kind, &raw, false)
                .unwrap_or_else(|why| panic!("{pointer}.{}: {why}", setting.key));
        }
    }
}

#[test]
fn what_is_allowed_but_odd_is_a_warning() {
    let text = "[store]\nurl = \"redis://:pw@h\"\n[ingress]\nauth = \"open\"\n[worker]\npools = [\"b\"]\n[pools.a]\n";
    let loaded = load_all(text, &[], &[]).unwrap();
    let keys: Vec<&str> = loaded
        .warnings
        .iter()
        .map(|warning| warning.key.as_str())
        .collect();
    assert_eq!(keys, ["ingress.auth", "store.url", "worker.pools"]);
}

#[test]
fn a_pools_file_needs_pools_and_leaves_the_other_sections_alone() {
    let load = |text: &str| {
        let file = file(text);
        PoolsFile::load(&file.path).map_err(|errors| plain(&errors, &file.path))
    };
    let pools = load(
        "[store]\npassword_file = \"/nonexistent\"\n[ingress]\nlisten = 1\n[pools.a]\nslots = 3\n",
    )
    .unwrap()
    .pools;
    assert_eq!(pools["a"].slots, 3);
    assert_eq!(
        load("[store]\nmode = \"single\"\n").unwrap_err(),
        "t.toml has no pool; it must have a section [pools.NAME]"
    );
    assert_eq!(
        load("[pool.a]\nslots = 3\n").unwrap_err(),
        "t.toml:1: pool: unknown section; did you mean \"pools\"?"
    );
    assert_eq!(
        load("[pools.a]\nbackoff_ms = 0\ngate = \"x\"\n")
            .unwrap_err()
            .lines()
            .count(),
        2
    );
}

#[test]
fn a_pool_of_the_api_is_judged_by_the_files_rules_and_survives_the_store() {
    let from = |value: serde_json::Value| PoolConfig::from_json("p", value.as_object().unwrap());
    let pool = from(json!({"slots": 4, "classes": {"a": {"rank": 1}, "b": {}}})).unwrap();
    assert_eq!(pool.class_names(), ["b", "a"]);
    assert!(
        pool.has_class("a")
            && !pool.has_class("default")
            && PoolConfig::default().has_class("default")
    );
    let stored = serde_json::to_string(&pool).unwrap();
    assert_eq!(serde_json::from_str::<PoolConfig>(&stored).unwrap(), pool);
    assert_eq!(from(serde_json::from_str(&stored).unwrap()).unwrap(), pool);
    let shown = from(json!({"slots": 4.5, "slotz": 1, "classes": 3, "gate": "x", "models": [null], "lease_ms": 600})).unwrap_err().to_string();
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "request: pools.p.classes: must be an object",
            "request: pools.p.gate: is not available in this version of tidegate; remove it",
            "request: pools.p.models: entry 1 must be a string, not null",
            "request: pools.p.renew_ms: three renewals of 5000 must fit into lease_ms, which is 600; set renew_ms to at most 200",
            "request: pools.p.slots: must be an integer, not 4.5",
            "request: pools.p.slotz: unknown key; did you mean \"slots\"?",
        ]
    );
    assert!(PoolConfig::from_json("P", &serde_json::Map::new()).is_err());
}

#[test]
fn a_command_never_gets_more_than_a_quarter_of_the_lease() {
    let store = StoreConfig::default();
    assert_eq!(store.effective_command_timeout_ms(30_000), 2000);
    assert_eq!(store.effective_command_timeout_ms(4_000), 1000);
}
