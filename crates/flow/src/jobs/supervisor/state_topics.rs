//! The topics with the state of jobs: removed once no listed job keeps or needs them.

use std::collections::HashSet;

use millstream_types::TopicName;

use super::super::record::{AllRecords, JobKey, JobState};
use super::Supervisor;

impl Supervisor {
    /// Removes the state of jobs that no listed job keeps: they completed or were forgotten while the process ended.
    pub(super) fn remove_forgotten_state(&self, jobs: &AllRecords) {
        let keeping = jobs.values().filter(|record| record.state != JobState::Completed).map(|record| record.key());
        let needed = jobs.values().filter_map(|record| record.earlier());
        let kept: HashSet<TopicName> = keeping.chain(needed).filter_map(|key| key.state_topic()).collect();
        let topics = self.services.log.topics();
        let of_jobs = topics.iter().map(|topic| &topic.name).filter(|name| name.is_job_state());
        of_jobs.filter(|name| !kept.contains(*name)).for_each(|name| self.remove_topic(name));
    }

    /// Removes the state of a job, if it has any.
    pub(super) fn remove_state(&self, key: &JobKey) {
        if let Some(topic) = key.state_topic() {
            self.remove_topic(&topic);
        }
    }

    fn remove_topic(&self, topic: &TopicName) {
        let log = &self.services.log;
        if log.topic(topic).is_some()
            && let Err(error) = log.delete_topic(topic)
        {
            tracing::warn!(%topic, %error, "the state of a job is not removed before the next start");
        }
    }
}
