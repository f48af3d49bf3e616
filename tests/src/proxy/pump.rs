//! One connection through the proxy: two directions, message by message.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::frame::{Framer, Piece};
use super::rules::{Command, Deed, Fault};
use super::{Direction, Shared, Upstream};

/// Read at once.
const CHUNK: usize = 256 * 1024;
/// Messages on their way in one direction of one connection; more wait in the sockets.
const ON_THE_WAY: usize = 1_024;
/// Their answers come one for each channel, and messages after them: none can be counted.
const UNCOUNTED: [&[u8]; 6] = [
    b"SUBSCRIBE",
    b"PSUBSCRIBE",
    b"SSUBSCRIBE",
    b"UNSUBSCRIBE",
    b"PUNSUBSCRIBE",
    b"SUNSUBSCRIBE",
];
/// After these a connection carries no replies any more.
const STREAMING: [&[u8]; 3] = [b"PSYNC", b"SYNC", b"MONITOR"];

/// How a connection ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// One side closed.
    Closed,
    /// By a fault.
    Reset,
}

/// What the two directions of a connection know together.
#[derive(Debug, Default)]
struct Link {
    /// Commands without a reply, in their order: no more than the caller has in flight.
    asked: Mutex<VecDeque<Asked>>,
    /// The proxy answers one of them itself.
    answered: Notify,
    /// It carries no replies any more.
    streams: AtomicBool,
}

#[derive(Debug)]
struct Asked {
    command: Command,
    answer: Option<Bytes>,
}

impl Link {
    fn asked(&self) -> MutexGuard<'_, VecDeque<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed)
    }

    /// The command goes to the server, or is answered here.
    fn ask(&self, command: Command, answer: Option<Bytes>) {
        let name = &*command.name;
        if STREAMING.contains(&name) {
            self.streams.store(true, Ordering::Relaxed);
        }
        if !self.streams() && (answer.is_some() || !UNCOUNTED.contains(&name)) {
            self.asked().push_back(Asked { command, answer });
            self.answered.notify_one();
        }
    }

    /// The command that the server's next reply answers.
    fn replied(&self) -> Option<Command> {
        self.asked().pop_front().map(|asked| asked.command)
    }

    /// The next reply, where it is the proxy's.
    fn own_answer(&self) -> Option<Bytes> {
        let mut asked = self.asked();
        let answer = asked.front_mut()?.answer.take()?;
        asked.pop_front();
        Some(answer)
    }
}

/// Something for the writing side.
enum Out {
    Bytes(Instant, Bytes),
    Trickle(Bytes, usize, Duration),
    Reset,
}

/// Leads a connection to the server that the proxy leads to now.
pub(super) async fn pass(shared: &Shared, caller: &mut TcpStream) -> End {
    // A socket that is gone says so at its first read.
    let _ = caller.set_nodelay(true);
    let (from_caller, to_caller) = caller.split();
    match shared.upstream() {
        Upstream::Unix(path) => match UnixStream::connect(path).await {
            Ok(mut server) => {
                let (from_server, to_server) = server.split();
                both(shared, from_caller, to_caller, from_server, to_server).await
            }
            Err(_) => End::Reset,
        },
        Upstream::Tcp(addr) => match TcpStream::connect(addr).await {
            Ok(mut server) => {
                let _ = server.set_nodelay(true);
                let (from_server, to_server) = server.split();
                both(shared, from_caller, to_caller, from_server, to_server).await
            }
            Err(_) => End::Reset,
        },
    }
}

async fn both(
    shared: &Shared,
    from_caller: impl AsyncRead + Unpin,
    to_caller: impl AsyncWrite + Unpin,
    from_server: impl AsyncRead + Unpin,
    to_server: impl AsyncWrite + Unpin,
) -> End {
    let link = Link::default();
    let side = |direction| Side {
        shared,
        link: &link,
        direction,
        silent: false,
    };
    tokio::select! {
        end = pump(side(Direction::Request), from_caller, to_server) => end,
        end = pump(side(Direction::Reply), from_server, to_caller) => end,
    }
}

/// Passes one direction on until either side ends.
async fn pump(
    mut side: Side<'_>,
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
) -> End {
    let (out, outbox) = mpsc::channel::<Out>(ON_THE_WAY);
    // A reader that ended has dropped its sender: the writer sends what is on the way, then ends.
    let read = async move {
        // None where the writer ended first, which then says how.
        let _ = side.read(from, out).await;
    };
    let (read, write) = (std::pin::pin!(read), std::pin::pin!(write(outbox, to)));
    match futures_util::future::select(read, write).await {
        futures_util::future::Either::Left((_, write)) => write.await,
        futures_util::future::Either::Right((end, _)) => end,
    }
}

