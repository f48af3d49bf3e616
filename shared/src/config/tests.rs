#![allow(clippy::unwrap_used)]

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
fn load_for(role: Option<Role>, text: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Loaded, String> {
    let file = file(text);
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let flags: Vec<(String, String)> = flags.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    Config::load_for(role, Some(&file.path), env, &flags).map_err(|errors| plain(&errors, &file.path))
}

fn plain(errors: &ConfigErrors, path: &std::path::Path) -> String {
    errors.to_string().replace(&path.display().to_string(), "t.toml")
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
    assert_eq!((config.store.command_timeout_ms, config.ingress.drain_ms, config.worker.drain_ms), (2000, 30_000, 25_000));
    assert_eq!(config.worker.pools, ["default"]);
    assert!(config.pools.is_empty());
}

#[test]
fn the_documented_file_is_the_defaults() {
    let loaded = load_all(DOCUMENTED, &[], &[]).unwrap();
    let pool = PoolConfig { models: vec!["llama-3-8b".into()], ..PoolConfig::default() };
    let config = Config { pools: BTreeMap::from([("default".to_owned(), pool)]), ..Config::default() };
    assert_eq!(loaded.config, config);
    let documented: BTreeSet<String> = loaded.origins.iter().filter(|(_, origin)| **origin != Origin::Default).map(|(key, _)| key.clone()).collect();
    let known: BTreeSet<String> = show::keys(&config).into_iter().map(|(key, _)| key).filter(|key| key != "pools.default.blocked").collect();
    assert_eq!(documented, known, "every setting is in the documented file");
}

#[test]
fn the_table_of_settings_and_the_structs_have_the_same_keys() {
    let class = ClassConfig { ceiling: Some(1), ceiling_tokens: Some(1), max_wait_ms: Some(1), ..ClassConfig::default() };
    let pool = PoolConfig { classes: BTreeMap::from([("c".into(), class)]), ..PoolConfig::default() };
    let tenant = TenantConfig {
        requests_per_minute: Some(1),
        tokens_per_minute: Some(1),
        max_running: Some(1),
        max_queued: Some(1),
        budget_usd: Some(1.0),
        ..TenantConfig::default()
    };
    let full = Config { pools: BTreeMap::from([("p".into(), pool)]), tenants: BTreeMap::from([("t".into(), tenant)]), ..Config::default() };
    let tree = serde_json::to_value(&full).unwrap();
    for section in &SECTIONS {
        let pointer: String = section.path.join("/").replace("pools/*", "pools/p").replace("classes/*", "classes/c").replace("tenants/*", "tenants/t");
        let object = tree.pointer(&format!("/{pointer}")).unwrap().as_object().unwrap();
        let fields: BTreeSet<&str> = object.keys().map(String::as_str).filter(|key| *key != "classes").collect();
        let settings: BTreeSet<&str> = section.settings.iter().map(|setting| setting.key).collect();
        assert_eq!(fields, settings, "{pointer}");
        for setting in section.settings {
            let raw = value::Raw::from(&object[setting.key]);
            value::convert(setting.kind, &raw, false).unwrap_or_else(|why| panic!("{pointer}.{}: {why}", setting.key));
        }
    }
}

#[test]
fn a_later_layer_wins_and_each_value_knows_where_it_comes_from() {
    let text = "[ingress]\nmax_depth = 10\nlisten = \"127.0.0.1:1\"\n[pools.gpu-a]\nslots = 1\n[pools.empty]\n";
    let env = [
        ("TIDEGATE_INGRESS__MAX_DEPTH", "20"),
        ("TIDEGATE_INGRESS__LISTEN", "127.0.0.1:2"),
        ("TIDEGATE_POOLS__GPU_A__SLOTS", "8"),
        ("TIDEGATE_POOLS__GPU_A__CLASSES__BATCH_LOW__RANK", "4"),
        ("TIDEGATE_WORKER__POOLS", "gpu-a, empty"),
        ("TIDEGATE_URL", "http://h"),
        ("TIDEGATE_API_KEY", "k"),
        ("TIDEGATE_LOG", "debug"),
        ("TIDEGATE_TERMINATION_GRACE_MS", "40000"),
        ("HOME", "/root"),
    ];
    let loaded = load_all(text, &env, &[("ingress.listen", "127.0.0.1:3")]).unwrap();
    let config = &loaded.config;
    assert_eq!((config.ingress.max_depth, config.ingress.listen.port(), config.pools["gpu-a"].slots), (20, 3, 8));
    assert_eq!(config.pools["gpu-a"].classes["batch_low"].rank, 4);
    assert_eq!(config.pools["empty"], PoolConfig::default());
    assert_eq!(config.worker.pools, ["gpu-a", "empty"]);
    assert_eq!((loaded.log_filter.as_deref(), loaded.grace_ms), (Some("debug"), Some(40_000)));
    assert_eq!(loaded.origins["ingress.listen"], Origin::Flag);
    assert_eq!(loaded.origins["ingress.max_depth"].to_string(), "environment TIDEGATE_INGRESS__MAX_DEPTH");
    assert_eq!(loaded.origins["pools.empty.slots"], Origin::Default);
    assert_eq!(loaded.origins["ingress.auth"], Origin::Default);
}

#[test]
fn every_problem_is_told_at_once_with_its_line() {
    refuses(
        "[store]\nmode = \"multi\"\n\n[ingres]\nx = 1\n[worker]\nlease = 3\ndrain_ms = \"30s\"\n[pools.default]\nslots = -1\nlease_ms = 1.5\nlese_ms = 3\n",
        "t.toml:2: store.mode: must be one of \"single\", \"cluster\", \"sentinel\", not \"multi\"\n\
         t.toml:4: ingres: unknown section; did you mean \"ingress\"?\n\
         t.toml:7: worker.lease: unknown key; known here: listen, name, pools, concurrency, max_response_bytes, drain_ms, backends\n\
         t.toml:8: worker.drain_ms: must be an integer number of milliseconds, e.g. 30000, not \"30s\"\n\
         t.toml:10: pools.default.slots: -1 is out of range; it must be 0 to 100000\n\
         t.toml:11: pools.default.lease_ms: must be an integer number of milliseconds, e.g. 30000, not 1.5\n\
         t.toml:12: pools.default.lese_ms: unknown key; did you mean \"lease_ms\"?",
    );
}

#[test]
fn a_wrong_value_says_what_would_be_right() {
    for (text, problem) in [
        ("[ingress]\nlisten = \"8080\"", "t.toml:2: ingress.listen: must be an IP address and port, e.g. \"127.0.0.1:8080\" or \"[::1]:8080\", not \"8080\""),
        ("[ingress]\nmax_body_bytes = 0", "t.toml:2: ingress.max_body_bytes: 0 is out of range; it must be 1024 to 1073741824 bytes"),
        ("[ingress]\nmax_body_bytes = 99999999999999999999999", "t.toml:2: ingress.max_body_bytes: 99999999999999999999999 is out of range; it must be 1024 to 1073741824 bytes"),
        ("[ingress]\nauth = true", "t.toml:2: ingress.auth: must be one of \"keys\", \"open\", not true"),
        ("[worker]\npools = []", "t.toml:2: worker.pools: has 0 entries; it must have 1 to 64"),
        ("[worker]\npools = [\"a\", \"A\"]", "t.toml:2: worker.pools: entry 2 must be 1 to 32 of a-z, 0-9 and '-', not starting with '-', not \"A\""),
        ("[worker]\npools = [\"a\", \"a\"]", "t.toml:2: worker.pools: entry 2 is there twice: \"a\""),
        ("[worker]\nbackends = [\"h:1\"]", "t.toml:2: worker.backends: entry 1 must be an http:// or https:// address without user, query or fragment, e.g. \"http://127.0.0.1:8000\", not \"h:1\""),
        ("[worker]\npools = \"a\"", "t.toml:2: worker.pools: must be a list of strings, e.g. [\"a\", \"b\"], not \"a\""),
        ("[pools.p]\nquantile = 1.0", "t.toml:2: pools.p.quantile: 1 is out of range; it must be above 0 and below 1"),
        ("[pools.p]\nquantile = nan", "t.toml:2: pools.p.quantile: NaN is out of range; it must be above 0 and below 1"),
        ("[pools.p]\nlease_ms = 2020-01-01", "t.toml:2: pools.p.lease_ms: must be an integer number of milliseconds, e.g. 30000, not a date"),
        ("[pools.My_Pool]\nslots = 1", "t.toml:1: pools.My_Pool: \"My_Pool\" is no name of a pool; it must be 1 to 32 of a-z, 0-9 and '-', not starting with '-'"),
        ("[pools.p.classes.B]\nrank = 1", "t.toml:1: pools.p.classes.B: \"B\" is no name of a class; it must be 1 to 32 of a-z, 0-9, '_' and '-', starting with a letter or digit"),
        ("[tenants.-a]\nweight = 1", "t.toml:1: tenants.-a: \"-a\" is no name of a tenant; it must be 1 to 64 of a-z, 0-9, '_' and '-', starting with a letter or digit"),
        ("[[pools]]\nslots = 1", "t.toml:1: pools: must be a section, e.g. [pools]"),
        ("[pools]\nslots = 1", "t.toml:2: pools.slots: must be a section, e.g. [pools.slots]"),
        ("[store]\nurl = \"http://u:hush@h\"", "t.toml:2: store.url: must be a redis://, rediss://, unix:// or redis+unix:// address, e.g. \"redis://127.0.0.1:6379\", not the value given"),
        ("colour = 1", "t.toml:1: colour: unknown section; known here: store, ingress, worker, reaper, pools, tenants"),
        ("[pools.p.class.a]\nrank = 1", "t.toml:1: pools.p.class: unknown key; did you mean \"classes\"?"),
    ] {
        refuses(text, problem);
    }
}

#[test]
fn settings_are_judged_against_each_other() {
    for (text, problem) in [
        ("[pools.p]\nlease_ms = 10000", "t.toml:2: pools.p.renew_ms: three renewals of 5000 must fit into lease_ms, which is 10000; set renew_ms to at most 3333"),
        ("[pools.p]\nlease_ms = 30000\nrenew_ms = 10001", "t.toml:3: pools.p.renew_ms: three renewals of 10001 must fit into lease_ms, which is 30000; set renew_ms to at most 10000"),
        ("[reaper]\npass_ms = 10001\n[pools.p]\nslots = 1", "t.toml:2: reaper.pass_ms: three passes of 10001 must fit into the smallest lease, pools.p.lease_ms = 30000; set it to at most 10000"),
        ("[store]\ncommand_timeout_ms = 7501\n[pools.p]\n", "t.toml:2: store.command_timeout_ms: 7501 is above a quarter of the smallest lease, pools.p.lease_ms = 30000; set it to at most 7500"),
        ("[pools.p]\nslots = 20\nmax_queued = 19", "t.toml:3: pools.p.max_queued: 19 is below slots, which is 20: running jobs count too"),
        ("[pools.p]\nbackoff_ms = 60001", "t.toml:2: pools.p.backoff_ms: 60001 is above backoff_max_ms, which is 60000"),
        ("[ingress]\nlisten = \"0.0.0.0:80\"\nauth = \"open\"", "t.toml:3: ingress.auth: \"open\" is for a loopback address only, but ingress.listen is 0.0.0.0:80; use auth = \"keys\" or listen on 127.0.0.1"),
        ("[ingress]\nadmin_listen = \"127.0.0.1:8080\"", "t.toml:2: ingress.admin_listen: is the same address as ingress.listen; leave it empty to share the listener"),
        ("[store]\nurl = \"redis://a,redis://b\"", "t.toml:2: store.url: names 2 addresses, but store.mode is \"single\"; give one address"),
    ] {
        refuses(text, problem);
    }
    load_all("[reaper]\npass_ms = 1000\n[pools.p]\nlease_ms = 4000\nrenew_ms = 500", &[], &[]).unwrap();
}

#[test]
fn floors_and_ceilings_of_classes_are_judged_against_the_pools_slots() {
    let class = |floor, ceiling| ClassConfig { floor, ceiling, ..ClassConfig::default() };
    let classes = BTreeMap::from([("a".into(), class(20, Some(10))), ("b".into(), class(20, Some(40)))]);
    let pool = PoolConfig { classes, ..PoolConfig::default() };
    let mut judge = check::Judge { origins: &BTreeMap::new(), bad: &BTreeSet::new(), problems: Vec::new() };
    judge.pool("pools.p", &pool);
    let shown: Vec<String> = judge.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "pools.p.slots: 32 is below the sum of the floors of its classes, which is 40",
            "pools.p.classes.a.ceiling: 10 is below floor, which is 20",
            "pools.p.classes.b.ceiling: 40 is above slots, which is 32",
        ]
    );
}

