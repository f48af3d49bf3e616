//! `config check` and `config show`.

use crate::rig::{program, run, tidegate};

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[tokio::test]
async fn every_problem_of_a_file_is_told_at_once_with_its_line() {
    let file = file(
        "[store]\nurl = 5\n[pools.default]\nlease_ms = 1000\nrenew_ms = 900\nslotz = 3\n[extra]\n",
    );
    let path = file.path().to_str().unwrap();
    let ran = tidegate(&["config", "check", "--config", path]).await;
    for says in [
        format!("{path}:2: store.url"),
        format!("{path}:5: pools.default.renew_ms"),
        format!("{path}:6: pools.default.slotz"),
        format!("{path}:7: extra"),
        "did you mean".into(),
    ] {
        ran.fails(2, &says);
    }
    assert_eq!(ran.stdout, "");
}

#[tokio::test]
async fn a_role_does_not_start_on_wrong_settings() {
    let file = file(
        "[ingress]\nlisten = \"nowhere\"\n[worker]\nlisten = \"x\"\n[reaper]\nlisten = \"x\"\n",
    );
    let path = file.path().to_str().unwrap();
    for role in ["ingress", "worker", "reaper"] {
        tidegate(&[role, "--config", path])
            .await
            .fails(2, &format!("{role}.listen"));
    }
    tidegate(&["worker", "--set", "worker.nonsense=1"])
        .await
        .fails(2, "worker.nonsense");
}

#[tokio::test]
async fn a_right_file_is_ok() {
    let file = file("[pools.default]\nmodels = [\"m\"]\n");
    let path = file.path().to_str().unwrap();
    let ran = tidegate(&["config", "check", "--config", path]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "ok\n"), "{ran:?}");
}

#[tokio::test]
async fn shown_settings_name_their_origin_and_hide_secrets() {
    let file =
        file("[store]\nurl = \"redis://:hunter2@127.0.0.1:7000\"\n[reaper]\npass_ms = 700\n");
    let path = file.path().to_str().unwrap();
    let mut command = program();
    command
        .args([
            "config",
            "show",
            "--config",
            path,
            "--set",
            "ingress.max_depth=32",
            "-o",
            "json",
        ])
        .env("TIDEGATE_WORKER__CONCURRENCY", "7");
    let ran = run(command).await;
    let settings = ran.ok();
    let of = |key: &str| {
        let rows = settings.as_array().unwrap();
        rows.iter()
            .find(|row| row["key"] == key)
            .unwrap_or_else(|| panic!("{key}"))
            .clone()
    };
    assert_eq!(of("reaper.pass_ms")["value"], 700);
    assert_eq!(of("reaper.pass_ms")["origin"], format!("{path}:4"));
    assert_eq!(
        of("worker.concurrency")["origin"],
        "environment TIDEGATE_WORKER__CONCURRENCY"
    );
    assert_eq!(
        (
            &of("ingress.max_depth")["value"],
            &of("ingress.max_depth")["origin"]
        ),
        (&32.into(), &"flag".into())
    );
    assert_eq!(of("store.mode")["origin"], "default");
    assert!(!format!("{ran:?}").contains("hunter2"), "{ran:?}");
    // Where a password stands in the file, a note says so, apart from the data.
    assert!(ran.stderr.contains("warning"), "{ran:?}");
}
