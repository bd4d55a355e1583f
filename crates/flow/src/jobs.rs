//! The jobs of this process: what was submitted, what runs, and what became of the others.
//!
//! ```text
//!  submit, stop, kill ──► JobsView (state topic `_jobs`) ──► Supervisor (one thread): starts runs, restarts them after
//!                            ▲                                  errors, and stores how they end
//!                            └──────────────────────────────────┘
//! ```
//!
//! Always true
//! - An id and its document are stored before anything runs, so the same submission is never run twice.
//! - A job that is stored as running is started again when the process starts, unless its end was asked for.

mod crash_loop;
mod earlier;
mod events;
mod figures;
mod parallelism;
mod places;
mod planner;
mod record;
mod set_parallelism;
mod state;
mod stop_mode;
mod store;
mod submissions;
mod supervisor;
mod tap;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_types::{
    MemoryBudget, MonotonicClock, Principal, RemoteCallers, ShortLives, StateTopic, TenantId, TopicName, WallClock,
    iso_time,
};
use millstream_view::{ViewRuntime, Views, ViewsConfig};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::crash_loop::CrashLoop;
pub use self::events::EVENT_TENANT_HEADER;
pub use self::figures::JobFigure;
pub use self::parallelism::ParallelismChange;
use self::planner::JobPlanner;
pub use self::record::JobState;
use self::record::{JobKey, JobRecord, is_waiting};
pub use self::stop_mode::StopMode;
use self::store::{JobAnswer, JobCommand, JobsView, PARTITION};
pub use self::submissions::Submission;
use self::submissions::Submissions;
use self::supervisor::{Supervisor, SupervisorRequest};
use self::tap::TAPS_MAX;
pub use self::tap::Tap;
use crate::Error;
use crate::config::FlowConfig;
use crate::connector::{Bells, Blocking, FileSpace, HttpAccess, HttpThread, Services};
use crate::document::{Document, DocumentContext, Finding, json_schema};
use crate::entities::EntityReader;
use crate::function::Functions;
use crate::hook::Hooks;
use crate::memory::InFlightMemory;
use crate::runtime::{JobMetrics, Workers};
use crate::state::StateBudget;
use crate::test_run::{TestReport, TestRunner};

/// Alarms that are listed at once have about so many bytes.
const ALARMS_MAX_BYTES: usize = 4 << 20;
/// The name of the writer of all jobs.
const WRITER: &str = "jobs";
/// Bytes of submissions that may wait, and of changes that may be missing from the checkpoint.
const INBOX_MAX_BYTES: usize = 8 << 20;
/// Most nodes with figures of their own in the metrics.
const FIGURES_MAX: usize = 1_000;
/// The state, in answers, of a job that is stored as running and not started.
const PAUSED: &str = "paused";

/// The words for the state of a job in answers. `starting` are jobs that wait, `paused` those that are to be resumed.
pub const JOB_STATES: [&str; 7] = ["starting", "running", PAUSED, "stopped", "completed", "killed", "failed"];

/// The services that jobs run on.
#[derive(Clone)]
pub struct FlowRuntime {
    /// The log and the owners of state.
    pub views: ViewRuntime,
    /// Time for timeouts and rates.
    pub clock: Arc<dyn MonotonicClock>,
    /// The memory of the process, which records in flight draw on.
    pub memory: MemoryBudget,
    /// The last lives of the process, if each ended within a minute and not in order.
    pub short_lives: ShortLives,
    /// Tells whether jobs come from other machines; requests to private addresses must be allowed by a setting then.
    pub callers: RemoteCallers,
    /// The entities that lookups read; `None` in a process without them.
    pub entities: Option<Arc<dyn EntityReader>>,
}

/// All jobs of all tenants.
pub struct Jobs {
    views: Arc<Views<JobsView>>,
    supervisor: Arc<Supervisor>,
    services: Services,
    workers: Arc<Workers>,
    taps: Arc<Semaphore>,
    planner: Arc<JobPlanner>,
    tests: TestRunner,
    submissions: Submissions,
    wall: Arc<dyn WallClock>,
}

