//! The jobs of a tenant from which a new one can go on.

use std::sync::Arc;

use millstream_log::Log;
use millstream_types::{PartitionId, TenantId, TopicPartition};

use super::record::{AllRecords, JobRecord, JobState, is_waiting};
use crate::document::{Document, DocumentContext, EarlierJob, EarlierJobs, NoEarlierJob};

/// The records at one moment, so that all questions about one document get answers that agree.
pub(super) struct EarlierRecords {
    pub(super) tenant: TenantId,
    pub(super) records: AllRecords,
    pub(super) log: Arc<dyn Log>,
    /// The settings in which the documents of jobs are read.
    pub(super) context: DocumentContext,
    pub(super) purpose: Purpose,
}

/// The reason why a document is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It is only checked: a job that runs may be stopped before it is submitted.
    Check,
    Submit,
    /// It is to take the place of the running job of its name.
    Replace,
}

impl EarlierRecords {
    fn of_tenant(&self) -> impl Iterator<Item = &Arc<JobRecord>> {
        self.records.values().filter(|record| record.tenant == self.tenant.as_str())
    }

    /// A job has state once an epoch is in its topic, also if its commit is not stored yet: that of a job that was stopped at once may
    /// be on its way still.
    fn has_state(&self, record: &JobRecord) -> bool {
        let topic = record.key().state_topic().filter(|topic| self.log.topic(topic).is_some());
        let partition = topic.map(|topic| self.log.partition(&TopicPartition { topic, partition: PartitionId(0) }));
        partition.is_some_and(|partition| partition.is_ok_and(|known| known.offsets().first < known.offsets().tail))
    }
}

impl EarlierJobs for EarlierRecords {
    fn named(&self, job: &str) -> Result<EarlierJob, NoEarlierJob> {
        let by_id = self.of_tenant().find(|record| record.id == job);
        let of_name = || self.of_tenant().filter(|record| record.name == job);
        let running = match by_id {
            Some(record) => Some(record).filter(|record| record.state == JobState::Running),
            None => of_name().find(|record| record.state == JobState::Running),
        };
        if let Some(running) = running {
            if self.purpose == Purpose::Check {
                return Ok(earlier_job(running, &self.context));
            }
            return Err(NoEarlierJob {
                message: format!(
                    "job '{}' called '{}' still runs, and its state changes; stop it first, or, to take its place, submit a \
                     document of its name with replace",
                    running.id, running.name
                ),
                names: Vec::new(),
            });
        }
        let with_state = |record: &&Arc<JobRecord>| self.has_state(record);
        let found = match by_id {
            Some(record) => Some(record).filter(with_state),
            None => of_name().filter(with_state).max_by_key(|record| (record.ended_ms, record.submitted_ms)),
        };
        found.map(|record| earlier_job(record, &self.context)).ok_or_else(|| {
            let is_known = by_id.is_some() || of_name().next().is_some();
            let message = if is_known {
                format!(
                    "job '{job}' has no state: it keeps none by key, has committed no epoch, or has completed; leave resume_from \
                     out, then a job of the same name goes on from its positions"
                )
            } else {
                format!("no job has the id or name '{job}'; 'GET /api/jobs' lists those that are remembered")
            };
            let ended = self.of_tenant().filter(|record| record.state != JobState::Running && self.has_state(record));
            NoEarlierJob { message, names: ended.map(|record| record.name.clone()).collect() }
        })
    }

    fn replaced(&self, name: &str) -> Option<EarlierJob> {
        let is_meant = |record: &&Arc<JobRecord>| {
            record.name == name && record.state == JobState::Running && !is_waiting(&self.records, record)
        };
        let found = self.of_tenant().filter(|_| self.purpose == Purpose::Replace).find(is_meant)?;
        Some(earlier_job(found, &self.context))
    }
}

/// A stored job as one that others may go on from.
pub(super) fn earlier_job(record: &JobRecord, context: &DocumentContext) -> EarlierJob {
    // A document that this process no longer takes still tells the types of its nodes.
    let read = Document::read(&record.document.to_string(), context).ok();
    EarlierJob::new(&record.id, &record.document, read.as_ref())
}

impl std::fmt::Debug for EarlierRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EarlierRecords({} jobs)", self.records.len())
    }
}
