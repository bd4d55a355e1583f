//! CPU time of the generator's own threads.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