async fn write(mut outbox: mpsc::Receiver<Out>, mut to: impl AsyncWrite + Unpin) -> End {
    while let Some(out) = outbox.recv().await {
        let written = match out {
            Out::Bytes(due, bytes) => {
                tokio::time::sleep_until(due).await;
                to.write_all(&bytes).await
            }
            Out::Trickle(bytes, at_once, pause) => {
                let mut written = Ok(());
                for bytes in bytes.chunks(at_once.max(1)) {
                    tokio::time::sleep(pause).await;
                    written = to.write_all(bytes).await;
                    if written.is_err() {
                        break;
                    }
                }
                written
            }
            Out::Reset => return End::Reset,
        };
        if written.is_err() {
            break;
        }
    }
    End::Closed
}

/// The reading half of one direction.
struct Side<'a> {
    shared: &'a Shared,
    link: &'a Link,
    direction: Direction,
    /// Nothing passes any more.
    silent: bool,
}

impl Side<'_> {
    /// Reads until the end. None where the writer ended first.
    async fn read(
        &mut self,
        mut from: impl AsyncRead + Unpin,
        out: mpsc::Sender<Out>,
    ) -> Option<()> {
        let mut framer = Framer::new(self.direction);
        let mut buffer = BytesMut::with_capacity(CHUNK);
        loop {
            buffer.clear();
            buffer.reserve(CHUNK);
            let read = tokio::select! {
                read = from.read_buf(&mut buffer) => read.unwrap_or(0),
                () = self.link.answered.notified(), if self.direction == Direction::Reply => {
                    self.own_answers(&out).await?;
                    continue;
                }
            };
            if read == 0 {
                let rest = framer.rest();
                self.shared.gate(self.direction).await;
                return match rest.is_empty() || self.silent {
                    true => Some(()),
                    false => out.send(Out::Bytes(Instant::now(), rest)).await.ok(),
                };
            }
            if self.silent {
                continue;
            }
            if self.link.streams() {
                framer.give_up();
            }
            framer.push(&buffer);
            while let Some(piece) = framer.next() {
                self.one(piece, &out).await?;
                if self.silent {
                    break;
                }
            }
        }
    }

    /// Sends the replies that are the proxy's own and whose turn it is.
    async fn own_answers(&self, out: &mpsc::Sender<Out>) -> Option<()> {
        while let Some(answer) = self.link.own_answer().filter(|_| !self.silent) {
            self.shared.gate(self.direction).await;
            out.send(Out::Bytes(Instant::now(), answer)).await.ok()?;
        }
        Some(())
    }

    /// Passes one message on, or does to it what a rule says.
    async fn one(&mut self, piece: Piece, out: &mpsc::Sender<Out>) -> Option<()> {
        let request = self.direction == Direction::Request;
        let (command, message) = match piece {
            Piece::Raw(bytes) => (None, bytes),
            Piece::Frame(bytes) if request => (Some(Command::read(&bytes)), bytes),
            // Pushed, not asked for.
            Piece::Frame(bytes) if bytes.first() == Some(&b'>') => (None, bytes),
            Piece::Frame(bytes) => (self.link.replied(), bytes),
        };
        self.shared.gate(self.direction).await;
        let deed = self
            .shared
            .judge(self.direction, command.as_ref(), &message);
        if let (true, Some(command)) = (request, command) {
            let answer = match &deed {
                Some(Deed::Fault(Fault::Answer(answer))) => Some(answer.clone()),
                _ => None,
            };
            if !matches!(&deed, Some(Deed::Fault(fault)) if fault.loses()) {
                self.link.ask(command, answer);
            }
        }
        match deed {
            None => {
                let late = match self.direction {
                    Direction::Reply => self.shared.reply_delay(),
                    Direction::Request => Duration::ZERO,
                };
                let due = Instant::now() + late;
                out.send(Out::Bytes(due, message)).await.ok()?;
            }
            Some(Deed::Hold { caught, mut open }) => {
                caught.send_modify(|n| *n += 1);
                // An end of the other side is a release, too.
                let _ = open.wait_for(|open| *open).await;
                let now = Instant::now();
                out.send(Out::Bytes(now, message)).await.ok()?;
            }
            Some(Deed::Fault(fault)) => self.fault(fault, message, out).await?,
        }
        match request {
            true => Some(()),
            false => self.own_answers(out).await,
        }
    }

    async fn fault(&mut self, fault: Fault, message: Bytes, out: &mpsc::Sender<Out>) -> Option<()> {
        let now = Instant::now();
        match fault {
            Fault::Reset => {
                self.silent = true;
                out.send(Out::Reset).await.ok()?;
            }
            Fault::Cut(bytes) => {
                self.silent = true;
                let part = message.slice(..bytes.min(message.len()));
                out.send(Out::Bytes(now, part)).await.ok()?;
                out.send(Out::Reset).await.ok()?;
            }
            Fault::Silence => self.silent = true,
            Fault::Skip => {}
            Fault::Late(by) => out.send(Out::Bytes(now + by, message)).await.ok()?,
            Fault::Trickle(at_once, pause) => {
                out.send(Out::Trickle(message, at_once, pause)).await.ok()?;
            }
            // It has its place among the replies.
            Fault::Answer(_) if self.direction == Direction::Request => {}
            Fault::Answer(answer) => out.send(Out::Bytes(now, answer)).await.ok()?,
        }
        Some(())
    }
}
