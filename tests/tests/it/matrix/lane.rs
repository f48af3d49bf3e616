//! A server of its own for the cells that run one after another on it, and the harness's own way to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_shared::config::{StoreConfig, StoreUrl};
use tidegate_shared::local::{LocalOptions, LocalServer};
use tidegate_shared::protocol::script;
use tidegate_shared::store::Store;
use tidegate_shared::telemetry::Metrics;
use tidegate_tests::{Proxy, SOON, Upstream, until};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// Command time-out of the harness, which waits where the machine is full.
const TIMEOUT_MS: u64 = 10_000;

/// A durable server, and the harness's store on it, which no fault is put in front of.
pub(crate) struct Lane {
    server: LocalServer,
    pub(crate) store: Store,
    pub(crate) number: usize,
    cells: usize,
}

impl Lane {
    pub(crate) async fn start(number: usize) -> Self {
        let options = LocalOptions {
            durable: true,
            settings: vec![("maxmemory".into(), "1gb".into())],
            ..LocalOptions::default()
        };
        let server = tokio::task::block_in_place(|| LocalServer::start(options)).unwrap();
        let store = reach(&server).await;
        Self {
            server,
            store,
            number,
            cells: 0,
        }
    }

    fn socket(&self) -> PathBuf {
        self.server.url().trim_start_matches("unix://").into()
    }

    /// Forgets everything, so that what is found at a cell's end is the cell's. Gives the name of its pool and a proxy.
    pub(crate) async fn clear(&mut self) -> (String, Proxy) {
        self.cells += 1;
        self.plain(&[b"FLUSHALL"]).await;
        self.load_scripts().await;
        // A store makes two connections in a second in the long run, and here its server dies again and again.
        self.store = reach(&self.server).await;
        let proxy = Proxy::start(Upstream::Unix(self.socket())).await;
        (format!("lane{}-{}", self.number, self.cells), proxy)
    }

    /// A server that knows all scripts gets each step in one message, so that the message held is the step.
    async fn load_scripts(&self) {
        let mut stream = self.connect().await;
        for script in script::ALL {
            say(
                &mut stream,
                &[b"SCRIPT", b"LOAD", script.audited_source().as_bytes()],
            )
            .await;
        }
    }

    async fn connect(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(self.socket()).await.unwrap())
    }

    async fn plain(&self, words: &[&[u8]]) {
        let mut stream = self.connect().await;
        say(&mut stream, words).await;
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again on its data, as warm as before. Says how long that took.
    pub(crate) async fn restart(&mut self) -> Duration {
        let started = Instant::now();
        tokio::task::block_in_place(|| self.server.restart()).unwrap();
        // It listens while it still reads its data.
        until(SOON, "the server has read its data", async || {
            let mut stream = self.connect().await;
            (reply_to(&mut stream, &[b"PING"]).await == "+PONG").then_some(())
        })
        .await;
        self.load_scripts().await;
        started.elapsed()
    }
}

/// A store of the harness's own.
async fn reach(server: &LocalServer) -> Store {
    let config = StoreConfig {
        url: StoreUrl::new(server.url()),
        command_timeout_ms: TIMEOUT_MS,
        audit: true,
        ..StoreConfig::default()
    };
    Store::connect(&config, Arc::new(Metrics::new("matrix")))
        .await
        .unwrap()
}

/// One command over a bare connection, which the server must take.
async fn say(stream: &mut BufReader<UnixStream>, words: &[&[u8]]) {
    let reply = reply_to(stream, words).await;
    let taken = reply.starts_with('+') || reply.starts_with('$');
    assert!(taken, "{}: {reply}", String::from_utf8_lossy(words[0]));
}

/// One command over a bare connection, and the first line of its reply. What follows a string's length is read.
async fn reply_to(stream: &mut BufReader<UnixStream>, words: &[&[u8]]) -> String {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend(format!("${}\r\n", word.len()).into_bytes());
        command.extend_from_slice(word);
        command.extend_from_slice(b"\r\n");
    }
    stream.get_mut().write_all(&command).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    if let Some(length) = line.strip_prefix('$') {
        let mut rest = vec![0; length.trim().parse::<usize>().unwrap() + 2];
        stream.read_exact(&mut rest).await.unwrap();
    }
    line.trim_end().to_owned()
}
