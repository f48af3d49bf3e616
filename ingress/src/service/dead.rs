//! Dead letters, for operators.

use sha2::{Digest as _, Sha256};
use tidegate_shared::domain::{JobId, State};
use tidegate_shared::protocol::{Purge, PurgeReply, Requeue, RequeueReply};

use super::{App, not_found};
use crate::error::{Code, Problem};
use crate::input::submission::hex;
use crate::wire::dead::DeadBody;
use crate::wire::job::View;

impl App {
    /// A dead letter with its request.
    pub(crate) async fn letter(
        &self,
        id: &JobId,
        sees: Option<String>,
    ) -> Result<DeadBody, Problem> {
        let view = self.read(id, sees).await?;
        if view.job.dead.is_none() {
            return Err(not_found());
        }
        let envelope = self.store.envelope(id).await?;
        Ok(DeadBody::new(view.job).with(envelope))
    }

    /// Gives a dead letter a new life. `operation` is the caller's name for this requeue: sent again it is the same one.
    pub(crate) async fn requeue(&self, id: &JobId, operation: &str) -> Result<View, Problem> {
        let step = Requeue {
            id: id.clone(),
            // The store keeps it in the record: bounded, and free of the caller's own text.
            operation: hex(&Sha256::digest(operation.as_bytes())[..16]),
        };
        match self.store.requeue(&step).await? {
            RequeueReply::Requeued => self.read(id, None).await,
            RequeueReply::NotDead(state) => Err(not_dead(state)),
            RequeueReply::Full { limit, value } => {
                let detail = format!(
                    "pool {} is full: {limit} is {value}; the dead letter stays",
                    id.pool()
                );
                Err(Problem::new(Code::QueueFull, detail).limit(limit, value))
            }
            RequeueReply::Unknown => Err(not_found()),
        }
    }

    /// Removes a dead letter for good.
    pub(crate) async fn purge(&self, id: &JobId) -> Result<(), Problem> {
        match self.store.purge(&Purge { id: id.clone() }).await? {
            PurgeReply::Purged => Ok(()),
            PurgeReply::NotDead(state) => Err(not_dead(state)),
            PurgeReply::Unknown => Err(not_found()),
        }
    }
}

fn not_dead(state: State) -> Problem {
    Problem::new(
        Code::Conflict,
        format!("the job is {state} and no dead letter; nothing was changed"),
    )
}
