//! The memory of state: bounded for one job, for all jobs and, with all else, for the process.

use millstream_types::{Grant, MemoryBudget, TenantId};

use crate::Error;

const JOBS_SETTING: &str = "flow.state_max_bytes";
const JOB_SETTING: &str = "flow.job_state_max_bytes";
/// Memory is taken in steps of so many bytes.
const STEP_BYTES: u64 = 64 << 10;

/// The budget of all jobs.
#[derive(Debug, Clone)]
pub(crate) struct StateBudget {
    jobs: MemoryBudget,
    job_max_bytes: u64,
}

/// The budget of one job.
#[derive(Debug, Clone)]
pub(crate) struct JobStateMemory(MemoryBudget);

/// The memory of one table.
#[derive(Debug)]
pub(crate) struct StateMemory {
    node: String,
    /// `None` in a test.
    grant: Option<Grant>,
    job: Option<JobStateMemory>,
    used_bytes: u64,
}

impl StateBudget {
    pub(crate) fn new(process: &MemoryBudget, jobs_max_bytes: u64, job_max_bytes: u64) -> Self {
        Self { jobs: process.share(JOBS_SETTING, jobs_max_bytes), job_max_bytes }
    }

    /// The budget of a job of `tenant`.
    pub(crate) fn of_job(&self, tenant: &TenantId) -> JobStateMemory {
        JobStateMemory(self.jobs.for_tenant(tenant).share(JOB_SETTING, self.job_max_bytes))
    }
}

impl JobStateMemory {
    /// The memory of a table of `node`.
    pub(crate) fn of_node(&self, node: &str) -> StateMemory {
        let grant = Some(self.0.empty_grant());
        StateMemory { node: node.to_owned(), grant, job: Some(self.clone()), used_bytes: 0 }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.0.used_bytes()
    }
}

impl StateMemory {
    /// Memory without a bound, for a test of a document.
    pub(crate) fn unbounded(node: &str) -> Self {
        Self { node: node.to_owned(), grant: None, job: None, used_bytes: 0 }
    }

    /// An error of the table's node.
    pub(crate) fn failed(&self, message: impl Into<String>) -> Error {
        Error::connector(&self.node, message)
    }

    /// Takes bytes for an entry.
    ///
    /// # Errors
    /// The job, all jobs or the process have no more.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Error> {
        self.used_bytes += bytes;
        let Some(grant) = &mut self.grant else { return Ok(()) };
        let missing = self.used_bytes.saturating_sub(grant.bytes());
        if missing == 0 || grant.grow(missing.max(STEP_BYTES)) || grant.grow(missing) {
            return Ok(());
        }
        self.used_bytes -= bytes;
        let limit = self.job.as_ref().map_or(0, |job| job.0.limit_bytes());
        let used = self.job.as_ref().map_or(0, JobStateMemory::used_bytes);
        let setting = if used.saturating_add(missing) > limit { JOB_SETTING } else { JOBS_SETTING };
        Err(self.failed(format!(
            "has no memory for a further key: the job's state has {used} bytes of {JOB_SETTING} = {limit}; \
             let state end sooner (ttl), look up in a smaller table, or raise {setting}"
        )))
    }

    /// Returns the bytes of an entry.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.used_bytes -= bytes.min(self.used_bytes);
        if let Some(grant) = &mut self.grant {
            let spare = grant.bytes().saturating_sub(self.used_bytes);
            if spare > 2 * STEP_BYTES {
                grant.shrink(spare - STEP_BYTES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_beyond_its_jobs_bound_is_refused_by_name_and_returns_what_it_no_longer_needs() {
        let process = MemoryBudget::new("memory.budget_bytes", 10 << 20);
        let budget = StateBudget::new(&process, 8 << 20, 1 << 20);
        let job = budget.of_job(&TenantId::default());
        let (mut one, mut other) = (job.of_node("one"), job.of_node("other"));
        one.take(900 << 10).unwrap();
        let refusal = other.take(200 << 10).unwrap_err().to_string();
        assert!(refusal.contains("other") && refusal.contains("flow.job_state_max_bytes = 1048576"), "{refusal}");
        one.give_back(800 << 10);
        other.take(200 << 10).unwrap();
        drop((one, other));
        assert_eq!((job.used_bytes(), process.used_bytes()), (0, 0));
    }

    #[test]
    fn the_state_of_one_tenants_jobs_leaves_room_for_that_of_others() {
        let budget = StateBudget::new(&MemoryBudget::new("memory.budget_bytes", 100 << 20), 8 << 20, 8 << 20);
        let (greedy, other) = (budget.of_job(&TenantId::default()), budget.of_job(&TenantId::new("other").unwrap()));
        let (mut much, mut little) = (greedy.of_node("much"), other.of_node("little"));
        while much.take(64 << 10).is_ok() {}
        let refusal = much.take(1 << 20).unwrap_err().to_string();
        assert!(refusal.contains("or raise flow.state_max_bytes"), "{refusal}");
        little.take(1 << 20).unwrap();
    }
}
