//! Takes in jobs: reads the document, checks what it asks for, stores the job and has it started.
//!
//! The id and the document of a job are stored before anything runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::{Principal, Role, TenantId};
use millstream_view::Views;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::earlier::{EarlierRecords, Purpose, earlier_job};
use super::planner::JobPlanner;
use super::record::{JobKey, JobRecord, JobState, Resumes, SourceGroup};
use super::store::{JobAnswer, JobCommand, JobsView, PARTITION, TakenGroup, find};
use super::supervisor::{Supervisor, SupervisorRequest};
use crate::Error;
use crate::config::FlowConfig;
use crate::connector::Services;
use crate::document::{Document, DocumentContext, Finding, TopicAccess};
use crate::runtime::check_readable;

pub(super) struct Submissions {
    views: Arc<Views<JobsView>>,
    supervisor: Arc<Supervisor>,
    services: Services,
    planner: Arc<JobPlanner>,
    config: FlowConfig,
}

/// The answer to a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The id, unique in the tenant.
    pub id: String,
    /// The name, shared by all its runs.
    pub name: String,
    /// The hash of its document.
    pub hash: String,
    /// `false` if the same document was submitted under this id before.
    pub is_new: bool,
    /// The state of the job.
    pub state: JobState,
    /// The id of the job whose place it has taken.
    pub replaced: Option<String>,
}

impl Submissions {
    pub(super) fn new(
        views: &Arc<Views<JobsView>>,
        supervisor: &Arc<Supervisor>,
        services: &Services,
        planner: &Arc<JobPlanner>,
        config: FlowConfig,
    ) -> Self {
        Self {
            views: Arc::clone(views),
            supervisor: Arc::clone(supervisor),
            services: services.clone(),
            planner: Arc::clone(planner),
            config,
        }
    }

    /// Checks a document of a job of `tenant` without storing it.
    ///
    /// # Errors
    /// All faults of the document.
    pub(super) fn check(&self, tenant: &TenantId, text: &str) -> Result<Document, Vec<Finding>> {
        let topics = TopicAccess { tenant: tenant.clone(), may_read: true, may_write: true };
        Document::read(text, &self.context_of(topics, Purpose::Check))
    }

    /// Stores a job and starts it, or within `replaces` has it take the place of the one that runs.
    ///
    /// # Errors
    /// Those of [`Jobs::submit`](super::Jobs::submit) and [`Jobs::replace`](super::Jobs::replace).
    pub(super) async fn submit(
        &self,
        caller: &Principal,
        text: &str,
        replaces: Option<Duration>,
    ) -> Result<Submission, Error> {
        let Principal { tenant, roles, .. } = caller;
        let topics = TopicAccess {
            tenant: tenant.clone(),
            may_read: roles.has(Role::Reader),
            may_write: roles.has(Role::Writer),
        };
        let purpose = if replaces.is_some() { Purpose::Replace } else { Purpose::Submit };
        let context = self.context_of(topics, purpose);
        let document = self.read_submitted(text, &context).map_err(|findings| Error::Invalid { findings })?;
        let earlier = document.resume_from.as_ref().and_then(|resume| resume.earlier.as_ref());
        self.planner.check(&document)?;
        let id = document.id.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        if let Some(earlier) = earlier.filter(|_| find(&self.views, tenant, &id).is_err()) {
            self.check_state_of(tenant, earlier, &document).await?;
        }
        let record = JobRecord {
            tenant: tenant.to_string(),
            id: id.clone(),
            name: document.name.clone(),
            labels: document.labels.clone(),
            hash: document.hash.clone(),
            document: document.json.clone(),
            submitted_ms: self.services.wall.now_ms(),
            submitted_by: Some(caller.name.clone()),
            ended_ms: None,
            state: JobState::Running,
            paused: None,
            resumed_ms: None,
            ending: None,
            restarts: 0,
            error: None,
            resumes: earlier.map(|id| Resumes { job: id.clone(), is_done: false }),
            places: BTreeMap::new(),
            parallelism: BTreeMap::new(),
        };
        let key = record.key();
        let (name, hash) = (record.name.clone(), record.hash.clone());
        let earlier = record.earlier();
        let submitted =
            |is_new, state| Submission { id: id.clone(), name, hash: hash.clone(), is_new, state, replaced: None };
        match self.views.ask(PARTITION, JobCommand::Submit(Box::new(record))).await? {
            JobAnswer::Submitted(forgotten) => {
                if !forgotten.is_empty() {
                    self.supervisor.request(SupervisorRequest::Forget(forgotten));
                }
                let submission = submitted(true, JobState::Running);
                match earlier.zip(replaces) {
                    Some((earlier, time)) => self.take_place(key, earlier.id, time, submission).await,
                    None => {
                        self.supervisor.request(SupervisorRequest::Start(key));
                        Ok(submission)
                    }
                }
            }
            JobAnswer::Same(state) => Ok(submitted(false, state)),
            JobAnswer::HashDiffers(stored) => Err(Error::HashDiffers { id, stored, given: hash }),
            JobAnswer::NameTaken(other) => {
                Err(Error::NameTaken { id: other, name: document.name, state: JobState::Running.as_str() })
            }
            JobAnswer::GroupTaken(TakenGroup { node, place: SourceGroup { group, topic }, job }) => {
                Err(Error::GroupTaken { node, topic: topic.to_string(), group, id: job })
            }
            JobAnswer::Full(running) => Err(Error::JobsFull { running, limit: self.config.jobs_max }),
            JobAnswer::TenantFull(running) => {
                Err(Error::TenantJobsFull { running, tenant: tenant.clone(), limit: self.config.jobs_per_tenant_max })
            }
            JobAnswer::EarlierForgotten(id) => Err(Error::NoState { id }),
            JobAnswer::Unknown | JobAnswer::Stored => Err(Error::UnknownJob { id }),
        }
    }

