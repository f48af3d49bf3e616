//! Where settings come from.

use super::*;

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
    assert_eq!(
        (
            config.ingress.max_depth,
            config.ingress.listen.port(),
            config.pools["gpu-a"].slots
        ),
        (20, 3, 8)
    );
    assert_eq!(config.pools["gpu-a"].classes["batch_low"].rank, 4);
    assert_eq!(config.pools["empty"], PoolConfig::default());
    assert_eq!(config.worker.pools, ["gpu-a", "empty"]);
    assert_eq!(
        (loaded.log_filter.as_deref(), loaded.grace_ms),
        (Some("debug"), Some(40_000))
    );
    assert_eq!(loaded.origins["ingress.listen"], Origin::Flag);
    assert_eq!(
        loaded.origins["ingress.max_depth"].to_string(),
        "environment TIDEGATE_INGRESS__MAX_DEPTH"
    );
    assert_eq!(loaded.origins["pools.empty.slots"], Origin::Default);
    assert_eq!(loaded.origins["ingress.auth"], Origin::Default);
}

#[test]
fn a_file_that_cannot_be_read_is_one_problem() {
    let shown = Config::load(
        Some("/nonexistent/t.toml".as_ref()),
        std::iter::empty(),
        &[],
    )
    .unwrap_err()
    .to_string();
    assert_eq!(
        shown,
        "the configuration file /nonexistent/t.toml cannot be read: No such file or directory (os error 2)"
    );
    let odd = file("");
    std::fs::write(&odd.path, b"\n\n\xff").unwrap();
    let env = std::iter::once(("TIDEGATE_CONFIG".to_owned(), odd.path.display().to_string()));
    let shown = plain(&Config::load(None, env, &[]).unwrap_err(), &odd.path);
    assert_eq!(shown, "the configuration file t.toml is not UTF-8 (line 3)");
}

#[test]
fn unknown_variables_and_flags_are_refused_with_what_was_meant() {
    for (name, value, problem) in [
        (
            "TIDEGATE_STORE_URL",
            "x",
            "unknown variable; did you mean TIDEGATE_STORE__URL?",
        ),
        (
            "TIDEGATE_APIKEY",
            "x",
            "unknown variable; did you mean TIDEGATE_API_KEY?",
        ),
        (
            "TIDEGATE_COLOUR_SCHEME_OF_IT",
            "x",
            "unknown variable; settings are TIDEGATE_SECTION__KEY, the others TIDEGATE_URL, TIDEGATE_API_KEY, TIDEGATE_API_KEY_FILE, TIDEGATE_TERMINATION_GRACE_MS, TIDEGATE_LOG, TIDEGATE_CONFIG",
        ),
        (
            "TIDEGATE_INGRES__LISTEN",
            "x",
            "ingres.listen: unknown section; did you mean \"ingress\"?",
        ),
        (
            "TIDEGATE_STORE__URL__X",
            "x",
            "store.url.x: store.url is a key, not a section",
        ),
        (
            "TIDEGATE_POOLS__P",
            "x",
            "pools.p: names a section; a variable sets one key of it",
        ),
        (
            "TIDEGATE_TERMINATION_GRACE_MS",
            "30s",
            "must be an integer number of milliseconds from 1 to 86400000, e.g. 30000",
        ),
        (
            "TIDEGATE_LOG",
            "a=loud",
            "is no log filter (error parsing level filter: expected one of \"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a number 0-5); write e.g. info, or tidegate_worker=debug,info",
        ),
        (
            "TIDEGATE_REAPER__PASS_MS",
            "",
            "reaper.pass_ms: must be an integer number of milliseconds, e.g. 30000, not \"\"",
        ),
        (
            "TIDEGATE_INGRESS__LISTEN_FILE",
            "/nonexistent/x",
            "ingress.listen: the file /nonexistent/x cannot be read: No such file or directory (os error 2)",
        ),
    ] {
        assert_eq!(
            load_all("", &[(name, value)], &[]).unwrap_err(),
            format!("environment {name}: {problem}")
        );
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
    let loaded = load_all(
        "",
        &[("TIDEGATE_STORE__URL_FILE", &url.path.display().to_string())],
        &[],
    )
    .unwrap();
    assert_eq!(loaded.config.store.url.expose(), "redis://:hunter2@h:1");
    let shown = format!(
        "{loaded:?} {:?} {}",
        loaded.effective(),
        serde_json::to_string(&loaded.config).unwrap()
    );
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(loaded.effective().contains(&(
        "store.url".into(),
        "\"redis://:***@h:1\"".into(),
        Origin::Env {
            name: "TIDEGATE_STORE__URL_FILE".into()
        }
    )));
    let both = [
        ("TIDEGATE_STORE__URL", "redis://h"),
        ("TIDEGATE_STORE__URL_FILE", url.path.to_str().unwrap()),
    ];
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
    let shown = load_all(
        "",
        &[(
            "TIDEGATE_STORE__PASSWORD_FILE",
            empty.path.to_str().unwrap(),
        )],
        &[],
    )
    .unwrap_err();
    assert!(
        shown.ends_with("is empty; put the password into it"),
        "{shown}"
    );
}

#[test]
fn the_api_key_of_the_client_comes_from_one_place() {
    let secret = file("sk-1\r\n");
    let path = secret.path.display().to_string();
    let key = |pairs: &[(&str, &str)]| {
        env::api_key(|name| {
            pairs
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    };
    assert_eq!(key(&[]), Ok(None));
    assert_eq!(
        key(&[("TIDEGATE_API_KEY", "sk-2")]),
        Ok(Some(Secret::new("sk-2")))
    );
    assert_eq!(
        key(&[("TIDEGATE_API_KEY_FILE", &path)]),
        Ok(Some(Secret::new("sk-1")))
    );
    let both = key(&[("TIDEGATE_API_KEY", "a"), ("TIDEGATE_API_KEY_FILE", &path)])
        .unwrap_err()
        .to_string();
    assert_eq!(
        both,
        "environment TIDEGATE_API_KEY_FILE: is set beside TIDEGATE_API_KEY; keep one of the two"
    );
}

#[test]
fn the_effective_settings_stand_in_the_documented_order() {
    let loaded = load_all(
        "[pools.b.classes.x]\nrank = 2\n[pools.a]\nmodels = [\"m\", \"n\"]\n",
        &[],
        &[],
    )
    .unwrap();
    let effective = loaded.effective();
    let position = |key: &str| {
        effective
            .iter()
            .position(|(known, _, _)| known == key)
            .unwrap()
    };
    let order = [
        "store.url",
        "store.password_file",
        "ingress.listen",
        "reaper.pass_ms",
        "pools.a.models",
        "pools.b.gate",
        "pools.b.classes.x.rank",
    ];
    assert!(
        order
            .windows(2)
            .all(|pair| position(pair[0]) < position(pair[1])),
        "{effective:?}"
    );
    let (_, value, origin) = &effective[position("pools.a.models")];
    assert_eq!(value, "[\"m\", \"n\"]");
    assert!(matches!(origin, Origin::File { line: 4, .. }));
    assert_eq!(effective[position("ingress.admin_listen")].1, "\"\"");
}