#[test]
fn a_bad_value_is_not_compared_with_others() {
    refuses("[pools.p]\nlease_ms = 0", "t.toml:2: pools.p.lease_ms: 0 is out of range; it must be 500 to 3600000 milliseconds");
}

#[test]
fn the_drain_of_the_role_must_end_before_the_kill() {
    let grace = [("TIDEGATE_TERMINATION_GRACE_MS", "28000")];
    load_for(Some(Role::Worker), "", &grace, &[]).unwrap();
    load_for(Some(Role::Reaper), "", &grace, &[]).unwrap();
    load_all("", &grace, &[]).unwrap();
    let shown = load_for(Some(Role::Ingress), "", &grace, &[]).unwrap_err();
    assert_eq!(shown, "ingress.drain_ms: 30000 must be below TIDEGATE_TERMINATION_GRACE_MS, which is 28000");
    let shown = load_all("[worker]\ndrain_ms = 28000", &grace, &[]).unwrap_err();
    assert_eq!(shown, "t.toml:2: worker.drain_ms: 28000 must be below TIDEGATE_TERMINATION_GRACE_MS, which is 28000");
}

#[test]
fn what_this_release_lacks_is_refused_and_its_neutral_value_is_not() {
    refuses(
        "[store]\nurl = \"rediss://h\"\nmode = \"cluster\"\ndurability = \"replicated\"\n[ingress]\nstorage = \"s3://b/p\"\n[pools.default]\ngate = \"kv_cache < 0.9\"\nestimate = \"quantile\"\n[pools.default.classes.a]\nrank = 1\nceiling = 5\nwhen_limited = \"reject\"\n[tenants.acme]\nweight = 2\nmax_running = 0\n",
        "t.toml:2: store.url: rediss:// is not available in this version of tidegate; use redis://, unix:// or redis+unix://\n\
         t.toml:3: store.mode: \"cluster\" is not available in this version of tidegate; remove it\n\
         t.toml:4: store.durability: replicated is not available in this version of tidegate; use \"strict\" or \"relaxed\"\n\
         t.toml:6: ingress.storage: is not available in this version of tidegate; remove it\n\
         t.toml:8: pools.default.gate: is not available in this version of tidegate; remove it\n\
         t.toml:9: pools.default.estimate: is not available in this version of tidegate; remove it\n\
         t.toml:12: pools.default.classes.a.ceiling: is not available in this version of tidegate; remove it\n\
         t.toml:13: pools.default.classes.a.when_limited: is not available in this version of tidegate; remove it\n\
         t.toml:15: tenants.acme.weight: is not available in this version of tidegate; remove it\n\
         t.toml:16: tenants.acme.max_running: is not available in this version of tidegate; remove it",
    );
    let neutral = "[pools.p]\ngate = \"\"\ninflight_tokens = 0\n[pools.p.classes.a]\nfloor = 0\nlend = false\n[tenants.t]\nweight = 1\n";
    load_all(neutral, &[], &[]).unwrap();
}

