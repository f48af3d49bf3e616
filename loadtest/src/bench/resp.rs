//! A small pipelining client of the Redis protocol: as little between a caller and the server as there can be. It is the
//! floor's client alone; the product has its own store.

use std::collections::VecDeque;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

/// Commands in flight on one connection.
const PIPELINE: usize = 1024;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Text(String),
    Bytes(Vec<u8>),
    Array(Vec<Reply>),
}

impl Reply {
    /// A bulk reply as text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

type Waiting = oneshot::Sender<anyhow::Result<Reply>>;

/// One connection, shared by any number of callers.
#[derive(Clone)]
pub(crate) struct Client {
    commands: mpsc::Sender<(Vec<u8>, Waiting)>,
    _task: std::sync::Arc<AbortOnDropHandle<()>>,
}

impl Client {
    /// Connects to a `redis://host:port` address.
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let address = url.strip_prefix("redis://").context("a redis:// address")?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (commands, inbox) = mpsc::channel(PIPELINE);
        let task = tokio::spawn(async move {
            // The callers learn of a broken connection by their dropped replies.
            let _ = serve(stream, inbox).await;
        });
        Ok(Self {
            commands,
            _task: std::sync::Arc::new(AbortOnDropHandle::new(task)),
        })
    }

    /// Runs one command.
    pub(crate) async fn run(&self, parts: &[&[u8]]) -> anyhow::Result<Reply> {
        let mut command = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            command.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            command.extend_from_slice(part);
            command.extend_from_slice(b"\r\n");
        }
        let (sender, reply) = oneshot::channel();
        self.commands
            .send((command, sender))
            .await
            .ok()
            .context("connection closed")?;
        reply.await.context("connection closed")?
    }
}

async fn serve(
    mut stream: TcpStream,
    mut inbox: mpsc::Receiver<(Vec<u8>, Waiting)>,
) -> anyhow::Result<()> {
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    let (mut outgoing, mut incoming) = (Vec::new(), Vec::with_capacity(1 << 16));
    let mut batch = Vec::with_capacity(PIPELINE);
    let (mut reader, mut writer) = stream.split();
    loop {
        tokio::select! {
            taken = inbox.recv_many(&mut batch, PIPELINE) => {
                if taken == 0 {
                    return Ok(());
                }
                outgoing.clear();
                for (command, reply) in batch.drain(..) {
                    outgoing.extend_from_slice(&command);
                    waiting.push_back(reply);
                }
                writer.write_all(&outgoing).await?;
            }
            read = reader.read_buf(&mut incoming) => {
                if read? == 0 {
                    bail!("the server closed the connection");
                }
                let mut at = 0;
                while let Some((reply, next)) = parse(&incoming, at)? {
                    at = next;
                    if let Some(caller) = waiting.pop_front() {
                        // A caller that went away needs no reply.
                        let _ = caller.send(reply);
                    }
                }
                incoming.drain(..at);
            }
        }
    }
}

type Parsed<T> = anyhow::Result<Option<(T, usize)>>;

/// One line from `at`, without its end, and where the next begins.
fn line(bytes: &[u8], at: usize) -> Parsed<&str> {
    let rest = &bytes[at..];
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    Ok(Some((std::str::from_utf8(&rest[..end])?, at + end + 2)))
}

/// One reply from `at`, or nothing where it has not come whole. The inner result is the server's own error.
fn parse(bytes: &[u8], at: usize) -> Parsed<anyhow::Result<Reply>> {
    let Some((head, next)) = line(bytes, at)? else {
        return Ok(None);
    };
    let (kind, rest) = head.split_at_checked(1).context("an empty reply")?;
    match kind {
        "+" | ":" => Ok(Some((Ok(Reply::Text(rest.to_owned())), next))),
        "-" => Ok(Some((Err(anyhow::anyhow!("{rest}")), next))),
        "$" if rest == "-1" => Ok(Some((Ok(Reply::Nil), next))),
        "*" if rest == "-1" => Ok(Some((Ok(Reply::Nil), next))),
        "$" => {
            let len: usize = rest.parse()?;
            let Some(body) = bytes.get(next..next + len) else {
                return Ok(None);
            };
            if bytes.len() < next + len + 2 {
                return Ok(None);
            }
            Ok(Some((Ok(Reply::Bytes(body.to_vec())), next + len + 2)))
        }
        "*" => {
            let count: usize = rest.parse()?;
            let (mut items, mut at) = (Vec::with_capacity(count.min(1024)), next);
            for _ in 0..count {
                let Some((item, after)) = parse(bytes, at)? else {
                    return Ok(None);
                };
                items.push(item?);
                at = after;
            }
            Ok(Some((Ok(Reply::Array(items)), at)))
        }
        other => bail!("reply of unknown kind `{other}`"),
    }
}
