//! Writes of several entities.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millstream_view::Error;
use tokio::time::sleep;

use crate::entities::batch_update::BatchItem;
use crate::entities::condition::Versions;
use crate::entities::partition_key;
use crate::entities::view::{EntityCommand, EntityReply, EntityView, WriteAction, WriteRequest};
use crate::flow_control::Flow;
use crate::refusal::{Refusal, RequestFailure};
use crate::requests::op_update;
use crate::requests::parameters;
use crate::requests::service::{NgsiRequest, Service};

/// Concurrent writes of one batch.
const IN_FLIGHT_MAX: usize = 256;
/// Pause of a batch while an owner's inbox is full.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// A write of a batch.
pub(crate) struct BatchWrite {
    /// The entity, as errors name it.
    pub(crate) named: String,
    /// The service path.
    pub(crate) path: Arc<str>,
    /// The entity must have one of these.
    pub(crate) versions: Option<Versions>,
    pub(crate) action: WriteAction,
}

/// A write whose owner has not answered yet.
struct PendingWrite {
    named: String,
    started: Duration,
    answer: millstream_view::Answer<EntityView>,
}

impl Service {
    /// Sends writes of several entities to their owners, in order; returns once all are durable.
    pub(crate) async fn write_all(
        self: &Arc<Self>,
        ask: &NgsiRequest,
        asked: Vec<BatchItem>,
    ) -> Result<(), RequestFailure> {
        asked.iter().try_for_each(|(_, action)| ask.check_type(action.kind()))?;
        let path = parameters::write_path(ask.headers())?;
        ask.check_no_version()?;
        asked.iter().try_for_each(|(_, action)| self.check_places(&ask.tenant, &path, action))?;
        let count = asked.len();
        let flow = self.flow(ask);
        let of = |(named, action)| BatchWrite { named, path: path.clone(), versions: None, action };
        let refused = self.send_all(ask, flow.as_ref(), asked.into_iter().map(of)).await?;
        if let Some(flow) = flow.filter(|_| refused.is_empty()) {
            self.flows.wait(flow, count).await;
        }
        Ok(op_update::combined(count, refused)?)
    }

    /// Sends writes to their owners, in order, and waits until all are durable; returns those that were refused. A batch that
    /// has begun waits for room, so that it is refused as a whole or not at all.
    pub(crate) async fn send_all(
        self: &Arc<Self>,
        ask: &NgsiRequest,
        flow: Option<&Flow>,
        writes: impl Iterator<Item = BatchWrite>,
    ) -> Result<Vec<(String, Refusal)>, RequestFailure> {
        let mut refused = Vec::new();
        let (mut waiting, mut has_begun) = (VecDeque::new(), false);
        for BatchWrite { named, path, versions, action } in writes {
            if waiting.len() >= IN_FLIGHT_MAX
                && let Some(first) = waiting.pop_front()
            {
                self.answered(first, &mut refused).await?;
            }
            let id = action.id().clone();
            self.deprecations.note(&ask.tenant, &action);
            let tell = self.tell(&ask.tenant, &id).await?;
            let owner = self.views.partition_of(&partition_key(&ask.tenant, &id));
            let (origin, at_us) = (ask.origin(&self.tokens, flow), self.stamps.next());
            let request = WriteRequest { tenant: ask.tenant.clone(), path, tell, versions, origin, at_us, action };
            let started = self.clock.now();
            let mut command = EntityCommand::Request(Box::new(request));
            let answer = loop {
                command = match self.views.offer(owner, command) {
                    Ok(answer) => break answer,
                    // Nothing is accepted yet if there is nothing to wait for.
                    Err((full, back)) if has_begun && full.is_full() => back,
                    Err((refusal, _)) => return self.noted(Err(refusal)).map(|_| refused),
                };
                // The batch's own replies free room first.
                match waiting.pop_front() {
                    Some(first) => self.answered(first, &mut refused).await?,
                    None => sleep(FULL_PAUSE).await,
                }
            };
            has_begun = true;
            waiting.push_back(PendingWrite { named, started, answer });
        }
        for one in waiting {
            self.answered(one, &mut refused).await?;
        }
        Ok(refused)
    }

    async fn answered(&self, write: PendingWrite, refused: &mut Vec<(String, Refusal)>) -> Result<(), RequestFailure> {
        let PendingWrite { named, started, answer } = write;
        match self.noted(answer.await.unwrap_or(Err(Error::Stopped)))? {
            EntityReply::Refused(refusal) => refused.push((named, refusal)),
            _ => self.counters.updated(self.clock.now().saturating_sub(started)),
        }
        Ok(())
    }
}