impl Jobs {
    /// Opens the state of jobs and starts those that were running. Blocks while state is rebuilt.
    ///
    /// # Errors
    /// [`Error::State`] if the state cannot be read; [`Error::Thread`]; [`Error::InvalidSetting`].
    pub fn open(
        runtime: &FlowRuntime,
        config: FlowConfig,
        functions: Functions,
        hooks: Hooks,
    ) -> Result<Arc<Self>, Error> {
        let FlowRuntime { views: ground, clock, memory, short_lives, callers, entities } = runtime;
        let views_config = ViewsConfig {
            partitions: 1,
            inbox_max_bytes: INBOX_MAX_BYTES,
            dirty_max_bytes: INBOX_MAX_BYTES,
            ..ViewsConfig::default()
        };
        let view = JobsView {
            jobs_max: config.jobs_max,
            per_tenant_max: config.jobs_per_tenant_max,
            ended_max: config.ended_per_tenant_max,
        };
        events::open_topic(&*ground.log)?;
        let views = Views::open(view, &TopicName::internal(StateTopic::Jobs), &views_config, ground)?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if config.threads == 0 { cores } else { config.threads };
        let workers = Workers::start(threads, Arc::clone(clock)).map_err(Error::Thread)?;
        let outgoing = HttpAccess::of(&config.http_allowed_targets, &config.http_ca_file, callers)?;
        let targets = Arc::clone(&outgoing.targets);
        let services = Services {
            log: Arc::clone(&ground.log),
            writer: Arc::new(millstream_log::RenewedWriter::begin(Arc::clone(&ground.log), WRITER)?),
            wall: Arc::clone(&ground.wall),
            clock: Arc::clone(clock),
            bells: Bells::start().map_err(Error::Thread)?,
            blocking: Blocking::start("flow-io").map_err(Error::Thread)?,
            restoring: Blocking::start("flow-restore").map_err(Error::Thread)?,
            http: Arc::new(HttpThread::new(outgoing)),
            memory: InFlightMemory::new(memory, config.in_flight_max_bytes, config.job_in_flight_max_bytes),
            state: StateBudget::new(memory, config.state_max_bytes, config.job_state_max_bytes),
            files: files(&config, clock),
            entities: entities.clone(),
        };
        let context = DocumentContext { targets: Some(targets), ..config.document_context(&functions, &hooks) };
        let tests = TestRunner::new(functions.clone(), hooks.clone(), &config);
        let planner = Arc::new(JobPlanner::new(functions, hooks, context, workers.count()));
        let supervisor = Supervisor::start(
            Arc::clone(&views),
            services.clone(),
            Arc::clone(&workers),
            Arc::clone(&planner),
            &CrashLoop { short_lives: short_lives.clone(), max: config.crashes_max },
        )?;
        let wall = Arc::clone(&ground.wall);
        let taps = Arc::new(Semaphore::new(TAPS_MAX));
        let submissions = Submissions::new(&views, &supervisor, &services, &planner, config);
        Ok(Arc::new(Self { views, supervisor, services, workers, taps, planner, tests, submissions, wall }))
    }

    /// Checks a document of a job of `tenant` without storing it.
    ///
    /// # Errors
    /// All faults of the document.
    pub fn validate(&self, tenant: &TenantId, text: &str) -> Result<Document, Vec<Finding>> {
        self.submissions.check(tenant, text)
    }

    /// The JSON Schema of the documents that this process takes.
    pub fn schema(&self) -> Value {
        json_schema(&self.planner.context().catalogue)
    }

    /// Runs the tests of a document in the calling thread, with batches
    /// of `batch` records instead of those that the document asks for.
    ///
    /// # Errors
    /// All faults of the document.
    pub fn test(&self, text: &str, batch: Option<u32>) -> Result<TestReport, Vec<Finding>> {
        self.tests.run(text, batch)
    }

    /// Stores a job in the caller's tenant and starts it. Durable on return.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::HashDiffers`], [`Error::NameTaken`], [`Error::GroupTaken`], [`Error::JobsFull`], [`Error::Plan`].
    pub async fn submit(&self, caller: &Principal, text: &str) -> Result<Submission, Error> {
        self.submissions.submit(caller, text, None).await
    }

    /// As [`Jobs::submit`]; if a job of the name runs, the new one takes its place: that job is stopped once the document is known to be
    /// right, and the new one goes on from its last epoch. Waits for that. After a crash in the meantime, one of the two runs.
    ///
    /// # Errors
    /// Those of [`Jobs::submit`]; [`Error::NotReplaced`] if the running job has not stopped within `time`: it goes on.
    pub async fn replace(&self, caller: &Principal, text: &str, time: Duration) -> Result<Submission, Error> {
        self.submissions.submit(caller, text, Some(time)).await
    }

    fn record(&self, tenant: &TenantId, id: &str) -> Result<Arc<JobRecord>, Error> {
        store::find(&self.views, tenant, id)
    }

