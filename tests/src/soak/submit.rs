//! How a client gets its job accepted.

use std::time::Duration;

use tokio::time::Instant;

use super::client::{Clients, PATIENCE, PAUSE, event, send};
use super::history::{Asked, Came, GIVEN_UP, Shown};
use super::story::Story;

/// Why a submission was not taken.
enum Refusal {
    /// The pool is full.
    ForNow,
    /// It is none that can be taken.
    ForGood,
}

impl Clients {
    /// Submits until the outcome is known, where the story has a key; otherwise once. Gives the job's id.
    pub(super) async fn submit(&self, story: &Story) -> Option<String> {
        let start = Instant::now();
        let mut first = true;
        while start.elapsed() < PATIENCE {
            let id = if first && story.doubled {
                let (one, two) =
                    tokio::join!(self.submit_once(story, None), self.submit_once(story, None));
                one.or(two)
            } else {
                self.submit_once(story, story.abandon_ms.filter(|_| first))
                    .await
            };
            match id {
                Some(Ok(id)) => return Some(id),
                // Refused for now: it is certain that nothing was stored, so a client without a key may try again, too.
                Some(Err(Refusal::ForNow)) => {}
                Some(Err(Refusal::ForGood)) => return None,
                None if !story.keyed => return None,
                None => {}
            }
            first = false;
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    /// One try: the id, a refusal, or none where nobody knows.
    async fn submit_once(
        &self,
        story: &Story,
        abandon_ms: Option<u64>,
    ) -> Option<Result<String, Refusal>> {
        let asked = if story.keyed {
            Asked::Submit
        } else {
            Asked::SubmitOnce
        };
        let call = self.history.invoke(story.n, asked, "");
        let mut request = self
            .request("POST", "/v1/jobs", &self.keys[story.tenant])
            .json(story.submission());
        if story.keyed {
            request = request.header("idempotency-key", story.key());
        }
        let reply = match abandon_ms {
            None => send(request).await,
            // The connection goes with the call that is given up: the server sees its caller leave.
            Some(ms) => {
                let limit = Duration::from_millis(ms);
                tokio::time::timeout(limit, send(request))
                    .await
                    .ok()
                    .flatten()
            }
        };
        let mut event = event(story, call, asked);
        if reply.is_none() && abandon_ms.is_some() {
            event.said = GIVEN_UP.into();
        }
        let outcome = match &reply {
            Some(reply) if matches!(reply.status, 200 | 202) => {
                let job = reply.json();
                event.job = job["id"].as_str().unwrap_or_default().into();
                event.said = job["status"].as_str().unwrap_or_default().into();
                event.shown = Shown::of(&job);
                event.came = Came::Ok;
                Some(Ok(event.job.clone()))
            }
            Some(reply) if matches!(reply.code().as_str(), "queue_full" | "draining") => {
                event.said = reply.code();
                event.came = Came::Fail;
                Some(Err(Refusal::ForNow))
            }
            // Of the 503 of a store that cannot say nothing follows.
            Some(reply) if reply.status == 503 => {
                event.said = reply.code();
                None
            }
            Some(reply) => {
                event.said = reply.code();
                event.wrong = format!("answered {}: {}", reply.status, reply.text());
                Some(Err(Refusal::ForGood))
            }
            None => None,
        };
        self.history.note(event);
        outcome
    }
}
