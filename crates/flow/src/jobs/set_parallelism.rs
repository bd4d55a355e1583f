//! The request for another parallelism of a job.

use std::time::Duration;

use millstream_types::TenantId;
use serde_json::Value;
use tokio::sync::oneshot;

use super::Jobs;
use super::parallelism::ParallelismChange;
use super::supervisor::SupervisorRequest;
use crate::Error;

impl Jobs {
    /// Changes the parallelism of a running job: it finishes what it has read, and goes on from its last epoch. Waits for that. A job
    /// that does not run at the moment has the new parallelism from its next start. A restart of the process keeps it.
    ///
    /// # Errors
    /// [`Error::UnknownJob`]; [`Error::NoNode`], [`Error::NoParallelism`], [`Error::Invalid`] or [`Error::Plan`] for a change that the
    /// job's document could not have; [`Error::NotRescaled`] for a job that has ended, or has not stopped within `time`: it goes on.
    pub async fn set_parallelism(
        &self,
        tenant: &TenantId,
        id: &str,
        change: ParallelismChange,
        time: Duration,
    ) -> Result<Value, Error> {
        let key = self.record(tenant, id)?.key();
        let (answer, outcome) = oneshot::channel();
        self.supervisor.request(SupervisorRequest::Rescale(key, change, time, answer));
        outcome.await.unwrap_or(Err(Error::Stopped))?;
        self.status(tenant, id)
    }
}