    /// The tenant's jobs, newest first, without their documents.
    pub fn list(&self, tenant: &TenantId) -> Vec<Value> {
        self.matching(tenant, |_| true)
    }

    /// The runs of that name, newest first.
    ///
    /// # Errors
    /// [`Error::UnknownName`] if there are none.
    pub fn by_name(&self, tenant: &TenantId, name: &str) -> Result<Vec<Value>, Error> {
        let found = self.matching(tenant, |record| record.name == name);
        if found.is_empty() { Err(Error::UnknownName { name: name.to_owned() }) } else { Ok(found) }
    }

    fn matching(&self, tenant: &TenantId, is_wanted: impl Fn(&JobRecord) -> bool) -> Vec<Value> {
        let state = &self.views.snapshot(PARTITION).state;
        let of_tenant = state.values().filter(|record| record.tenant == tenant.as_str() && is_wanted(record));
        let mut found: Vec<&Arc<JobRecord>> = of_tenant.collect();
        found.sort_by_key(|record| std::cmp::Reverse(record.submitted_ms));
        found.into_iter().map(|record| self.render(record)).collect()
    }

    /// Tenant and status of the running jobs that a caller of this name has submitted in `tenant`; in all tenants if `None`.
    pub fn running_of(&self, tenant: Option<&TenantId>, caller: &str) -> Vec<(TenantId, Value)> {
        let state = &self.views.snapshot(PARTITION).state;
        let of_caller = state.values().filter(|record| {
            record.state == JobState::Running
                && record.submitted_by.as_deref() == Some(caller)
                && tenant.is_none_or(|tenant| record.tenant == tenant.as_str())
        });
        of_caller.filter_map(|record| Some((TenantId::new(&record.tenant).ok()?, self.render(record)))).collect()
    }

    /// A job with its document and the figures of its nodes.
    ///
    /// # Errors
    /// [`Error::UnknownJob`] if the tenant has no such job.
    pub fn get(&self, tenant: &TenantId, id: &str) -> Result<Value, Error> {
        let mut job = self.status(tenant, id)?;
        job["document"] = self.record(tenant, id)?.document.clone();
        Ok(job)
    }

    /// A job with the figures of its nodes, as far as this process has run it.
    ///
    /// # Errors
    /// [`Error::UnknownJob`] if the tenant has no such job.
    pub fn status(&self, tenant: &TenantId, id: &str) -> Result<Value, Error> {
        let record = self.record(tenant, id)?;
        let mut job = self.render(&record);
        if let Some(run) = self.supervisor.run(&record.key()) {
            job["nodes"] = run.describe_nodes().into();
            job["turns"] = run.turns().into();
        } else if let Some(metrics) = self.supervisor.metrics(&record.key()) {
            job["nodes"] = metrics.describe_nodes(true).into();
        }
        Ok(job)
    }

    /// The nodes and edges of a job, with figures as far as this process has run it.
    ///
    /// # Errors
    /// [`Error::UnknownJob`]; [`Error::Invalid`] or [`Error::Plan`] for a job of before that this process cannot run.
    pub fn graph(&self, tenant: &TenantId, id: &str) -> Result<Value, Error> {
        let record = self.record(tenant, id)?;
        let key = record.key();
        let (nodes, edges) = match (self.supervisor.run(&key), self.supervisor.metrics(&key)) {
            (Some(run), _) => (run.describe_nodes(), run.metrics.describe_edges(true)),
            (None, Some(metrics)) => (metrics.describe_nodes(true), metrics.describe_edges(true)),
            (None, None) => {
                let planned = JobMetrics::new(&self.planner.plan_of(&record)?, Arc::clone(&self.services.clock));
                (planned.describe_nodes(false), planned.describe_edges(false))
            }
        };
        let job = self.render(&record);
        let [at, id, name, state] = ["at", "id", "name", "state"].map(|key| &job[key]);
        Ok(json!({"at": at, "id": id, "name": name, "state": state, "nodes": nodes, "edges": edges}))
    }

    /// The latest errors of a job, oldest first.
    ///
    /// # Errors
    /// [`Error::UnknownJob`] if the tenant has no such job.
    pub fn errors(&self, tenant: &TenantId, id: &str) -> Result<Value, Error> {
        let record = self.record(tenant, id)?;
        let mut errors = self.supervisor.errors(&record.key());
        errors.extend(record.error.clone().filter(|error| !errors.contains(error)));
        Ok(json!(errors))
    }

