//! The proxy in front of a real store: each fault does to a message what it says, and to no other.

use std::time::{Duration, Instant};

use tidegate_shared::local::{LocalOptions, LocalServer};
use tidegate_tests::{Direction, Fault, Of, Proxy, Rule, SOON, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Nothing comes within this time where nothing may come.
const NOTHING: Duration = Duration::from_millis(200);

struct Caller(TcpStream);

impl Caller {
    async fn new(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(proxy.addr()).await.unwrap())
    }

    async fn send(&mut self, commands: &[&[&str]]) {
        let mut bytes = String::new();
        for command in commands {
            bytes.push_str(&format!("*{}\r\n", command.len()));
            for argument in *command {
                bytes.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
            }
        }
        self.0.write_all(bytes.as_bytes()).await.unwrap();
    }

    /// The next bytes, as many as `wanted` has.
    async fn hears(&mut self, wanted: &str) {
        let mut heard = vec![0; wanted.len()];
        let read = tokio::time::timeout(SOON, self.0.read_exact(&mut heard)).await;
        read.expect("it comes").expect("the connection stands");
        assert_eq!(String::from_utf8(heard).unwrap(), wanted);
    }

    async fn hears_nothing(&mut self) {
        let mut byte = [0];
        let read = tokio::time::timeout(NOTHING, self.0.read(&mut byte)).await;
        assert!(read.is_err(), "{read:?}");
    }

    async fn is_reset(&mut self) {
        let mut byte = [0];
        let read = tokio::time::timeout(SOON, self.0.read(&mut byte)).await;
        read.expect("it ends").expect_err("it is reset");
    }
}

async fn store() -> (LocalServer, Proxy) {
    let server = LocalServer::start(LocalOptions::default()).unwrap();
    let proxy = Proxy::start(upstream(&server)).await;
    (server, proxy)
}

fn upstream(server: &LocalServer) -> Upstream {
    Upstream::Unix(server.url().trim_start_matches("unix://").into())
}

const SET: Of = Of::Command("SET");

#[tokio::test]
async fn one_reply_of_many_is_met_and_those_before_it_pass() {
    let (_server, proxy) = store().await;
    let three: &[&[&str]] = &[&["GET", "a"], &["SET", "a", "1"], &["GET", "a"]];
    let mut caller = Caller::new(&proxy).await;

    let hits = proxy.inject(Rule::reply(SET), Fault::Answer("+CHANGED\r\n".into()));
    caller.send(three).await;
    caller.hears("$-1\r\n+CHANGED\r\n$1\r\n1\r\n").await;
    assert_eq!((hits.count(), proxy.faults_done(), proxy.lost()), (1, 1, 0));

    proxy.inject(Rule::reply(SET), Fault::Skip);
    caller.send(three).await;
    caller.hears("$1\r\n1\r\n$1\r\n1\r\n").await;

    proxy.inject(Rule::reply(SET), Fault::Cut(3));
    caller.send(three).await;
    caller.hears("$1\r\n1\r\n+OK").await;
    caller.is_reset().await;

    let mut caller = Caller::new(&proxy).await;
    proxy.inject(Rule::reply(SET), Fault::Silence);
    caller.send(three).await;
    caller.hears("$1\r\n1\r\n").await;
    caller.hears_nothing().await;

    let mut caller = Caller::new(&proxy).await;
    proxy.inject(Rule::reply(SET), Fault::Reset);
    caller.send(three).await;
    caller.hears("$1\r\n1\r\n").await;
    caller.is_reset().await;
    assert_eq!(proxy.lost(), 4);
}

