//! Opens taps on the edges of jobs.

use std::sync::Arc;
use std::time::Duration;

use millstream_types::TenantId;
use tokio::sync::OwnedSemaphorePermit;

use super::Jobs;
use super::record::{JobKey, JobState};
use crate::Error;
use crate::runtime::{JobMetrics, TAP_MAX_BYTES, TAPS_PER_JOB_MAX, TapReader, TapRefusal, TappedRecord};

/// Taps that may be open on the edges of all jobs.
pub(super) const TAPS_MAX: usize = 64;
/// Longest wait for the first run of a job that was just submitted.
const START_MAX: Duration = Duration::from_secs(5);

/// An open tap: samples of the records that pass an edge of a job. It ends with the job, not with one of its runs.
pub struct Tap {
    reader: TapReader,
    _place: OwnedSemaphorePermit,
}

impl Tap {
    /// Bytes that the waiting samples of a tap hold at most.
    pub const MAX_BYTES: usize = TAP_MAX_BYTES;

    /// The next sample; `None` once the job has ended. A caller that stops waiting loses nothing.
    pub async fn next(&mut self) -> Option<TappedRecord> {
        self.reader.next().await
    }

    /// Records that have passed the edge since the tap was opened.
    pub fn seen(&self) -> u64 {
        self.reader.seen()
    }

    /// Samples that [`Tap::next`] has returned.
    pub fn sent(&self) -> u64 {
        self.reader.sent()
    }

    /// Samples that were taken and dropped, as too many waited for the reader.
    pub fn dropped(&self) -> u64 {
        self.reader.dropped()
    }
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tap({} of {})", self.sent(), self.seen())
    }
}

impl Jobs {
    /// The taps that are open on the edges of all jobs.
    pub fn open_taps(&self) -> usize {
        TAPS_MAX - self.taps.available_permits()
    }

    /// Opens a tap on the edge between two nodes of a job, which takes `rate`
    /// records a second. Waits a moment for a job that was just submitted.
    ///
    /// # Errors
    /// [`Error::UnknownJob`], [`Error::NotRunning`] and [`Error::UnknownEdge`] if there is no such edge now;
    /// [`Error::TapsFull`] if too many taps are open.
    pub async fn tap(&self, tenant: &TenantId, id: &str, from: &str, to: &str, rate: f64) -> Result<Tap, Error> {
        let metrics = self.started(tenant, id).await?;
        let full = |open, limit| Error::TapsFull { open, limit };
        let place = Arc::clone(&self.taps).try_acquire_owned().map_err(|_| full(TAPS_MAX, TAPS_MAX))?;
        let reader = metrics.tap(from, to, rate).map_err(|refusal| match refusal {
            TapRefusal::UnknownEdge => {
                Error::UnknownEdge { id: id.to_owned(), edge: format!("{from},{to}"), edges: metrics.edges() }
            }
            TapRefusal::TooMany => full(TAPS_PER_JOB_MAX, TAPS_PER_JOB_MAX),
            TapRefusal::Ended => self.not_running(tenant, id),
        })?;
        Ok(Tap { reader, _place: place })
    }

    /// The figures of a job that is stored as running, once it has begun its first run.
    async fn started(&self, tenant: &TenantId, id: &str) -> Result<Arc<JobMetrics>, Error> {
        let (mut changes, key) = (self.supervisor.changes(), JobKey::new(tenant, id));
        let started = async {
            loop {
                if self.record(tenant, id)?.state != JobState::Running {
                    return Err(self.not_running(tenant, id));
                }
                if let Some(metrics) = self.supervisor.metrics(&key) {
                    return Ok(metrics);
                }
                changes.changed().await.map_err(|_| Error::Stopped)?;
            }
        };
        let waited = tokio::time::timeout(START_MAX, started).await;
        waited.unwrap_or_else(|_| Err(self.not_running(tenant, id)))
    }

    fn not_running(&self, tenant: &TenantId, id: &str) -> Error {
        match self.record(tenant, id) {
            Ok(record) if record.state == JobState::Running => {
                Error::NotRunning { id: id.to_owned(), state: "starting" }
            }
            Ok(record) => Error::NotRunning { id: id.to_owned(), state: record.state.as_str() },
            Err(error) => error,
        }
    }
}
