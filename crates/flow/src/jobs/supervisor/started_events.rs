//! The events of starts, which no start waits for.

use millstream_view::{Answer, Views};
use parking_lot::Mutex;
use tokio::sync::oneshot::error::TryRecvError;

use super::super::record::JobKey;
use super::super::store::{JobCommand, JobsView, PARTITION};

/// The starts that are not told yet: a command whose answer nobody holds would be withdrawn.
#[derive(Default)]
pub(super) struct StartedEvents(Mutex<Vec<Answer<JobsView>>>);

impl StartedEvents {
    /// Tells that a run of a job has begun.
    pub(super) fn tell(&self, views: &Views<JobsView>, key: &JobKey) {
        let mut untold = self.0.lock();
        untold.retain_mut(|answer| matches!(answer.try_recv(), Err(TryRecvError::Empty)));
        match views.submit(PARTITION, JobCommand::Started(key.clone())) {
            Ok(answer) => untold.push(answer),
            Err(error) => tracing::warn!(job = key.id, %error, "the start of a job is missing in its events"),
        }
    }
}
