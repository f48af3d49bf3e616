//! Wrong settings and the exact words they get.

use super::*;

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
        (
            "[ingress]\nlisten = \"8080\"",
            "t.toml:2: ingress.listen: must be an IP address and port, e.g. \"127.0.0.1:8080\" or \"[::1]:8080\", not \"8080\"",
        ),
        (
            "[ingress]\nmax_body_bytes = 0",
            "t.toml:2: ingress.max_body_bytes: 0 is out of range; it must be 1024 to 1073741824 bytes",
        ),
        (
            "[ingress]\nmax_body_bytes = 99999999999999999999999",
            "t.toml:2: ingress.max_body_bytes: 99999999999999999999999 is out of range; it must be 1024 to 1073741824 bytes",
        ),
        (
            "[ingress]\nauth = true",
            "t.toml:2: ingress.auth: must be one of \"keys\", \"open\", not true",
        ),
        (
            "[worker]\npools = []",
            "t.toml:2: worker.pools: has 0 entries; it must have 1 to 64",
        ),
        (
            "[worker]\npools = [\"a\", \"A\"]",
            "t.toml:2: worker.pools: entry 2 must be 1 to 32 of a-z, 0-9 and '-', not starting with '-', not \"A\"",
        ),
        (
            "[worker]\npools = [\"a\", \"a\"]",
            "t.toml:2: worker.pools: entry 2 is there twice: \"a\"",
        ),
        (
            "[worker]\nbackends = [\"h:1\"]",
            "t.toml:2: worker.backends: entry 1 must be an http:// or https:// address without user, query or fragment, e.g. \"http://127.0.0.1:8000\", not \"h:1\"",
        ),
        (
            "[worker]\npools = \"a\"",
            "t.toml:2: worker.pools: must be a list of strings, e.g. [\"a\", \"b\"], not \"a\"",
        ),
        (
            "[pools.p]\nquantile = 1.0",
            "t.toml:2: pools.p.quantile: 1 is out of range; it must be above 0 and below 1",
        ),
        (
            "[pools.p]\nquantile = nan",
            "t.toml:2: pools.p.quantile: NaN is out of range; it must be above 0 and below 1",
        ),
        (
            "[pools.p]\nlease_ms = 2020-01-01",
            "t.toml:2: pools.p.lease_ms: must be an integer number of milliseconds, e.g. 30000, not a date",
        ),
        (
            "[pools.My_Pool]\nslots = 1",
            "t.toml:1: pools.My_Pool: \"My_Pool\" is no name of a pool; it must be 1 to 32 of a-z, 0-9 and '-', not starting with '-'",
        ),
        (
            "[pools.p.classes.B]\nrank = 1",
            "t.toml:1: pools.p.classes.B: \"B\" is no name of a class; it must be 1 to 32 of a-z, 0-9, '_' and '-', starting with a letter or digit",
        ),
        (
            "[tenants.-a]\nweight = 1",
            "t.toml:1: tenants.-a: \"-a\" is no name of a tenant; it must be 1 to 64 of a-z, 0-9, '_' and '-', starting with a letter or digit",
        ),
        (
            "[[pools]]\nslots = 1",
            "t.toml:1: pools: must be a section, e.g. [pools]",
        ),
        (
            "[pools]\nslots = 1",
            "t.toml:2: pools.slots: must be a section, e.g. [pools.slots]",
        ),
        (
            "[store]\nurl = \"http://u:hush@h\"",
            "t.toml:2: store.url: must be a redis://, rediss://, unix:// or redis+unix:// address, e.g. \"redis://127.0.0.1:6379\", not the value given",
        ),
        (
            "colour = 1",
            "t.toml:1: colour: unknown section; known here: store, ingress, worker, reaper, pools, tenants",
        ),
        (
            "[pools.p.class.a]\nrank = 1",
            "t.toml:1: pools.p.class: unknown key; did you mean \"classes\"?",
        ),
    ] {
        refuses(text, problem);
    }
}

#[test]
fn settings_are_judged_against_each_other() {
    for (text, problem) in [
        (
            "[pools.p]\nlease_ms = 10000",
            "t.toml:2: pools.p.renew_ms: three renewals of 5000 must fit into lease_ms, which is 10000; set renew_ms to at most 3333",
        ),
        (
            "[pools.p]\nlease_ms = 30000\nrenew_ms = 10001",
            "t.toml:3: pools.p.renew_ms: three renewals of 10001 must fit into lease_ms, which is 30000; set renew_ms to at most 10000",
        ),
        (
            "[reaper]\npass_ms = 10001\n[pools.p]\nslots = 1",
            "t.toml:2: reaper.pass_ms: three passes of 10001 must fit into the smallest lease, pools.p.lease_ms = 30000; set it to at most 10000",
        ),
        (
            "[store]\ncommand_timeout_ms = 7501\n[pools.p]\n",
            "t.toml:2: store.command_timeout_ms: 7501 is above a quarter of the smallest lease, pools.p.lease_ms = 30000; set it to at most 7500",
        ),
        (
            "[pools.p]\nslots = 20\nmax_queued = 19",
            "t.toml:3: pools.p.max_queued: 19 is below slots, which is 20: running jobs count too",
        ),
        (
            "[pools.p]\nbackoff_ms = 60001",
            "t.toml:2: pools.p.backoff_ms: 60001 is above backoff_max_ms, which is 60000",
        ),
        (
            "[ingress]\nlisten = \"0.0.0.0:80\"\nauth = \"open\"",
            "t.toml:3: ingress.auth: \"open\" is for a loopback address only, but ingress.listen is 0.0.0.0:80; use auth = \"keys\" or listen on 127.0.0.1",
        ),
        (
            "[ingress]\nadmin_listen = \"127.0.0.1:8080\"",
            "t.toml:2: ingress.admin_listen: is the same address as ingress.listen; leave it empty to share the listener",
        ),
        (
            "[store]\nurl = \"redis://a,redis://b\"",
            "t.toml:2: store.url: names 2 addresses, but store.mode is \"single\"; give one address, or set store.mode to what they are: \"cluster\" or \"sentinel\"",
        ),
        (
            "[store]\nmode = \"cluster\"\nurl = \"unix:///run/redis.sock\"",
            "t.toml:3: store.url: names a socket, but store.mode is \"cluster\"; name redis:// addresses of nodes of the cluster",
        ),
        (
            "[store]\nmode = \"cluster\"\nurl = \"redis://a,redis://b:1/2\"",
            "t.toml:3: store.url: names a database, and a cluster has none but 0; remove what follows the port",
        ),
        (
            "[store]\nmode = \"sentinel\"\nurl = \"redis://a:26379,unix:///s\"",
            "t.toml:3: store.url: names a socket, but store.mode is \"sentinel\"; name redis:// addresses of Sentinels",
        ),
        (
            "[store]\nmode = \"sentinel\"\nmaster_name = \"\"",
            "t.toml:3: store.master_name: is empty, but store.mode is \"sentinel\"; give the name that `sentinel monitor` has for the primary",
        ),
        (
            "[store]\nmaster_name = \"gpu\"",
            "t.toml:2: store.master_name: is for store.mode = \"sentinel\" alone; remove it, or set store.mode",
        ),
    ] {
        refuses(text, problem);
    }
    load_all(
        "[reaper]\npass_ms = 1000\n[pools.p]\nlease_ms = 4000\nrenew_ms = 500",
        &[],
        &[],
    )
    .unwrap();
}

