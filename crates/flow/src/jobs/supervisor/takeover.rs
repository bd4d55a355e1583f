//! The state of an earlier job becomes that of a new one before its first run.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::TenantId;

use super::super::earlier::earlier_job;
use super::super::record::{JobKey, JobRecord};
use super::super::store::{JobCommand, PARTITION};
use super::{Supervisor, SupervisorRequest};
use crate::Error;
use crate::document::{Document, ErrorAnswer};
use crate::runtime::Takeover;

impl Supervisor {
    /// Takes over the state of an earlier job, on a thread that may wait for the disk. The run begins afterwards.
    pub(super) fn take_over(
        &self,
        key: &JobKey,
        number: u64,
        earlier: &JobRecord,
        tenant: TenantId,
        document: Document,
    ) {
        let takeover = self.takeover(key, earlier, tenant, document);
        let (requests, key) = (self.requests.clone(), key.clone());
        self.services.restoring.run(move || {
            let places = takeover.and_then(|takeover| takeover.run());
            // Without a receiver the process stops, and takes over at its next start.
            let _ = requests.send(SupervisorRequest::TakenOver(key, number, places));
        });
    }

    fn takeover(
        &self,
        key: &JobKey,
        earlier: &JobRecord,
        tenant: TenantId,
        document: Document,
    ) -> Result<Takeover, Error> {
        let plan = self.planner.plan(&document)?;
        Ok(Takeover {
            services: self.services.clone(),
            tenant,
            id: key.id.clone(),
            has_epochs: plan.has_epochs(document.delivery),
            earlier: earlier_job(earlier, self.planner.context()),
            before: self.takeover_before(earlier)?.map(Box::new),
            earlier_places: earlier.places.clone(),
            document,
        })
    }

    /// The takeover of a job that was stopped or replaced before it had the state from which it was to go on.
    fn takeover_before(&self, ended: &JobRecord) -> Result<Option<Takeover>, Error> {
        let Some(resumes) = ended.resumes.as_ref().filter(|resumes| !resumes.is_done) else { return Ok(None) };
        let snapshot = self.views.snapshot(PARTITION);
        let key = JobKey { tenant: ended.tenant.clone(), id: resumes.job.clone() };
        let Some(earlier) = snapshot.state.get(&key) else { return Ok(None) };
        let (document, tenant) = self.planner.read(ended)?;
        self.takeover(&ended.key(), earlier, tenant, document).map(Some)
    }

    pub(super) fn taken_over(
        self: &Arc<Self>,
        key: &JobKey,
        number: u64,
        places: Result<BTreeMap<String, u64>, Error>,
    ) {
        let Some(attempts) = self.active.attempts(key, number) else { return };
        match places {
            Ok(places) => {
                if self.store(JobCommand::TakenOver(key.clone(), places)).is_ok() {
                    return self.start_run(key, attempts);
                }
                let error =
                    Error::connector("", "the log does not take the job's record, which says that it has its state");
                self.run_failed(key, self.failure_of(&error), ErrorAnswer::Defer);
            }
            Err(error) => self.run_failed(key, self.failure_of(&error), ErrorAnswer::Defer),
        }
    }
}