    /// The open alarms of the tenant's running jobs, of those of an id or name if `job` names them: at most `max`, and as many as have
    /// 4 MiB together, by job, node and key.
    pub fn alarms(&self, tenant: &TenantId, job: Option<&str>, max: usize) -> Value {
        let state = &self.views.snapshot(PARTITION).state;
        let of_tenant = state.values().filter(|record| record.tenant == tenant.as_str());
        let mut records: Vec<&Arc<JobRecord>> =
            of_tenant.filter(|record| job.is_none_or(|job| record.id == job || record.name == job)).collect();
        records.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        let (mut open, mut alarms, mut left_bytes) = (0, Vec::new(), ALARMS_MAX_BYTES);
        for record in records {
            let Some(run) = self.supervisor.run(&record.key()) else { continue };
            let (count, first) = run.alarms.describe(max - alarms.len(), &mut left_bytes);
            open += count;
            for mut alarm in first {
                (alarm["job"], alarm["name"]) = (record.id.as_str().into(), record.name.as_str().into());
                alarms.push(alarm);
            }
        }
        json!({"at": iso_time(self.now_ms()), "open": open, "alarms": alarms})
    }

    /// The payloads that a `collect` sink of a running job has kept.
    ///
    /// # Errors
    /// [`Error::UnknownJob`] also for a job that no longer runs.
    pub fn collected(&self, tenant: &TenantId, id: &str, node: &str) -> Result<Vec<String>, Error> {
        self.supervisor.collected(&JobKey::new(tenant, id), node).ok_or_else(|| Error::UnknownJob { id: id.to_owned() })
    }

    /// The lines that a hook of a job has written to its trace.
    ///
    /// # Errors
    /// [`Error::UnknownJob`] also for a job that never ran in this process.
    pub fn trace(&self, tenant: &TenantId, id: &str, hook: &str) -> Result<Vec<String>, Error> {
        self.supervisor.trace(&JobKey::new(tenant, id), hook).ok_or_else(|| Error::UnknownJob { id: id.to_owned() })
    }

    /// Stops a job; it is over once [`Jobs::wait`] says so. Does nothing to a job that has ended. The request is durable on
    /// return: if the process ends before the job does, the job is not started again.
    ///
    /// # Errors
    /// [`Error::UnknownJob`]; [`Error::NoEpochs`] for [`StopMode::Checkpoint`] of a job without epochs; [`Error::State`] if the request
    /// cannot be stored.
    pub async fn stop(&self, tenant: &TenantId, id: &str, mode: StopMode) -> Result<(), Error> {
        let record = self.record(tenant, id)?;
        if mode == StopMode::Checkpoint && record.state == JobState::Running && !self.planner.has_epochs(&record)? {
            return Err(Error::NoEpochs { id: id.to_owned() });
        }
        let key = record.key();
        self.views.ask(PARTITION, JobCommand::Ending(key.clone(), JobState::Stopped)).await?;
        self.supervisor.request(SupervisorRequest::Stop(key, mode));
        Ok(())
    }

    /// Starts a paused job again; does nothing to one that runs. Durable on return.
    ///
    /// # Errors
    /// [`Error::UnknownJob`]; [`Error::NotPaused`] for a job that has ended; [`Error::State`] if it cannot be stored.
    pub async fn resume(&self, tenant: &TenantId, id: &str) -> Result<(), Error> {
        let key = JobKey::new(tenant, id);
        match self.views.ask(PARTITION, JobCommand::Resume(key.clone())).await? {
            JobAnswer::Unknown => Err(Error::UnknownJob { id: id.to_owned() }),
            JobAnswer::Same(state) if state != JobState::Running => {
                Err(Error::NotPaused { id: id.to_owned(), state: state.as_str() })
            }
            JobAnswer::Same(_) => Ok(()),
            _ => {
                self.supervisor.request(SupervisorRequest::Start(key));
                Ok(())
            }
        }
    }

    /// Kills a job at once and for good, like [`Jobs::stop`].
    ///
    /// # Errors
    /// The same as those of [`Jobs::stop`].
    pub async fn kill(&self, tenant: &TenantId, id: &str) -> Result<(), Error> {
        let key = self.record(tenant, id)?.key();
        self.views.ask(PARTITION, JobCommand::Ending(key.clone(), JobState::Killed)).await?;
        self.supervisor.request(SupervisorRequest::Kill(key));
        Ok(())
    }