#[test]
fn floors_and_ceilings_of_classes_are_judged_against_the_pools_slots() {
    let class = |floor, ceiling| ClassConfig {
        floor,
        ceiling,
        ..ClassConfig::default()
    };
    let classes = BTreeMap::from([
        ("a".into(), class(20, Some(10))),
        ("b".into(), class(20, Some(40))),
    ]);
    let pool = PoolConfig {
        classes,
        ..PoolConfig::default()
    };
    let mut judge = check::Judge {
        origins: &BTreeMap::new(),
        bad: &BTreeSet::new(),
        problems: Vec::new(),
    };
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
    refuses(
        "[pools.p]\nlease_ms = 0",
        "t.toml:2: pools.p.lease_ms: 0 is out of range; it must be 500 to 3600000 milliseconds",
    );
}

#[test]
fn the_drain_of_the_role_must_end_before_the_kill() {
    let grace = [("TIDEGATE_TERMINATION_GRACE_MS", "28000")];
    load_for(Some(Role::Worker), "", &grace, &[]).unwrap();
    load_for(Some(Role::Reaper), "", &grace, &[]).unwrap();
    load_all("", &grace, &[]).unwrap();
    let shown = load_for(Some(Role::Ingress), "", &grace, &[]).unwrap_err();
    assert_eq!(
        shown,
        "ingress.drain_ms: 30000 must be below TIDEGATE_TERMINATION_GRACE_MS, which is 28000"
    );
    let shown = load_all("[worker]\ndrain_ms = 28000", &grace, &[]).unwrap_err();
    assert_eq!(
        shown,
        "t.toml:2: worker.drain_ms: 28000 must be below TIDEGATE_TERMINATION_GRACE_MS, which is 28000"
    );
}

#[test]
fn what_this_release_lacks_is_refused_and_its_neutral_value_is_not() {
    refuses(
        "[store]\nurl = \"rediss://h\"\nmode = \"cluster\"\nca_file = \"x\"\n[ingress]\nstorage = \"s3://b/p\"\n[pools.default]\ngate = \"kv_cache < 0.9\"\nestimate = \"quantile\"\n[pools.default.classes.a]\nrank = 1\nceiling = 5\nwhen_limited = \"reject\"\n[tenants.acme]\nweight = 2\nmax_running = 0\n",
        "t.toml:2: store.url: rediss:// is not available in this version of tidegate; use redis://, unix:// or redis+unix://\n\
         t.toml:4: store.ca_file: is not available in this version of tidegate; remove it\n\
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
    let shown = load_all(
        "[store]\nmode = \n[reaper]\npass_ms = 0\n",
        &[("TIDEGATE_STORE__URI", "x")],
        &[],
    )
    .unwrap_err();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("t.toml:2: is not TOML: "), "{shown}");
    assert_eq!(
        lines[1..],
        [
            "t.toml:4: reaper.pass_ms: 0 is out of range; it must be 50 to 60000 milliseconds",
            "environment TIDEGATE_STORE__URI: store.uri: unknown key; did you mean \"url\"?"
        ]
    );
    let shown = load_all("[reaper]\npass_ms = 100\npass_ms = 200\n", &[], &[]).unwrap_err();
    assert_eq!(shown, "t.toml:3: is not TOML: duplicate key");
}

#[test]
fn every_bound_refuses_what_lies_just_outside() {
    for section in &SECTIONS {
        let at = section.path.join(".").replace("*", "p");
        for setting in section.settings {
            let Kind::Int { min, max, .. } = setting.kind else {
                continue;
            };
            for outside in [i128::from(min) - 1, i128::from(max) + 1] {
                let shown = load_all(&format!("[{at}]\n{} = {outside}\n", setting.key), &[], &[])
                    .unwrap_err();
                assert!(
                    shown.contains(&format!(
                        "{at}.{}: {outside} is out of range; it must be {min} to {max}",
                        setting.key
                    )),
                    "{shown}"
                );
            }
        }
    }
}