#[tokio::test]
async fn a_request_that_is_met_never_reaches_the_server() {
    let (_server, proxy) = store().await;
    let mut caller = Caller::new(&proxy).await;
    let write: &[&[&str]] = &[&["INCR", "n"], &["SET", "a", "1"], &["INCR", "n"]];

    // The answer keeps its place among those of the server.
    proxy.inject(Rule::request(SET), Fault::error("LOADING for a while"));
    caller.send(write).await;
    caller.hears(":1\r\n-LOADING for a while\r\n:2\r\n").await;
    caller.send(&[&["GET", "a"]]).await;
    caller.hears("$-1\r\n").await;
    proxy.inject(Rule::request(SET), Fault::error("LOADING"));
    caller.send(&[&["SET", "a", "1"]]).await;
    caller.hears("-LOADING\r\n").await;

    for fault in [Fault::Reset, Fault::Cut(9)] {
        let mut caller = Caller::new(&proxy).await;
        proxy.inject(Rule::request(SET), fault);
        caller.send(&[&["SET", "a", "1"], &["INCR", "n"]]).await;
        caller.is_reset().await;
    }
    let mut silent = Caller::new(&proxy).await;
    proxy.inject(Rule::request(SET), Fault::Silence);
    silent.send(write).await;
    silent.hears(":3\r\n").await;
    silent.hears_nothing().await;
    caller.send(&[&["GET", "a"], &["GET", "n"]]).await;
    caller.hears("$-1\r\n$1\r\n3\r\n").await;
}

#[tokio::test]
async fn messages_come_late_in_pieces_or_when_they_are_let_go() {
    let (_server, proxy) = store().await;
    let mut caller = Caller::new(&proxy).await;
    let start = Instant::now();
    proxy.inject(Rule::reply(SET), Fault::Late(NOTHING));
    caller.send(&[&["SET", "a", "1"], &["GET", "a"]]).await;
    caller.hears("+OK\r\n$1\r\n1\r\n").await;
    assert!(start.elapsed() >= NOTHING, "{:?}", start.elapsed());

    let start = Instant::now();
    let trickle = Fault::Trickle(1, Duration::from_millis(20));
    proxy.inject(Rule::reply(SET).holding(b"OK"), trickle);
    caller.send(&[&["SET", "a", "2"]]).await;
    caller.hears("+OK\r\n").await;
    assert!(start.elapsed() >= Duration::from_millis(100));

    let mut held = proxy.hold(Rule::request(SET));
    caller.send(&[&["GET", "a"], &["SET", "a", "3"]]).await;
    held.caught(SOON).await;
    caller.hears("$1\r\n2\r\n").await;
    caller.hears_nothing().await;
    held.release();
    caller.hears("+OK\r\n").await;

    for direction in [Direction::Request, Direction::Reply] {
        proxy.blackhole(direction, true);
        caller.send(&[&["GET", "a"]]).await;
        caller.hears_nothing().await;
        proxy.blackhole(direction, false);
        caller.hears("$1\r\n3\r\n").await;
    }
    proxy.inject(Rule::reply(Of::Anything).always(), Fault::Reset);
    proxy.heal();
    caller.send(&[&["GET", "a"]]).await;
    caller.hears("$1\r\n3\r\n").await;
}

#[tokio::test]
async fn old_connections_stay_with_the_old_server_when_the_address_moves() {
    let (_old_server, proxy) = store().await;
    let new_server = LocalServer::start(LocalOptions::default()).unwrap();
    let mut old = Caller::new(&proxy).await;
    old.send(&[&["SET", "a", "old"]]).await;
    old.hears("+OK\r\n").await;
    proxy.lead_to(upstream(&new_server));
    let mut new = Caller::new(&proxy).await;
    new.send(&[&["GET", "a"]]).await;
    new.hears("$-1\r\n").await;
    old.send(&[&["GET", "a"]]).await;
    old.hears("$3\r\nold\r\n").await;
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn a_subscription_passes_and_its_messages_answer_nothing() {
    let (_server, proxy) = store().await;
    let mut watcher = Caller::new(&proxy).await;
    proxy.inject(Rule::reply(Of::Command("PING")), Fault::Skip);
    watcher.send(&[&["SUBSCRIBE", "c", "d"]]).await;
    watcher
        .hears(
            "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nd\r\n:2\r\n",
        )
        .await;
    let mut caller = Caller::new(&proxy).await;
    caller.send(&[&["PUBLISH", "d", "x"]]).await;
    caller.hears(":1\r\n").await;
    watcher
        .hears("*3\r\n$7\r\nmessage\r\n$1\r\nd\r\n$1\r\nx\r\n")
        .await;
}
