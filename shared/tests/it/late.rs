//! A command that was given up does nothing when it arrives after all, and its connection is not used again.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidegate_shared::config::PoolConfig;
use tidegate_shared::domain::PoolName;
use tidegate_shared::local::{LocalOptions, LocalServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::echo::{TIMEOUT_MS, socket, store_at, submit_of};

/// Connections of a store that carry steps: each may be held up once.
const TRIES: usize = 8;

/// Stands before the store and can hold up what is sent on the connections that are open.
struct Hold {
    port: u16,
    /// Of connections made from now on, what is sent passes.
    held: Arc<AtomicBool>,
    release: watch::Sender<bool>,
    /// Commands that were held up and have been answered since.
    answered: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Hold {
    async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (held, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (release, released) = watch::channel(false);
        let (flag, count) = (held.clone(), answered.clone());
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&socket).await.unwrap();
                // One that is made while others are held up is free.
                let held = (!flag.load(Ordering::SeqCst)).then(|| flag.clone());
                open.spawn(serve(client, server, held, released.clone(), count.clone()));
            }
        });
        Self {
            port,
            held,
            release,
            answered,
            task,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes on both ways; where `held` is set, commands wait for `released`, and for their answer then.
async fn serve(
    client: TcpStream,
    server: UnixStream,
    held: Option<Arc<AtomicBool>>,
    mut released: watch::Receiver<bool>,
    answered: Arc<AtomicUsize>,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut commands, mut replies) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = from_client.read(&mut commands) => {
                let Ok(length @ 1..) = read else { return };
                let is_held = held.as_ref().is_some_and(|held| held.load(Ordering::SeqCst));
                if is_held {
                    released.wait_for(|released| *released).await.unwrap();
                }
                to_server.write_all(&commands[..length]).await.unwrap();
                if is_held {
                    let reply = from_server.read(&mut replies).await;
                    assert!(reply.is_ok_and(|length| length > 0));
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            }
            read = from_server.read(&mut replies) => {
                let Ok(length @ 1..) = read else { return };
                if to_client.write_all(&replies[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_command_that_was_given_up_does_nothing_when_it_arrives_and_its_connection_is_left() {
    let server = LocalServer::start(LocalOptions::default()).unwrap();
    let pool: PoolName = "gpu".parse().unwrap();
    let hold = Hold::start(socket(&server)).await;
    let (direct, _) = store_at(server.url()).await;
    let (store, _) = store_at(format!("redis://127.0.0.1:{}", hold.port)).await;
    store.apply(&pool, &PoolConfig::default()).await.unwrap();
    store.snapshot(&pool).await.unwrap();

    hold.held.store(true, Ordering::SeqCst);
    let mut given_up = 0;
    while let Err(error) = store.submit(&submit_of(&pool, given_up)).await {
        assert!(error.is_unavailable(), "{error}");
        given_up += 1;
        assert!(given_up < TRIES, "a connection that is stuck is used again");
    }
    assert!(given_up > 0, "nothing was held up");
    // Their deadline passes for the pool, which nothing holds up.
    let accepted_ms = direct.snapshot(&pool).await.unwrap().now_ms;
    while direct.snapshot(&pool).await.unwrap().now_ms <= accepted_ms + TIMEOUT_MS {
        tokio::task::yield_now().await;
    }
    hold.release.send(true).unwrap();
    while hold.answered.load(Ordering::SeqCst) < given_up {
        tokio::task::yield_now().await;
    }
    let counts = direct.snapshot(&pool).await.unwrap();
    assert_eq!(counts.jobs, 1, "of {given_up} given up, some ran after all");
}
