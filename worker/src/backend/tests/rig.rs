//! The other end: a listener that runs a script for each connection.

use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backend::{
    Backend, CallFailure, CallOutcome, CallRequest, Endpoint, Limits, Progress, Timeouts,
};

/// Nothing in these tests lasts longer; only a fault ever waits for it.
pub(super) const LONG: Duration = Duration::from_secs(20);

pub(super) const NO_HURRY: Timeouts = Timeouts {
    connect: LONG,
    first_byte: LONG,
    between_chunks: LONG,
    total: LONG,
};

pub(super) const SSE_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// One connection, seen from the server.
pub(super) struct Conn {
    stream: TcpStream,
}

pub(super) struct Request {
    pub(super) head: String,
    pub(super) body: String,
}

impl Conn {
    /// Reads one request.
    pub(super) async fn request(&mut self) -> Request {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head
            .split("content-length: ")
            .nth(1)
            .unwrap()
            .split("\r\n")
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.unwrap();
        Request {
            head,
            body: String::from_utf8(body).unwrap(),
        }
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends one part of a chunked body.
    pub(super) async fn chunk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.send(framed).await;
    }

    /// Sends one event as one part of a chunked body.
    pub(super) async fn event(&mut self, data: &str) {
        self.chunk(format!("data: {data}\n\n")).await;
    }

    /// Sends bytes over and over until the other side closes.
    pub(super) async fn flood(&mut self, bytes: &[u8], pause: Duration) {
        while self.stream.write_all(bytes).await.is_ok() {
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns when the other side has closed the connection.
    pub(super) async fn closed(&mut self) {
        let mut rest = [0; 1_024];
        let wait = async { while !matches!(self.stream.read(&mut rest).await, Ok(0) | Err(_)) {} };
        tokio::time::timeout(LONG, wait)
            .await
            .expect("the call closes its connection");
    }

    /// Ends the connection with a reset.
    pub(super) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

pub(super) struct Server<T> {
    pub(super) url: String,
    task: JoinHandle<T>,
}

impl<T> Server<T> {
    /// The script's result, once it has run to its end.
    pub(super) async fn done(self) -> T {
        tokio::time::timeout(LONG, self.task)
            .await
            .expect("the script ends")
            .unwrap()
    }
}

/// Runs a script for the first connection and accepts no other.
pub(super) async fn serve<F, R>(script: F) -> Server<R::Output>
where
    F: FnOnce(Conn) -> R + Send + 'static,
    R: Future<Output: Send> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        drop(listener);
        script(Conn { stream }).await
    });
    Server { url, task }
}

/// A server that reads one request, sends these bytes and closes.
pub(super) async fn say(answer: impl Into<Vec<u8>>) -> Server<Request> {
    let answer = answer.into();
    serve(move |mut conn| async move {
        let request = conn.request().await;
        conn.send(answer).await;
        request
    })
    .await
}

/// A whole plain answer.
pub(super) fn plain(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Bytes in gzip.
pub(super) fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

/// A whole answer in gzip.
pub(super) fn compressed(content_type: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// A stream that is ended by closing the connection.
pub(super) fn closing_stream(events: &[&str]) -> String {
    let mut text =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            .to_owned();
    for event in events {
        text.push_str(&format!("data: {event}\n\n"));
    }
    text
}

/// A chunk with one piece of text.
pub(super) fn piece(text: &str) -> String {
    format!(
        r#"{{"id":"c","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#
    )
}

/// The chunk that finishes the one choice.
pub(super) fn finish(reason: &str) -> String {
    format!(
        r#"{{"id":"c","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#
    )
}

/// What a listener heard.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) chunks: Mutex<Vec<String>>,
    pub(super) output_tokens: Mutex<Vec<u64>>,
    news: Notify,
}

impl Heard {
    /// Returns once at least `count` chunks were heard.
    pub(super) async fn until(&self, count: usize) {
        while self.chunks.lock().unwrap().len() < count {
            self.news.notified().await;
        }
    }
}

impl Progress for Heard {
    fn output_tokens(&self, so_far: u64) {
        self.output_tokens.lock().unwrap().push(so_far);
    }

    fn chunk(&self, data: &[u8]) {
        self.chunks
            .lock()
            .unwrap()
            .push(String::from_utf8(data.to_vec()).unwrap());
        self.news.notify_one();
    }
}

pub(super) fn backend(url: &str) -> Backend {
    Backend::new(
        url,
        Limits {
            max_response_bytes: 100_000,
        },
    )
    .unwrap()
}

pub(super) fn request(endpoint: Endpoint, body: &str) -> CallRequest<'_> {
    CallRequest {
        endpoint,
        body: body.as_bytes(),
        traceparent: None,
        request_id: "r-1",
    }
}

/// A chat call that nobody listens to or cancels.
pub(super) async fn chat(url: &str, timeouts: Timeouts) -> CallOutcome {
    let request = request(Endpoint::ChatCompletions, r#"{"model":"m"}"#);
    backend(url)
        .call(&request, timeouts, &(), &CancellationToken::new())
        .await
}

pub(super) fn answer(outcome: CallOutcome) -> crate::backend::Answer {
    match outcome {
        CallOutcome::Answered(answer) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

pub(super) fn failure(outcome: CallOutcome) -> CallFailure {
    match outcome {
        CallOutcome::Failed(failure) => failure,
        other => panic!("no failure: {other:?}"),
    }
}
