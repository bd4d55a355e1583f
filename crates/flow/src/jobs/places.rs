//! The places of a job's sources that have no log: they stand in the job's record, so that they end with the job.

use std::sync::Arc;

use millstream_view::Views;

use super::record::JobKey;
use super::store::{JobAnswer, JobCommand, JobsView, PARTITION};
use crate::connector::Places;

pub(super) struct JobPlaces {
    views: Arc<Views<JobsView>>,
    key: JobKey,
}

impl JobPlaces {
    pub(super) fn new(views: Arc<Views<JobsView>>, key: JobKey) -> Self {
        Self { views, key }
    }
}

impl Places for JobPlaces {
    fn records_read(&self, node: &str) -> u64 {
        let record = self.views.snapshot(PARTITION).state.get(&self.key).cloned();
        record.and_then(|record| record.places.get(node).copied()).unwrap_or_default()
    }

    fn store(&self, node: &str, records_read: u64) -> bool {
        let command = JobCommand::Place(self.key.clone(), node.to_owned(), records_read);
        let Ok(answer) = self.views.submit(PARTITION, command) else { return false };
        matches!(answer.blocking_recv(), Ok(Ok(JobAnswer::Stored | JobAnswer::Unknown)))
    }
}
