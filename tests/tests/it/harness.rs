//! The rig itself.

use std::time::{Duration, Instant};

use tidegate_loadtest::gpu;
use tidegate_tests::{Direction, Proxy, Upstream};

async fn model_server() -> gpu::Server {
    gpu::Server::start(gpu::Config::default()).await.unwrap()
}

fn ask(addr: std::net::SocketAddr) -> reqwest::RequestBuilder {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(format!("http://{addr}/health"))
}

#[tokio::test]
async fn the_proxy_passes_delays_and_refuses() {
    let server = model_server().await;
    let proxy = Proxy::start(Upstream::Tcp(server.addr())).await;
    assert_eq!(ask(proxy.addr()).send().await.unwrap().status(), 200);

    proxy.delay_replies(Duration::from_millis(300));
    let start = Instant::now();
    assert_eq!(ask(proxy.addr()).send().await.unwrap().status(), 200);
    assert!(start.elapsed() >= Duration::from_millis(300));
    proxy.delay_replies(Duration::ZERO);

    proxy.refuse(true);
    assert!(ask(proxy.addr()).send().await.is_err());
    proxy.refuse(false);
    assert_eq!(ask(proxy.addr()).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_proxy_loses_and_holds_just_the_message_it_was_told_to() {
    let server = model_server().await;
    let proxy = Proxy::start(Upstream::Tcp(server.addr())).await;

    proxy.lose_next(1, Direction::Reply, b"HTTP/1.1 200");
    assert!(ask(proxy.addr()).send().await.is_err());
    assert_eq!(proxy.lost(), 1);
    assert_eq!(ask(proxy.addr()).send().await.unwrap().status(), 200);

    let mut held = proxy.hold_next(Direction::Request, b"GET /health");
    let waiting = tokio::spawn(ask(proxy.addr()).send());
    held.caught(Duration::from_secs(5)).await;
    assert!(!waiting.is_finished());
    held.release();
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);

    let mut held = proxy.hold_next(Direction::Request, b"GET /health");
    let waiting = tokio::spawn(ask(proxy.addr()).send());
    held.caught(Duration::from_secs(5)).await;
    proxy.reset_all();
    assert!(waiting.await.unwrap().is_err());
}
