//! Small helpers of the server's tests.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tidegate_loadtest::gpu::{Config, Server};

pub(crate) async fn start() -> Server {
    start_with(Config::default()).await
}

pub(crate) async fn start_with(config: Config) -> Server {
    Server::start(config).await.unwrap()
}

pub(crate) fn chat(prompt: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": prompt}]})
}

pub(crate) fn request(server: &Server, path: &str, body: &Value) -> reqwest::RequestBuilder {
    reqwest::Client::new()
        .post(format!("{}{path}", server.url()))
        .json(body)
}

pub(crate) async fn post(server: &Server, path: &str, body: &Value) -> reqwest::Response {
    request(server, path, body).send().await.unwrap()
}

pub(crate) async fn one_off(server: &Server, path: &str, body: &Value) -> reqwest::Response {
    request(server, path, body)
        .header("connection", "close")
        .send()
        .await
        .unwrap()
}

pub(crate) async fn get(server: &Server, path: &str) -> reqwest::Response {
    reqwest::get(format!("{}{path}", server.url()))
        .await
        .unwrap()
}

pub(crate) async fn control(server: &Server, path: &str) -> reqwest::Response {
    reqwest::Client::new()
        .post(format!("{}{path}", server.url()))
        .send()
        .await
        .unwrap()
}

pub(crate) async fn stats(server: &Server) -> Value {
    get(server, "/_sim/stats").await.json().await.unwrap()
}

/// The data of each event of a stream.
pub(crate) fn events(stream: &str) -> Vec<String> {
    stream
        .split("\n\n")
        .filter_map(|e| e.strip_prefix("data: "))
        .map(str::to_owned)
        .collect()
}

/// The text that the events give for one choice.
pub(crate) fn content(events: &[String], index: u64) -> String {
    let mut text = String::new();
    for event in events.iter().filter(|e| *e != "[DONE]") {
        let event: Value = serde_json::from_str(event).unwrap();
        for choice in event["choices"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| c["index"] == index)
        {
            text.push_str(
                choice["delta"]["content"]
                    .as_str()
                    .or(choice["text"].as_str())
                    .unwrap_or_default(),
            );
        }
    }
    text
}