    /// Waits until a job has ended, at most `timeout`; the job as it is then.
    ///
    /// # Errors
    /// [`Error::UnknownJob`] if the tenant has no such job.
    pub async fn wait(&self, tenant: &TenantId, id: &str, timeout: Duration) -> Result<Value, Error> {
        let mut changes = self.supervisor.changes();
        let ended = async {
            while self.record(tenant, id)?.state == JobState::Running {
                changes.changed().await.map_err(|_| Error::Stopped)?;
            }
            Ok(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(timeout, ended).await {
            return Err(error);
        }
        Ok(self.render(&*self.record(tenant, id)?))
    }

    fn render(&self, record: &JobRecord) -> Value {
        let mut job = json!({
            "at": iso_time(self.wall.now_ms()),
            "id": record.id,
            "name": record.name,
            "labels": record.labels,
            "hash": record.hash,
            "state": record.state.as_str(),
            "submitted": iso_time(record.submitted_ms),
            "restarts": record.restarts,
        });
        if let Some(name) = &record.submitted_by {
            job["submitted_by"] = name.as_str().into();
        }
        if let Some(ended_ms) = record.ended_ms {
            job["ended"] = iso_time(ended_ms).into();
        }
        if let Some(resumes) = &record.resumes {
            job["resumed_from"] = resumes.job.as_str().into();
        }
        if !record.parallelism.is_empty() {
            job["parallelism"] = json!(record.parallelism);
        }
        if let Some(error) = &record.error {
            job["error"] = json!(error);
            job["reason"] = error.message.as_str().into();
        }
        if let Some(reason) = &record.paused {
            job["state"] = PAUSED.into();
            job["reason"] = reason.as_str().into();
        } else if record.state == JobState::Running {
            self.supervisor.describe(&record.key(), &mut job);
            if let Some(ending) = record.ending {
                job["reason"] = format!("is about to be {}", ending.as_str()).into();
            }
            if let Some(reason) = self.waits_for_earlier(record) {
                (job["state"], job["reason"]) = ("starting".into(), reason.into());
            }
        }
        if let Some(metrics) = self.supervisor.metrics(&record.key()) {
            metrics.describe_totals(&mut job);
        }
        job
    }

    /// The reason why a job that goes on from another does not run yet; `None` while it waits for something else.
    fn waits_for_earlier(&self, record: &JobRecord) -> Option<String> {
        let earlier = record.earlier().filter(|_| record.error.is_none())?;
        let is_waiting = is_waiting(&self.views.snapshot(PARTITION).state, record);
        let text = if is_waiting { "waits until it can take the place of job" } else { "takes over the state of job" };
        Some(format!("{text} '{}'", earlier.id))
    }

    /// The wall time of jobs, milliseconds since 1970-01-01T00:00:00Z.
    pub fn now_ms(&self) -> i64 {
        self.wall.now_ms()
    }

    /// The number of jobs that are stored as running.
    pub fn running_count(&self) -> usize {
        self.views.snapshot(PARTITION).state.values().filter(|record| record.state == JobState::Running).count()
    }

    /// The number of jobs in each of [`JOB_STATES`], of all tenants.
    pub fn state_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::from(JOB_STATES.map(|word| (word, 0)));
        for record in self.views.snapshot(PARTITION).state.values() {
            let word = match record.state {
                JobState::Running if record.paused.is_some() => PAUSED,
                JobState::Running if self.supervisor.waits(&record.key()) => "starting",
                state => state.as_str(),
            };
            *counts.entry(word).or_default() += 1;
        }
        counts
    }

    /// The figures of the nodes of running jobs, at most `FIGURES_MAX`.
    pub fn figures(&self) -> Vec<JobFigure> {
        self.supervisor.figures(FIGURES_MAX)
    }

    /// Parts of the state that have failed.
    pub fn failures(&self) -> Vec<millstream_view::Failure> {
        self.views.failures()
    }

    /// Ends all threads and runs, which have `drain` to finish what they have read. Jobs stay stored as running, and read
    /// again what was not finished.
    pub fn shut_down(&self, drain: Duration) {
        self.supervisor.stop(drain);
        self.workers.stop();
        self.services.bells.stop();
        self.services.blocking.stop();
        self.services.restoring.stop();
        self.services.http.stop();
        self.views.stop();
    }
}

/// The room for files; `None` if jobs may use none.
fn files(config: &FlowConfig, clock: &Arc<dyn MonotonicClock>) -> Option<Arc<FileSpace>> {
    let FlowConfig { files_dir, files_free_min_bytes, files_per_tenant_max_bytes, .. } = config;
    let space = || FileSpace::new(files_dir, *files_free_min_bytes, *files_per_tenant_max_bytes, clock);
    (!files_dir.as_os_str().is_empty()).then(|| Arc::new(space()))
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Jobs({} running)", self.running_count())
    }
}
