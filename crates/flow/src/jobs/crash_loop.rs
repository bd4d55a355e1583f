//! Jobs that ran each time the process went down soon after its start: they come back paused, and the rest comes back.
//!
//! A kill from outside looks the same as one for want of memory, so what ended the process is not known: every job that
//! ran each time may have done it.

use super::record::JobRecord;

/// The last lives of this process, if each ended soon after its start and not in order.
#[derive(Debug)]
pub(super) struct CrashLoop {
    /// Their starts, oldest first, milliseconds since 1970-01-01T00:00:00Z.
    pub(super) starts_ms: Vec<i64>,
    /// The lives that a job may have taken part in; 0 is no bound.
    pub(super) max: usize,
}

impl CrashLoop {
    /// The reason why a job must not start; `None` if it may.
    pub(super) fn pauses(&self, job: &JobRecord) -> Option<String> {
        let since_ms = job.resumed_ms.unwrap_or(job.submitted_ms);
        // A life ends before the next one starts, and the last one before now.
        let ends_ms = self.starts_ms.iter().skip(1).copied().chain([i64::MAX]).take(self.starts_ms.len());
        let lives = ends_ms.filter(|end_ms| since_ms < *end_ms).count();
        let is_paused = self.max > 0 && lives >= self.max;
        is_paused.then(|| {
            format!(
                "the server went down {lives} times in a row while this job ran, each time within a minute of its start; \
                 resume it once the cause is mended (flow.crashes_max = {})",
                self.max
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_ran_in_each_of_the_last_lives_is_paused_and_a_newer_one_is_not() {
        let stored = "\u{1}{\"tenant\":\"t\",\"id\":\"j\",\"name\":\"n\",\"hash\":\"h\",\"document\":{},\
            \"submitted_ms\":5,\"state\":\"running\"}";
        let job = JobRecord::decode(stored.as_bytes()).unwrap();
        for (starts_ms, max, submitted_ms, resumed_ms, is_paused) in [
            (vec![10, 20, 30], 3, 5, None, true),
            (vec![10, 20, 30], 3, 15, None, true),
            // It was not there in the first life.
            (vec![10, 20, 30], 3, 20, None, false),
            (vec![10, 20, 30, 40], 3, 20, None, true),
            (vec![20, 30], 3, 5, None, false),
            (vec![10, 20, 30, 40], 3, 5, Some(35), false),
            (vec![10, 20, 30], 0, 5, None, false),
            (vec![], 1, 5, None, false),
        ] {
            let job = JobRecord { submitted_ms, resumed_ms, ..job.clone() };
            let reason = CrashLoop { starts_ms: starts_ms.clone(), max }.pauses(&job);
            assert_eq!(reason.is_some(), is_paused, "{starts_ms:?} of {max}, {submitted_ms} {resumed_ms:?}");
        }
    }
}