    /// The surroundings of a document that is submitted now.
    fn context_of(&self, topics: TopicAccess, purpose: Purpose) -> DocumentContext {
        let earlier = EarlierRecords {
            tenant: topics.tenant.clone(),
            records: self.views.snapshot(PARTITION).state.clone(),
            log: Arc::clone(&self.services.log),
            context: self.planner.context().clone(),
            purpose,
        };
        DocumentContext { topics: Some(topics), earlier: Some(Arc::new(earlier)), ..self.planner.context().clone() }
    }

    /// Reads a document that is submitted. One that was submitted before is the same job, whatever has become of the one that it went
    /// on from.
    fn read_submitted(&self, text: &str, context: &DocumentContext) -> Result<Document, Vec<Finding>> {
        Document::read(text, context).or_else(|findings| {
            let read = Document::read(text, &DocumentContext { earlier: None, ..context.clone() });
            let tenant = context.topics.as_ref().map(|topics| &topics.tenant);
            let is_known = |document: &Document| {
                let id = document.id.as_ref()?;
                Some(find(&self.views, tenant?, id).ok()?.hash == document.hash)
            };
            read.ok().filter(|document| is_known(document) == Some(true)).ok_or(findings)
        })
    }

    /// Checks that a new job can read what an earlier one has stored.
    async fn check_state_of(&self, tenant: &TenantId, earlier: &str, document: &Document) -> Result<(), Error> {
        let earlier = earlier_job(&*find(&self.views, tenant, earlier)?, self.planner.context());
        let (log, tenant, document) = (Arc::clone(&self.services.log), tenant.clone(), document.clone());
        let (answer, checked) = oneshot::channel();
        self.services.restoring.run(move || {
            // The caller may have gone.
            let _ = answer.send(check_readable(&*log, &tenant, &document, &earlier));
        });
        checked.await.unwrap_or(Err(Error::Stopped))
    }

    /// Waits until a job has taken the place of another.
    async fn take_place(
        &self,
        key: JobKey,
        earlier: String,
        time: Duration,
        submission: Submission,
    ) -> Result<Submission, Error> {
        let (answer, outcome) = oneshot::channel();
        self.supervisor.request(SupervisorRequest::Replace(key, time, Some(answer)));
        match outcome.await {
            Ok(Ok(())) => Ok(Submission { replaced: Some(earlier), ..submission }),
            Ok(Err(reason)) => Err(Error::NotReplaced { id: earlier, reason }),
            Err(_) => Err(Error::Stopped),
        }
    }
}
