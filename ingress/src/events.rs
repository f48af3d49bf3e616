//! A job's life as server-sent events: `status`, `chunk`, `terminal`, and `reconnect` where this process cannot go on.
//!
//! Ids are `<fence>-<n>`: a chunk's as the store keeps it, a status's the last one before it, a terminal's above every
//! chunk of its delivery. They never fall, so a reader comes back with `Last-Event-ID` to any ingress.
//!
//! A reader that does not read holds nothing but a bounded buffer here: the worker's pace is never its pace.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use tidegate_shared::domain::{JobId, PendingReason, State};
use tidegate_shared::store::{Hint, Watch};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::connection::Hangup;
use crate::input::headers::event_id;
use crate::routes::Answer;
use crate::service::{App, LOOK_EVERY};
use crate::wire::job::{JobBody, View};

/// Events that a reader may be behind.
const MAX_BEHIND_EVENTS: usize = 1024;
/// Bytes that a reader may be behind: 1 MiB.
const MAX_BEHIND_BYTES: u32 = 1024 * 1024;
/// How long a reader at that bound may take to make room before it is let go.
const STALL: Duration = Duration::from_secs(5);
/// Pieces read from the store at once.
const PAGE: usize = 64;
/// Above the number of any piece, and exact in every client.
const TERMINAL_N: u64 = (1 << 53) - 1;
/// First words of a stream: how soon to come back after a cut, in milliseconds.
const HELLO: &str = "retry: 1000\n\n";
/// What proxies take for life, and clients for nothing.
const HEARTBEAT: &str = ": still here\n\n";

/// The stream is over: its reader went away, or was let go.
struct Gone;

/// Answers with a job's events after `after`.
pub(crate) async fn stream(
    app: &Arc<App>,
    id: JobId,
    sees: Option<String>,
    after: Option<(u64, u64)>,
    hangup: Hangup,
) -> Answer {
    // Ask for the stream, subscribe, then look: nothing falls in between.
    app.follow(&id, sees.clone()).await?;
    let watch = app.store.hints().job(&id).await;
    let first = app.read(&id, sees.clone()).await?;
    let (outlet, body) = outlet();
    let follower = Follower {
        app: Arc::clone(app),
        id,
        sees,
        watch,
        after,
        shown: None,
        outlet,
    };
    app.tasks.spawn(follower.run(first, hangup));
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    Ok((headers, body).into_response())
}

/// The writing end of a bounded buffer before a reader.
struct Outlet {
    events: mpsc::Sender<Bytes>,
    /// One permit for each byte that may still be behind.
    room: Arc<Semaphore>,
    sent: Instant,
}

/// The reading end. Dropping it closes the room: the reader is gone.
struct Intake {
    events: mpsc::Receiver<Bytes>,
    room: Arc<Semaphore>,
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.room.close();
    }
}

/// What an event takes of the room; one larger than all of it takes all.
fn weight(bytes: &Bytes) -> u32 {
    u32::try_from(bytes.len())
        .unwrap_or(u32::MAX)
        .min(MAX_BEHIND_BYTES)
}

fn outlet() -> (Outlet, Body) {
    let (events, inlet) = mpsc::channel(MAX_BEHIND_EVENTS);
    let room = Arc::new(Semaphore::new(MAX_BEHIND_BYTES as usize));
    let intake = Intake {
        events: inlet,
        room: Arc::clone(&room),
    };
    let body = Body::from_stream(stream::unfold(intake, async |mut intake| {
        let bytes = intake.events.recv().await?;
        intake.room.add_permits(weight(&bytes) as usize);
        Some((Ok::<_, Infallible>(bytes), intake))
    }));
    (
        Outlet {
            events,
            room,
            sent: Instant::now(),
        },
        body,
    )
}

impl Outlet {
    /// Puts an event before the reader, who must make room for it within [`STALL`].
    async fn send(&mut self, bytes: Bytes) -> Result<(), Gone> {
        let sending = async {
            self.room
                .acquire_many(weight(&bytes))
                .await
                .map_err(|_| Gone)?
                .forget();
            self.events.send(bytes).await.map_err(|_| Gone)
        };
        tokio::time::timeout(STALL, sending)
            .await
            .map_err(|_| Gone)??;
        self.sent = Instant::now();
        Ok(())
    }

    /// Ends the stream. What is in the buffer still goes out; a reader that does not take it is hung up on.
    async fn end(self, hangup: &Hangup) {
        drop(self.events);
        if tokio::time::timeout(STALL, self.room.acquire_many(MAX_BEHIND_BYTES))
            .await
            .is_err()
        {
            hangup.now();
        }
    }
}

