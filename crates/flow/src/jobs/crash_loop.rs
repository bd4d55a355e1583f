//! Jobs that ran each time the process went down soon after its start: they come back paused, and the rest comes back.

use millstream_types::ShortLives;

use super::record::JobRecord;

/// The lives of the process that may have ended because of a job.
#[derive(Debug)]
pub(super) struct CrashLoop {
    pub(super) short_lives: ShortLives,
    /// The lives that a job may have taken part in; 0 is no bound.
    pub(super) max: usize,
}

impl CrashLoop {
    /// The reason why a job must not start; `None` if it may.
    pub(super) fn pauses(&self, job: &JobRecord) -> Option<String> {
        let lives = self.short_lives.since(job.resumed_ms.unwrap_or(job.submitted_ms));
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
            let short_lives = ShortLives::new(starts_ms.clone());
            let reason = CrashLoop { short_lives, max }.pauses(&job);
            assert_eq!(reason.is_some(), is_paused, "{starts_ms:?} of {max}, {submitted_ms} {resumed_ms:?}");
        }
    }
}
