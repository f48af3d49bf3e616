//! A TCP proxy in front of the store that can hold traffic back.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// What happens to the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// It passes.
    Pass,
    /// The reply of a claim that took something breaks its connection instead; everything else passes.
    LoseClaims,
    /// Nothing passes.
    Hold,
}

/// The proxy; it ends with this value.
pub(crate) struct Proxy {
    address: SocketAddr,
    traffic: watch::Sender<Traffic>,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// In front of the server on this Unix socket.
    pub(crate) async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let traffic = watch::Sender::new(Traffic::Pass);
        let seen = traffic.subscribe();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&socket).await.unwrap();
                connections.spawn(connection(client, server, seen.clone()));
            }
        });
        Self {
            address,
            traffic,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Address for `store.url`.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Changes what happens to the traffic, of connections that stand too.
    pub(crate) fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }
}

async fn connection(client: TcpStream, server: UnixStream, traffic: watch::Receiver<Traffic>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = pass(&mut from_client, &mut to_server, traffic.clone(), &[]);
    let down = pass(&mut from_server, &mut to_client, traffic, CLAIMED);
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

/// The word that the reply of a claim begins with where it took something.
const CLAIMED: &[u8] = b"\r\ndeliveries\r\n";

async fn pass(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    mut traffic: watch::Receiver<Traffic>,
    lost: &[u8],
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        let data = &buffer[..read];
        let Ok(traffic) = traffic
            .wait_for(|traffic| *traffic != Traffic::Hold)
            .await
            .map(|t| *t)
        else {
            return;
        };
        let is_lost = !lost.is_empty() && data.windows(lost.len()).any(|part| part == lost);
        if traffic == Traffic::LoseClaims && is_lost {
            return;
        }
        if to.write_all(data).await.is_err() {
            return;
        }
    }
}
