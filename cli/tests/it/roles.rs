//! The roles as processes.

use tidegate_shared::local::{LocalOptions, LocalServer};

use crate::rig::{Running, program, run, tidegate};

async fn status(url: &str) -> u16 {
    reqwest::get(url).await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_says_where_it_listens_and_ends_a_drain_with_0() {
    let server = LocalServer::start(LocalOptions {
        durable: true,
        ..LocalOptions::default()
    })
    .unwrap();
    for role in ["ingress", "worker", "reaper"] {
        let mut command = program();
        command.args([role, "--listen", "127.0.0.1:0", "--redis", &server.url()]);
        let mut running = Running::spawn(command);
        let url = running.line("listening on ");
        assert_eq!(status(&format!("{url}/livez")).await, 200, "{role}");
        assert_eq!(status(&format!("{url}/readyz")).await, 200, "{role}");
        running.signal("TERM");
        assert_eq!(running.ended().await, 0, "{role}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_waits_for_a_store_that_is_down_and_says_so_in_its_readiness() {
    let mut server = LocalServer::start(LocalOptions {
        durable: true,
        ..LocalOptions::default()
    })
    .unwrap();
    server.kill();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[pools.late]\nmodels = [\"m\"]\n").unwrap();
    let mut command = program();
    command
        .args([
            "ingress",
            "--listen",
            "127.0.0.1:0",
            "--redis",
            &server.url(),
        ])
        .arg("--config")
        .arg(file.path());
    let mut running = Running::spawn(command);
    let url = running.line("listening on ");
    assert_eq!(status(&format!("{url}/livez")).await, 200);
    assert_eq!(status(&format!("{url}/readyz")).await, 503);
    server.restart().unwrap();
    let start = std::time::Instant::now();
    // Its pools are applied once the store is there.
    while tidegate(&["pool", "show", "late", "--redis", &server.url()])
        .await
        .code
        != 0
    {
        assert!(start.elapsed().as_secs() < 30, "the pool is not applied");
    }
    assert_eq!(status(&format!("{url}/readyz")).await, 200);
    running.signal("TERM");
    assert_eq!(running.ended().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_drops_keys_is_refused_by_every_role() {
    let settings = vec![
        ("maxmemory".to_owned(), "100mb".to_owned()),
        ("maxmemory-policy".to_owned(), "allkeys-lru".to_owned()),
    ];
    let server = LocalServer::start(LocalOptions {
        settings,
        ..LocalOptions::default()
    })
    .unwrap();
    for role in ["ingress", "worker", "reaper"] {
        let ran = tidegate(&[role, "--listen", "127.0.0.1:0", "--redis", &server.url()]).await;
        ran.fails(1, "noeviction");
        assert_eq!(ran.stdout, "", "{role}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_named() {
    let server = LocalServer::start(LocalOptions {
        durable: true,
        ..LocalOptions::default()
    })
    .unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for role in ["ingress", "worker", "reaper"] {
        let mut command = program();
        command.args([role, "--listen", &address, "--redis", &server.url()]);
        run(command).await.fails(1, &address);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_gives_is_said_at_the_start() {
    let server = LocalServer::start(LocalOptions::default()).unwrap();
    let mut command = program();
    command.args([
        "reaper",
        "--listen",
        "127.0.0.1:0",
        "--redis",
        &server.url(),
    ]);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stderr.take().unwrap()));
    let line = loop {
        let line = lines.next_line().await.unwrap().expect("the line comes");
        if line.contains("durability asked: strict") {
            break line;
        }
    };
    assert!(
        line.contains("WARN") && line.contains("NOT survive"),
        "{line}"
    );
}
