//! The memory of records in flight: what sources have read and no sink has finished yet.
//!
//! ```text
//!   memory.budget_bytes ◄── flow.in_flight_max_bytes (all jobs) ◄── flow.job_in_flight_max_bytes (one job)
//! ```
//!
//! Always true
//! - A record in flight counts in all three until it is finished. Each source has read at most one batch that does not.
//!
//! Not here: records that nodes make of others, whose queues are bounded by the number of batches.

use std::sync::atomic::{AtomicU64, Ordering};

use millstream_types::{Grant, MemoryBudget};

const JOBS_SETTING: &str = "flow.in_flight_max_bytes";
const COLLECTED: &str = "the records of collect sinks";
/// Bytes of the records that `collect` sinks of all jobs keep.
const COLLECTED_MAX_BYTES: u64 = 64 << 20;
const JOB_SETTING: &str = "flow.job_in_flight_max_bytes";

/// The budgets of the process and of all jobs.
#[derive(Debug, Clone)]
pub(crate) struct InFlightMemory {
    process: MemoryBudget,
    jobs: MemoryBudget,
    job_max_bytes: u64,
    /// The records that `collect` sinks keep.
    collected: MemoryBudget,
}

/// The budgets that the records of one job count in.
#[derive(Debug)]
pub(crate) struct JobMemory {
    /// From the job's own to that of the process.
    budgets: [MemoryBudget; 3],
    waits: AtomicU64,
}

/// The reason why there is no memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoMemory {
    /// Other records hold the memory now; the text names the limit.
    NotNow(String),
    /// It is more than a limit.
    Never(String),
}

impl InFlightMemory {
    pub(crate) fn new(process: &MemoryBudget, jobs_max_bytes: u64, job_max_bytes: u64) -> Self {
        Self {
            process: process.clone(),
            jobs: process.share(JOBS_SETTING, jobs_max_bytes),
            job_max_bytes,
            collected: process.share(COLLECTED, COLLECTED_MAX_BYTES),
        }
    }

    /// Memory for the records that the `collect` sinks of a job will keep.
    pub(crate) fn of_collected(&self) -> Grant {
        self.collected.empty_grant()
    }

    /// The budgets of a new job.
    pub(crate) fn of_job(&self) -> JobMemory {
        let job = self.jobs.share(JOB_SETTING, self.job_max_bytes);
        JobMemory { budgets: [job, self.jobs.clone(), self.process.clone()], waits: AtomicU64::new(0) }
    }
}

impl JobMemory {
    /// Takes the bytes of a batch. Does not wait.
    pub(crate) fn take(&self, bytes: u64) -> Result<Grant, NoMemory> {
        if let Some(grant) = self.budgets[0].take(bytes) {
            return Ok(grant);
        }
        if let Some(budget) = self.budgets.iter().find(|budget| bytes > budget.limit_bytes()) {
            let (setting, limit) = (budget.setting(), budget.limit_bytes());
            let message = format!("a batch of {bytes} bytes exceeds {setting} = {limit}; lower batch.size or raise it");
            return Err(NoMemory::Never(message));
        }
        let is_full = |budget: &&MemoryBudget| budget.used_bytes().saturating_add(bytes) > budget.limit_bytes();
        // Others may have given back what was missing.
        let budget = self.budgets.iter().find(is_full).unwrap_or(&self.budgets[0]);
        let (setting, limit, used) = (budget.setting(), budget.limit_bytes(), budget.used_bytes());
        Err(NoMemory::NotNow(format!(
            "waits for memory: {used} bytes of {setting} = {limit} are in use, and its next batch has {bytes}"
        )))
    }

    /// Counts a batch that begins to wait.
    pub(crate) fn count_wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of batches that had to wait.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// The bytes of the job's records in flight.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.budgets[0].used_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_counts_for_its_job_all_jobs_and_the_process_and_the_full_budget_is_named() {
        let process = MemoryBudget::new("memory.budget_bytes", 100);
        let memory = InFlightMemory::new(&process, 80, 50);
        let (one, other) = (memory.of_job(), memory.of_job());
        let refused = |found: Result<Grant, NoMemory>, setting: &str| match found {
            Err(NoMemory::NotNow(reason)) => assert!(reason.contains(setting), "{reason}"),
            found => panic!("{found:?}"),
        };
        let first = one.take(40).unwrap();
        refused(one.take(20), "40 bytes of flow.job_in_flight_max_bytes = 50");
        let second = other.take(35).unwrap();
        refused(other.take(10), "75 bytes of flow.in_flight_max_bytes = 80");
        let third = process.take(22).unwrap();
        refused(one.take(5), "97 bytes of memory.budget_bytes = 100");
        assert!(matches!(one.take(51), Err(NoMemory::Never(reason)) if reason.contains("51 bytes exceeds")));
        drop((first, third));
        assert_eq!((one.used_bytes(), other.used_bytes(), process.used_bytes()), (0, 35, 35));
        drop(second);
    }
}
