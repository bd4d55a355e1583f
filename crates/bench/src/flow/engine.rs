//! The engine of jobs in this process, on a log in a temporary directory.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use millstream_flow::{FlowConfig, FlowRuntime, Hooks, Jobs};
use millstream_log::{Embedded, LogConfig, SystemFiles};
use millstream_types::{AccessScope, MemoryBudget, Principal, Roles, ShortLives, SystemClock, TenantId};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::functions;

/// Longest wait for a job to begin or to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// The time that jobs have to finish what they have read when the engine ends.
const DRAIN: Duration = Duration::from_secs(2);
/// Memory of all topics in memory.
const MEMORY_TOPICS_BYTES: usize = 768 << 20;
/// Memory of the state of jobs: that of a million keys.
const STATE_BYTES: u64 = 1 << 30;
/// Memory of everything in flight.
const MEMORY_BYTES: u64 = 2 << 30;

/// The log and the jobs of one process, with the functions of the suite.
pub(super) struct FlowEngine {
    pub(super) log: Arc<Embedded>,
    pub(super) tenant: TenantId,
    jobs: Arc<Jobs>,
    runtime: Runtime,
    _dir: tempfile::TempDir,
}

impl FlowEngine {
    pub(super) fn open() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig {
            dir: dir.path().join("log"),
            memory_topics_max_bytes: MEMORY_TOPICS_BYTES,
            ..LogConfig::default()
        };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone())?;
        let views = ViewRuntime {
            log: log.clone(),
            checkpoints: Checkpoints::open(&dir.path().join("views"))?,
            shards: Shards::start(1)?,
            wall: clock.clone(),
        };
        let functions = functions::registered();
        let memory = MemoryBudget::new("memory.budget_bytes", MEMORY_BYTES);
        let jobs = Jobs::open(
            &FlowRuntime {
                views,
                clock,
                memory,
                short_lives: ShortLives::default(),
                callers: Arc::new(|| false),
                entities: None,
            },
            FlowConfig { job_state_max_bytes: STATE_BYTES, state_max_bytes: STATE_BYTES, ..FlowConfig::default() },
            functions,
            Hooks::default(),
        )?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { log, tenant: TenantId::default(), jobs, runtime, _dir: dir })
    }

    /// Submits a job and returns its id.
    pub(super) fn start(&self, document: &Value) -> anyhow::Result<String> {
        let caller = Principal {
            tenant: self.tenant.clone(),
            name: "bench".to_owned(),
            roles: Roles::APPLICATION,
            scope: AccessScope::default(),
        };
        let submitted = self.runtime.block_on(self.jobs.submit(&caller, &document.to_string()));
        Ok(submitted.map_err(|error| anyhow::anyhow!("the job was refused: {error:?}\n{document:#}"))?.id)
    }

    /// The job with the figures of its nodes.
    pub(super) fn job(&self, id: &str) -> anyhow::Result<Value> {
        let job = self.jobs.get(&self.tenant, id)?;
        ensure!(job.get("error").is_none(), "the job has failed: {:#}", job["error"]);
        Ok(job)
    }

    pub(super) fn kill(&self, id: &str) -> anyhow::Result<()> {
        self.runtime.block_on(self.jobs.kill(&self.tenant, id))?;
        self.end(id, "killed")
    }

    /// Waits until a job of mode `batch` has completed.
    pub(super) fn complete(&self, id: &str) -> anyhow::Result<()> {
        self.end(id, "completed")
    }

    fn end(&self, id: &str, state: &str) -> anyhow::Result<()> {
        let job = self.runtime.block_on(self.jobs.wait(&self.tenant, id, PATIENCE))?;
        ensure!(job["state"] == state, "the job is {} and not {state}: {job:#}", job["state"]);
        Ok(())
    }
}

impl Drop for FlowEngine {
    fn drop(&mut self) {
        self.jobs.shut_down(DRAIN);
    }
}