#[test]
fn what_is_not_toml_is_told_with_its_line_and_the_rest_is_still_judged() {
    let shown = load_all("[store]\nmode = \n[reaper]\npass_ms = 0\n", &[("TIDEGATE_STORE__URI", "x")], &[]).unwrap_err();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("t.toml:2: is not TOML: "), "{shown}");
    assert_eq!(lines[1..], ["t.toml:4: reaper.pass_ms: 0 is out of range; it must be 50 to 60000 milliseconds", "environment TIDEGATE_STORE__URI: store.uri: unknown key; did you mean \"url\"?"]);
    let shown = load_all("[reaper]\npass_ms = 100\npass_ms = 200\n", &[], &[]).unwrap_err();
    assert_eq!(shown, "t.toml:3: is not TOML: duplicate key");
}

#[test]
fn a_file_that_cannot_be_read_is_one_problem() {
    let shown = Config::load(Some("/nonexistent/t.toml".as_ref()), std::iter::empty(), &[]).unwrap_err().to_string();
    assert_eq!(shown, "the configuration file /nonexistent/t.toml cannot be read: No such file or directory (os error 2)");
    let odd = file("");
    std::fs::write(&odd.path, b"\n\n\xff").unwrap();
    let env = std::iter::once(("TIDEGATE_CONFIG".to_owned(), odd.path.display().to_string()));
    let shown = plain(&Config::load(None, env, &[]).unwrap_err(), &odd.path);
    assert_eq!(shown, "the configuration file t.toml is not UTF-8 (line 3)");
}