/// An event's text.
fn event(kind: &str, id: (u64, u64), data: &str) -> Bytes {
    let mut text = format!("event: {kind}\nid: {}-{}\n", id.0, id.1);
    // A line end of any kind would end the field.
    for line in data.replace("\r\n", "\n").split(['\n', '\r']) {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text.into()
}

/// What of a job a `status` event is about.
type Shown = (State, u32, u64, bool, Option<PendingReason>);

fn shown(view: &View) -> Shown {
    let job = &view.job;
    (
        job.state,
        job.attempts,
        job.fence.0,
        job.cancel_requested,
        view.pending_reason,
    )
}

/// Why a follower woke.
enum Wake {
    /// The job may have changed.
    Look,
    /// Its stream may have grown.
    Pieces,
    /// Nothing was said for long.
    Quiet,
    /// This process drains.
    Drain,
    /// The reader went away.
    Gone,
}

struct Follower {
    app: Arc<App>,
    id: JobId,
    sees: Option<String>,
    watch: Watch,
    /// The last piece told.
    after: Option<(u64, u64)>,
    shown: Option<Shown>,
    outlet: Outlet,
}

impl Follower {
    async fn run(mut self, first: View, hangup: Hangup) {
        // Either way the stream ends.
        let _ = self.tell(first).await;
        self.outlet.end(&hangup).await;
    }

    async fn tell(&mut self, first: View) -> Result<(), Gone> {
        self.outlet.send(HELLO.into()).await?;
        let mut view = Some(first);
        let mut look_at = Instant::now() + LOOK_EVERY;
        loop {
            if let Some(view) = &view {
                self.status(view).await?;
            }
            let whole = self.pieces().await?;
            if let Some(view) = view.take()
                && view.is_terminal()
                && whole
            {
                // Pieces are stored under a lease, so after the terminal there are no more of them.
                return self.terminal(&view).await;
            }
            match self.wait(look_at).await {
                Wake::Look => {
                    look_at = Instant::now() + LOOK_EVERY;
                    match self.app.read(&self.id, self.sees.clone()).await {
                        Ok(now) => view = Some(now),
                        Err(problem) if problem.status().is_client_error() => {
                            return self.reconnect().await;
                        }
                        // The store is away: the next look may find it.
                        Err(_) => {}
                    }
                }
                Wake::Pieces => {}
                Wake::Quiet => self.outlet.send(HEARTBEAT.into()).await?,
                Wake::Drain => return self.reconnect().await,
                Wake::Gone => return Err(Gone),
            }
        }
    }

    async fn wait(&mut self, look_at: Instant) -> Wake {
        if self.app.shutdown.is_draining() {
            return Wake::Drain;
        }
        let chunk = |hint: &Hint| matches!(hint, Hint::Message(text) if text == "chunk");
        let hint = tokio::select! {
            hint = self.watch.next() => hint,
            () = tokio::time::sleep_until(look_at) => return Wake::Look,
            () = tokio::time::sleep_until(self.outlet.sent + self.app.heartbeat) => return Wake::Quiet,
            () = self.app.shutdown.draining() => return Wake::Drain,
            () = self.outlet.events.closed() => return Wake::Gone,
        };
        // Several hints are one look.
        let mut pieces = chunk(&hint);
        while let Some(hint) = self.watch.next().now_or_never() {
            pieces &= chunk(&hint);
        }
        if pieces { Wake::Pieces } else { Wake::Look }
    }

    /// Says where the job stands, if that is new.
    async fn status(&mut self, view: &View) -> Result<(), Gone> {
        if view.is_terminal() || self.shown == Some(shown(view)) {
            return Ok(());
        }
        self.shown = Some(shown(view));
        let at = self.after.unwrap_or_default().max((view.job.fence.0, 0));
        self.outlet.send(event("status", at, &json(view))).await
    }

    async fn terminal(&mut self, view: &View) -> Result<(), Gone> {
        let at = self
            .after
            .unwrap_or_default()
            .max((view.job.fence.0, TERMINAL_N));
        self.outlet.send(event("terminal", at, &json(view))).await
    }

    async fn reconnect(&mut self) -> Result<(), Gone> {
        let text = "event: reconnect\ndata: {\"reason\":\"draining\"}\n\n";
        self.outlet.send(text.into()).await
    }

    /// Tells every piece that is new. False where the store could not say.
    async fn pieces(&mut self) -> Result<bool, Gone> {
        loop {
            let after = self.after.map(|(fence, n)| format!("{fence}-{n}"));
            let Ok(page) = self
                .app
                .store
                .events(&self.id, after.as_deref(), PAGE)
                .await
            else {
                return Ok(false);
            };
            let last = page.len() < PAGE;
            for piece in page {
                let Some(id) = event_id(&piece.id) else {
                    continue;
                };
                self.outlet
                    .send(event("chunk", id, &String::from_utf8_lossy(&piece.data)))
                    .await?;
                self.after = Some(id);
            }
            if last {
                return Ok(true);
            }
        }
    }
}

/// The job without its result, which may be larger than any event should be.
fn json(view: &View) -> String {
    serde_json::to_string(&JobBody::new(view)).unwrap_or_else(|_| "{}".to_owned())
}

#[cfg(test)]
mod tests;
