//! Wake-ups over pub/sub, on one connection of its own. They are hints: the state is the truth, and a lost one costs
//! latency only.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::PubSubSink;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::nodes::Nodes;
use crate::domain::{JobId, PoolName, WorkerId};
use crate::protocol::base;
use crate::retry::Retry;

/// Hints kept for a watcher that does not look; beyond it the next look finds everything anyway.
const BACKLOG: usize = 64;
/// How often a silent connection is asked whether it still stands.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// A subscription that takes longer is left to the reconnect.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Something may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// What was published.
    Message(String),
    /// The connection was lost meanwhile: look again.
    Resync,
}

enum Command {
    Watch {
        channel: String,
        watcher: u64,
        hints: mpsc::Sender<Hint>,
        done: oneshot::Sender<()>,
    },
    Leave {
        channel: String,
        watcher: u64,
    },
}

/// Subscribes to channels for all of the process.
#[derive(Clone)]
pub struct Hints {
    commands: mpsc::UnboundedSender<Command>,
    _task: Arc<AbortOnDropHandle<()>>,
}

/// One subscription. Dropping it ends it.
pub struct Watch {
    channel: String,
    watcher: u64,
    hints: mpsc::Receiver<Hint>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Watch {
    /// The next hint. Safe to cancel. Waits for ever where nothing happens: give it a time-out and look again.
    pub async fn next(&mut self) -> Hint {
        match self.hints.recv().await {
            Some(hint) => hint,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Without a task nobody is subscribed any more.
        let _ = self.commands.send(Command::Leave {
            channel: std::mem::take(&mut self.channel),
            watcher: self.watcher,
        });
    }
}

impl Hints {
    pub(super) fn start(nodes: Nodes) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "two commands for each watch, which its reader bounds; and leaving happens in a drop, which cannot wait"
        )]
        let (commands, inbox) = mpsc::unbounded_channel();
        #[expect(
            clippy::disallowed_methods,
            reason = "no role owns it: it ends with the last handle of the store"
        )]
        let task = AbortOnDropHandle::new(tokio::spawn(serve(nodes, inbox)));
        Self {
            commands,
            _task: Arc::new(task),
        }
    }

    /// Watches a job: `changed` at each change of state, `chunk` where a piece of its stream was stored.
    pub async fn job(&self, id: &JobId) -> Watch {
        self.watch(format!("{}:job:{}", base(id.pool()), id.bare()))
            .await
    }

    /// Watches what concerns a worker: bare ids of jobs to look at.
    pub async fn worker(&self, pool: &PoolName, worker: &WorkerId) -> Watch {
        self.watch(format!("{}:worker:{worker}", base(pool))).await
    }

    /// Returns once the subscription stands, or where the connection is down: then a [`Hint::Resync`] follows.
    async fn watch(&self, channel: String) -> Watch {
        let watcher = rand::random();
        let (sender, hints) = mpsc::channel(BACKLOG);
        let (done, stands) = oneshot::channel();
        // Without a task there are no hints, and every waiter looks by itself.
        let _ = self.commands.send(Command::Watch {
            channel: channel.clone(),
            watcher,
            hints: sender,
            done,
        });
        let _ = tokio::time::timeout(SUBSCRIBE_TIMEOUT, stands).await;
        Watch {
            channel,
            watcher,
            hints,
            commands: self.commands.clone(),
        }
    }
}

type Watchers = HashMap<String, HashMap<u64, mpsc::Sender<Hint>>>;

async fn serve(nodes: Nodes, mut inbox: mpsc::UnboundedReceiver<Command>) {
    let mut watchers: Watchers = HashMap::new();
    let retry = Retry::store();
    let mut attempt = 0;
    loop {
        // Connect only when somebody watches.
        if watchers.is_empty() {
            match inbox.recv().await {
                Some(Command::Watch {
                    channel,
                    watcher,
                    hints,
                    done,
                }) => {
                    watchers.entry(channel).or_default().insert(watcher, hints);
                    // It stands once the connection does; the connected loop sends Resync.
                    let _ = done.send(());
                }
                Some(Command::Leave { .. }) => continue,
                None => return,
            }
        }
        if connected(&nodes, &mut inbox, &mut watchers, &mut attempt).await {
            return;
        }
        attempt += 1;
        tokio::time::sleep(retry.delay(attempt).max(Duration::from_millis(50))).await;
    }
}

/// Serves over one connection until it breaks. True when nobody can watch any more.
///
/// Any node of a cluster will do: what is published on one is sent to all.
async fn connected(
    nodes: &Nodes,
    inbox: &mut mpsc::UnboundedReceiver<Command>,
    watchers: &mut Watchers,
    attempt: &mut u32,
) -> bool {
    let connecting = async {
        let address = nodes.any(*attempt).await;
        nodes
            .subscribe(&address)
            .await
            .map(|pubsub| (address, pubsub))
    };
    let Ok((address, pubsub)) = connecting.await else {
        return false;
    };
    let (mut sink, mut stream) = pubsub.split();
    for (channel, all) in &*watchers {
        if !in_time(sink.subscribe(channel)).await {
            return false;
        }
        for hints in all.values() {
            let _ = hints.try_send(Hint::Resync);
        }
    }
    *attempt = 0;
    let mut ask = tokio::time::interval(ASK_EVERY);
    ask.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            command = inbox.recv() => match command {
                None => return true,
                Some(command) => if !obey(command, &mut sink, watchers).await {
                    return false;
                }
            },
            message = stream.next() => {
                let Some(message) = message else { return false };
                let Ok(text) = message.get_payload::<String>() else { continue };
                if let Some(all) = watchers.get(message.get_channel_name()) {
                    for hints in all.values() {
                        let _ = hints.try_send(Hint::Message(text.clone()));
                    }
                }
            }
            // A server that hangs, or is cut off, says nothing.
            _ = ask.tick() => {
                let stands = tokio::select! {
                    stands = in_time(sink.ping::<redis::Value>()) => stands,
                    () = nodes.replaced(&address) => false,
                };
                if !stands {
                    return false;
                }
            }
            // Another took its place: what is published now is published there.
            () = nodes.replaced(&address) => return false,
        }
    }
}

/// Subscribes and unsubscribes. False where the connection does not do it.
async fn obey(command: Command, sink: &mut PubSubSink, watchers: &mut Watchers) -> bool {
    match command {
        Command::Watch {
            channel,
            watcher,
            hints,
            done,
        } => {
            let new = !watchers.contains_key(&channel);
            watchers
                .entry(channel.clone())
                .or_default()
                .insert(watcher, hints);
            if new && !in_time(sink.subscribe(&channel)).await {
                return false;
            }
            let _ = done.send(());
        }
        Command::Leave { channel, watcher } => {
            let Some(all) = watchers.get_mut(&channel) else {
                return true;
            };
            all.remove(&watcher);
            if all.is_empty() {
                watchers.remove(&channel);
                return in_time(sink.unsubscribe(&channel)).await;
            }
        }
    }
    true
}

async fn in_time<T>(doing: impl Future<Output = redis::RedisResult<T>>) -> bool {
    matches!(
        tokio::time::timeout(SUBSCRIBE_TIMEOUT, doing).await,
        Ok(Ok(_))
    )
}