#[test]
fn unknown_variables_and_flags_are_refused_with_what_was_meant() {
    for (name, value, problem) in [
        ("TIDEGATE_STORE_URL", "x", "unknown variable; did you mean TIDEGATE_STORE__URL?"),
        ("TIDEGATE_APIKEY", "x", "unknown variable; did you mean TIDEGATE_API_KEY?"),
        ("TIDEGATE_COLOUR_SCHEME_OF_IT", "x", "unknown variable; settings are TIDEGATE_SECTION__KEY, the others TIDEGATE_URL, TIDEGATE_API_KEY, TIDEGATE_API_KEY_FILE, TIDEGATE_TERMINATION_GRACE_MS, TIDEGATE_LOG, TIDEGATE_CONFIG"),
        ("TIDEGATE_INGRES__LISTEN", "x", "ingres.listen: unknown section; did you mean \"ingress\"?"),
        ("TIDEGATE_STORE__URL__X", "x", "store.url.x: store.url is a key, not a section"),
        ("TIDEGATE_POOLS__P", "x", "pools.p: names a section; a variable sets one key of it"),
        ("TIDEGATE_TERMINATION_GRACE_MS", "30s", "must be an integer number of milliseconds from 1 to 86400000, e.g. 30000"),
        ("TIDEGATE_REAPER__PASS_MS", "", "reaper.pass_ms: must be an integer number of milliseconds, e.g. 30000, not \"\""),
        ("TIDEGATE_INGRESS__LISTEN_FILE", "/nonexistent/x", "ingress.listen: the file /nonexistent/x cannot be read: No such file or directory (os error 2)"),
    ] {
        assert_eq!(load_all("", &[(name, value)], &[]).unwrap_err(), format!("environment {name}: {problem}"));
    }
    let flags = [("ingress.lisen", "x"), ("ingress", "x")];
    assert_eq!(
        load_all("", &[], &flags).unwrap_err(),
        "flag: ingress.lisen: unknown key; did you mean \"listen\"?\nflag: ingress: names a section; a flag sets one key of it"
    );
}

