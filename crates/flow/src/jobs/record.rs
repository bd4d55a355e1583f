//! A job as it is stored: key `tenant`, 0, `id`; value a version byte and JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::{StateTopic, TenantId, TopicName};
use millstream_view::DecodeError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::connector::group_of;
use crate::document::topic_named;
use crate::runtime::{RunFailure, state_topic};

/// First byte of a value.
const VERSION: u8 = StateTopic::Jobs.version();

/// Tenant and id of a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct JobKey {
    pub(super) tenant: String,
    pub(super) id: String,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It runs, or is about to run again.
    Running,
    /// It was stopped; what it had read is finished.
    Stopped,
    /// All its sources have ended, and everything they gave is finished.
    Completed,
    /// Ended for good by a request.
    Killed,
    /// It ended by an error.
    Failed,
}

impl JobState {
    /// The word for the state in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Completed => "completed",
            Self::Killed => "killed",
            Self::Failed => "failed",
        }
    }
}

/// A job, whatever its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub(super) tenant: String,
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) hash: String,
    pub(super) document: Value,
    pub(super) submitted_ms: i64,
    /// The name of the caller who submitted it; `None` for jobs of versions that did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) submitted_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_ms: Option<i64>,
    pub(super) state: JobState,
    /// The reason why a running job is not started; `None` for all that may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) paused: Option<String>,
    /// When it was last resumed after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) resumed_ms: Option<i64>,
    /// The state that a stop or kill asks for; the job is not started any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ending: Option<JobState>,
    /// Restarts after errors, since the submission.
    #[serde(default)]
    pub(super) restarts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<RunFailure>,
    /// The job that it goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) resumes: Option<Resumes>,
    /// The records that sources without a log have read, by node; empty once the job has completed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) places: BTreeMap<String, u64>,
    /// The parallelism of nodes in place of that of the document.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) parallelism: NodeParallelism,
}

/// The values of `parallelism` by the name of the node.
pub(super) type NodeParallelism = BTreeMap<String, Value>;

/// The place where the log keeps how far a `stream` source has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceGroup {
    pub(super) group: String,
    pub(super) topic: TopicName,
}

/// The jobs of all tenants.
pub(super) type AllRecords = imbl::OrdMap<JobKey, Arc<JobRecord>>;

/// The job that another one goes on from. While that one runs, it waits to take its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Resumes {
    /// The id of the earlier job.
    pub(super) job: String,
    /// Its state is taken over: the job needs it no more.
    #[serde(default)]
    pub(super) is_done: bool,
}

impl JobKey {
    pub(super) fn new(tenant: &TenantId, id: &str) -> Self {
        Self { tenant: tenant.to_string(), id: id.to_owned() }
    }

    /// The topic with the job's state; it exists only if the job keeps state.
    pub(super) fn state_topic(&self) -> Option<TopicName> {
        Some(state_topic(&TenantId::new(&self.tenant).ok()?, &self.id))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.tenant.as_bytes());
        out.push(0);
        out.extend_from_slice(self.id.as_bytes());
    }

    pub(super) fn decode(key: &[u8]) -> Result<Self, DecodeError> {
        let text = std::str::from_utf8(key).ok().and_then(|text| text.split_once('\0'));
        let (tenant, id) = text.ok_or_else(|| DecodeError::new(format!("no key of a job: {key:?}")))?;
        Ok(Self { tenant: tenant.to_owned(), id: id.to_owned() })
    }
}

impl JobRecord {
    /// The job whose state it has not taken over yet.
    pub(super) fn earlier(&self) -> Option<JobKey> {
        let resumes = self.resumes.as_ref().filter(|resumes| !resumes.is_done && self.state == JobState::Running)?;
        Some(JobKey { tenant: self.tenant.clone(), id: resumes.job.clone() })
    }

    pub(super) fn key(&self) -> JobKey {
        JobKey { tenant: self.tenant.clone(), id: self.id.clone() }
    }

    /// The `stream` sources by name, with the places where their positions are kept.
    pub(super) fn source_groups(&self) -> BTreeMap<&str, SourceGroup> {
        let Ok(tenant) = TenantId::new(&self.tenant) else { return BTreeMap::new() };
        let sources = self.document["sources"].as_object().into_iter().flatten();
        let streams = sources.filter(|(_, source)| source["type"] == "stream");
        let place = |(node, source): (&'_ String, &Value)| {
            let topic = topic_named(source["config"]["topic"].as_str()?, &tenant).ok()?;
            Some(SourceGroup { group: group_of(&tenant, &self.name, node, source["config"]["group"].as_str()), topic })
        };
        streams.filter_map(|(node, source)| Some((node.as_str(), place((node, source))?))).collect()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        serde_json::to_writer(out, self).expect("writing to memory cannot fail");
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        match value.split_first() {
            Some((&VERSION, json)) => {
                serde_json::from_slice(json).map_err(|error| DecodeError::new(format!("no job: {error}")))
            }
            Some((version, _)) => Err(DecodeError::new(format!("a job of version {version}, not {VERSION}"))),
            None => Err(DecodeError::new("a job without a value")),
        }
    }
}

/// `true` for a job that waits to take the place of one that still runs.
pub(super) fn is_waiting(records: &AllRecords, record: &JobRecord) -> bool {
    let earlier = record.earlier().and_then(|earlier| records.get(&earlier));
    earlier.is_some_and(|earlier| earlier.state == JobState::Running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_version_1_are_read_and_written_byte_for_byte() {
        let stored = "\u{1}{\"tenant\":\"default\",\"id\":\"j1\",\"name\":\"copy\",\"labels\":{\"team\":\"a\"},\
            \"hash\":\"ab\",\"document\":{\"version\":1},\"submitted_ms\":5,\"ended_ms\":7,\"state\":\"failed\",\
            \"restarts\":2,\"error\":{\"node\":\"out\",\"instance\":0,\"stage\":\"write\",\"code\":\"connector\",\
            \"message\":\"no room\",\"record\":\"t/0 4\",\"at\":\"1970-01-01T00:00:00.007Z\"}}";
        let record = JobRecord::decode(stored.as_bytes()).unwrap();
        let (mut value, mut key) = (Vec::new(), Vec::new());
        record.encode(&mut value);
        record.key().encode(&mut key);
        assert_eq!(String::from_utf8(value).unwrap(), stored);
        assert_eq!(key, b"default\0j1");
        assert_eq!(JobKey::decode(&key).unwrap(), record.key());
    }

    #[test]
    fn a_running_job_keeps_the_end_that_it_is_asked_for() {
        let stored = "\u{1}{\"tenant\":\"default\",\"id\":\"j1\",\"name\":\"copy\",\"hash\":\"ab\",\
            \"document\":{\"version\":1},\"submitted_ms\":5,\"state\":\"running\",\"ending\":\"killed\",\"restarts\":0}";
        let record = JobRecord::decode(stored.as_bytes()).unwrap();
        assert_eq!(record.ending, Some(JobState::Killed));
        let mut value = Vec::new();
        record.encode(&mut value);
        assert_eq!(String::from_utf8(value).unwrap(), stored);
    }

    #[test]
    fn what_is_no_job_is_refused() {
        assert!(JobRecord::decode(b"").is_err());
        assert!(JobRecord::decode(b"\x02{}").is_err());
        assert!(JobRecord::decode(b"\x01{}").is_err());
        assert!(JobKey::decode(b"no separator").is_err());
    }
}
