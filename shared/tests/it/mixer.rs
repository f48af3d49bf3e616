//! A server between store and client that loses count of the replies.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

/// What becomes of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Some come a little later than they were given, in order.
    Late,
    /// One is lost now and then: each behind it answers the command before its own.
    Drop,
    /// One comes twice now and then: each behind it answers the command after its own.
    Double,
    /// Two neighbours change places now and then.
    Swap,
}

/// One reply in so many is mixed up: a store makes few connections in a second.
const ONE_IN: u64 = 100;
/// Replies of a connection before the first is mixed up.
const FIRST: u64 = 10;
/// One reply in so many is late, and all behind it with it.
const LATE_ONE_IN: u32 = 4;
/// How late, at least: a timer's grain.
const LATE: Duration = Duration::from_millis(1);

/// The server. It ends with this value.
pub(crate) struct Mixer {
    port: u16,
    mixed: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Mixer {
    /// Listens in front of the store at `socket`.
    pub(crate) async fn start(socket: PathBuf, mix: Mix) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mixed = Arc::new(AtomicU64::new(0));
        let counts = mixed.clone();
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&socket).await.unwrap();
                open.spawn(serve(client, server, mix, counts.clone()));
            }
        });
        Self { port, mixed, task }
    }

    /// Address for `store.url`.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Replies that were mixed up.
    pub(crate) fn mixed(&self) -> u64 {
        self.mixed.load(Ordering::Relaxed)
    }
}

impl Drop for Mixer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(client: TcpStream, server: UnixStream, mix: Mix, mixed: Arc<AtomicU64>) {
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let commands = tokio::io::copy(&mut from_client, &mut to_server);
    let replies = mix_replies(from_server, to_client, mix, &mixed);
    tokio::select! {
        _ = commands => {}
        _ = replies => {}
    }
}

async fn mix_replies(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mix: Mix,
    mixed: &AtomicU64,
) -> std::io::Result<()> {
    let (mut buffer, mut seen, mut held) = (Vec::new(), 0, None::<Vec<u8>>);
    loop {
        while let Some(length) = reply_length(&buffer) {
            let reply: Vec<u8> = buffer.drain(..length).collect();
            seen += 1;
            let turn = seen > FIRST && seen % ONE_IN == 0;
            if turn && mix != Mix::Late {
                mixed.fetch_add(1, Ordering::Relaxed);
            }
            match mix {
                Mix::Late if rand::random_ratio(1, LATE_ONE_IN) => tokio::time::sleep(LATE).await,
                Mix::Drop if turn => continue,
                Mix::Double if turn => to.write_all(&reply).await?,
                Mix::Swap if turn => {
                    held = Some(reply);
                    continue;
                }
                Mix::Late | Mix::Drop | Mix::Double | Mix::Swap => {}
            }
            to.write_all(&reply).await?;
            if let Some(earlier) = held.take() {
                to.write_all(&earlier).await?;
            }
        }
        if from.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// Bytes of the first whole reply; none: there is more to come.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")?;
    let number = || -> i64 {
        std::str::from_utf8(&bytes[1..line])
            .unwrap()
            .parse()
            .unwrap()
    };
    let mut length = line + 2;
    match bytes[0] {
        b'+' | b'-' | b':' => {}
        b'$' => length += usize::try_from(number()).map_or(0, |body| body + 2),
        b'*' => {
            for _ in 0..number() {
                length += reply_length(bytes.get(length..)?)?;
            }
        }
        other => panic!("no reply starts with {other}"),
    }
    (length <= bytes.len()).then_some(length)
}