#[test]
fn secrets_come_from_files_and_are_shown_nowhere() {
    let secret = file("hunter2\n");
    let path = secret.path.display().to_string();
    let loaded = load_all("", &[("TIDEGATE_STORE__PASSWORD_FILE", &path)], &[]).unwrap();
    assert_eq!(loaded.config.store.password.expose(), "hunter2");
    let url = file("redis://:hunter2@h:1\n");
    let loaded = load_all("", &[("TIDEGATE_STORE__URL_FILE", &url.path.display().to_string())], &[]).unwrap();
    assert_eq!(loaded.config.store.url.expose(), "redis://:hunter2@h:1");
    let shown = format!("{loaded:?} {:?} {}", loaded.effective(), serde_json::to_string(&loaded.config).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(loaded.effective().contains(&(
        "store.url".into(),
        "\"redis://:***@h:1\"".into(),
        Origin::Env { name: "TIDEGATE_STORE__URL_FILE".into() }
    )));
    let both = [("TIDEGATE_STORE__URL", "redis://h"), ("TIDEGATE_STORE__URL_FILE", url.path.to_str().unwrap())];
    assert_eq!(
        load_all("", &both, &[]).unwrap_err(),
        "environment TIDEGATE_STORE__URL_FILE: store.url: is set by environment TIDEGATE_STORE__URL too; keep one of the two"
    );
    let twice = format!("[store]\nurl = \"redis://:pw@h\"\npassword_file = \"{path}\"");
    assert_eq!(
        load_all(&twice, &[], &[]).unwrap_err(),
        "t.toml:3: store.password_file: the password is in store.url too; keep it in one place, store.password_file"
    );
    let empty = file("\n");
    let shown = load_all("", &[("TIDEGATE_STORE__PASSWORD_FILE", empty.path.to_str().unwrap())], &[]).unwrap_err();
    assert!(shown.ends_with("is empty; put the password into it"), "{shown}");
}

#[test]
fn the_api_key_of_the_client_comes_from_one_place() {
    let secret = file("sk-1\r\n");
    let path = secret.path.display().to_string();
    let key = |pairs: &[(&str, &str)]| {
        env::api_key(|name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    };
    assert_eq!(key(&[]), Ok(None));
    assert_eq!(key(&[("TIDEGATE_API_KEY", "sk-2")]), Ok(Some(Secret::new("sk-2"))));
    assert_eq!(key(&[("TIDEGATE_API_KEY_FILE", &path)]), Ok(Some(Secret::new("sk-1"))));
    let both = key(&[("TIDEGATE_API_KEY", "a"), ("TIDEGATE_API_KEY_FILE", &path)]).unwrap_err().to_string();
    assert_eq!(both, "environment TIDEGATE_API_KEY_FILE: is set beside TIDEGATE_API_KEY; keep one of the two");
}

#[test]
fn what_is_allowed_but_odd_is_a_warning() {
    let text = "[store]\nurl = \"redis://:pw@h\"\n[ingress]\nauth = \"open\"\n[worker]\npools = [\"b\"]\n[pools.a]\n";
    let loaded = load_all(text, &[], &[]).unwrap();
    let keys: Vec<&str> = loaded.warnings.iter().map(|warning| warning.key.as_str()).collect();
    assert_eq!(keys, ["ingress.auth", "store.url", "worker.pools"]);
}

#[test]
fn the_effective_settings_stand_in_the_documented_order() {
    let loaded = load_all("[pools.b.classes.x]\nrank = 2\n[pools.a]\nmodels = [\"m\", \"n\"]\n", &[], &[]).unwrap();
    let effective = loaded.effective();
    let position = |key: &str| effective.iter().position(|(known, _, _)| known == key).unwrap();
    let order = ["store.url", "store.password_file", "ingress.listen", "reaper.pass_ms", "pools.a.models", "pools.b.gate", "pools.b.classes.x.rank"];
    assert!(order.windows(2).all(|pair| position(pair[0]) < position(pair[1])), "{effective:?}");
    let (_, value, origin) = &effective[position("pools.a.models")];
    assert_eq!(value, "[\"m\", \"n\"]");
    assert!(matches!(origin, Origin::File { line: 4, .. }));
    assert_eq!(effective[position("ingress.admin_listen")].1, "\"\"");
}

#[test]
fn a_pools_file_needs_pools_and_leaves_the_other_sections_alone() {
    let load = |text: &str| {
        let file = file(text);
        PoolsFile::load(&file.path).map_err(|errors| plain(&errors, &file.path))
    };
    let pools = load("[store]\npassword_file = \"/nonexistent\"\n[ingress]\nlisten = 1\n[pools.a]\nslots = 3\n").unwrap().pools;
    assert_eq!(pools["a"].slots, 3);
    assert_eq!(load("[store]\nmode = \"single\"\n").unwrap_err(), "t.toml has no pool; it must have a section [pools.NAME]");
    assert_eq!(load("[pool.a]\nslots = 3\n").unwrap_err(), "t.toml:1: pool: unknown section; did you mean \"pools\"?");
    assert_eq!(load("[pools.a]\nbackoff_ms = 0\ngate = \"x\"\n").unwrap_err().lines().count(), 2);
}

#[test]
fn a_pool_of_the_api_is_judged_by_the_files_rules_and_survives_the_store() {
    let from = |value: serde_json::Value| PoolConfig::from_json("p", value.as_object().unwrap());
    let pool = from(json!({"slots": 4, "classes": {"a": {"rank": 1}, "b": {}}})).unwrap();
    assert_eq!(pool.class_names(), ["b", "a"]);
    assert!(pool.has_class("a") && !pool.has_class("default") && PoolConfig::default().has_class("default"));
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

#[test]
fn every_bound_refuses_what_lies_just_outside() {
    for section in &SECTIONS {
        let at = section.path.join(".").replace("*", "p");
        for setting in section.settings {
            let Kind::Int { min, max, .. } = setting.kind else { continue };
            for outside in [i128::from(min) - 1, i128::from(max) + 1] {
                let shown = load_all(&format!("[{at}]\n{} = {outside}\n", setting.key), &[], &[]).unwrap_err();
                assert!(shown.contains(&format!("{at}.{}: {outside} is out of range; it must be {min} to {max}", setting.key)), "{shown}");
            }
        }
    }
}
