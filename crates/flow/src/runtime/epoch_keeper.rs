//! The commit of an epoch, and the state from which a run goes on.
//!
//! The job's writer appends the changes of state to the job's own topic and the records of sinks to theirs, and commits them
//! with the positions of sources and the record of the epoch. A later run of the job is a later writer of the name, so that
//! nothing of an earlier one takes effect any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{
    AckLevel, AtomicAppend, Cleanup, Done, Error as LogError, Log, PositionCommit, TopicConfig, Writer, Writers, reply,
};
use millstream_types::{PartitionId, Record, TenantId, TopicId, TopicName, TopicPartition};
use sha2::{Digest as _, Sha256};

use super::epoch_part::EpochPart;
use crate::state::{EpochRecord, StateChanges, digest_of};

/// Bytes of one append of changes, and the record that goes beyond.
const APPEND_MAX_BYTES: usize = 256 << 10;
/// Appends of one turn.
const APPENDS_PER_TURN: usize = 8;

/// Pause before an append that the log had no room for is tried again, and the number of tries.
const RETRY: Duration = Duration::from_millis(50);
const TRIES: u32 = 100;

pub(super) struct EpochKeeper {
    log: Arc<dyn Log>,
    writer: Arc<dyn Writer>,
    topic: TopicPartition,
    topic_id: TopicId,
}

/// The commit of an epoch, as far as it has come.
pub(super) struct Commit {
    pub(super) record: EpochRecord,
    parts: Arc<[EpochPart]>,
    positions: Vec<PositionCommit>,
    /// The part that is next, and what is next in it.
    part: usize,
    change: usize,
    sink: usize,
    append: usize,
}

/// The result of an attempt to go on with a commit.
pub(super) enum CommitStep {
    /// The log has it; the answer comes later.
    Accepted,
    /// There is more to append, in a later turn.
    Unfinished(Commit),
    /// Not now, for this reason.
    NotYet(Commit, String),
    Failed(String),
}

impl Commit {
    pub(super) fn new(record: EpochRecord, mut parts: Vec<EpochPart>) -> Self {
        let positions = parts.iter_mut().flat_map(|part| std::mem::take(&mut part.positions)).collect();
        Self { record, parts: parts.into(), positions, part: 0, change: 0, sink: 0, append: 0 }
    }

    /// Bytes of state that have changed.
    pub(super) fn size_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.changes.size_bytes() as u64).sum()
    }
}

/// The topic with the state of a job, which is removed once the job has completed or is no longer listed.
pub(crate) fn state_topic(tenant: &TenantId, job_id: &str) -> TopicName {
    let digest = Sha256::digest(format!("{tenant}\0{job_id}"));
    let name: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    TopicName::job_state(&name)
}

/// The text beside a position that an epoch has committed.
pub(super) fn position_text(state_topic: TopicId, epoch: u64) -> String {
    format!("{state_topic}@{epoch}")
}

/// The last epoch of which positions in these groups are; 0 for none. The state is in the topic of this id.
pub(super) fn epoch_of_positions(log: &dyn Log, groups: &[String], state_topic: TopicId) -> Result<u64, LogError> {
    let prefix = format!("{state_topic}@");
    let mut last = 0;
    for group in groups {
        let positions = log.positions(group)?;
        let epochs = positions.iter().filter_map(|at| at.metadata.strip_prefix(&prefix)?.parse().ok());
        last = epochs.fold(last, u64::max);
    }
    Ok(last)
}

/// The name of the writer of a job.
pub(super) fn writer_name(tenant: &TenantId, job_id: &str) -> String {
    format!("job/{tenant}/{job_id}")
}

impl EpochKeeper {
    /// Takes over the job: the next writer of its name, and its topic, which is made if it is missing. Blocks on the disk.
    ///
    /// # Errors
    /// The topic cannot be made, or the writer cannot begin.
    pub(super) fn open(log: &Arc<dyn Log>, tenant: &TenantId, job_id: &str) -> Result<Self, LogError> {
        let name = state_topic(tenant, job_id);
        let writer = log.writer(&writer_name(tenant, job_id))?;
        let topic = match log.topic(&name) {
            Some(topic) => topic,
            None => {
                let config = TopicConfig {
                    partitions: 1,
                    cleanup: Cleanup::Compact,
                    retention: None,
                    writers: Writers::OwnersOnly,
                    ..TopicConfig::default()
                };
                log.create_topic(&name, &config)?
            }
        };
        let (topic_id, topic) = (topic.id, TopicPartition { topic: name, partition: PartitionId(0) });
        Ok(Self { log: Arc::clone(log), writer, topic, topic_id })
    }

    /// The place of the job's state.
    pub(super) fn topic(&self) -> &TopicPartition {
        &self.topic
    }

    /// Commits the state of an earlier job as the first epoch: its values by node and key, and the positions of sources. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// Nothing is committed.
    pub(super) fn take_over<'n>(
        &self,
        first: &EpochRecord,
        values: impl Iterator<Item = (&'n str, Box<[u8]>, Box<[u8]>)>,
        positions: Vec<PositionCommit>,
    ) -> Result<(), LogError> {
        let append = |changes: &StateChanges| {
            let records: Vec<Record<'_>> = (0..changes.len())
                .map(|index| changes.record(index))
                .map(|(key, value)| self.record(key, value, first.at_ms))
                .collect();
            patient(&mut || self.writer.append(&self.topic, &records))
        };
        let mut changes = StateChanges::default();
        let mut digests: BTreeMap<String, u64> = BTreeMap::new();
        for (node, key, value) in values {
            changes.add(node, &key, Some(&value));
            let digest = digests.entry(node.to_owned()).or_default();
            *digest = digest.wrapping_add(digest_of(&key, &value));
            if changes.size_bytes() >= APPEND_MAX_BYTES {
                append(&changes)?;
                changes = StateChanges::default();
            }
        }
        if changes.len() > 0 {
            append(&changes)?;
        }
        self.commit_alone(&EpochRecord { digests, ..first.clone() }, positions)
    }

    /// Commits an epoch whose values have been appended. Blocks on the disk.
    fn commit_alone(&self, record: &EpochRecord, positions: Vec<PositionCommit>) -> Result<(), LogError> {
        let epoch = record.encode();
        let records = vec![(self.topic.clone(), vec![self.record(EpochRecord::KEY, Some(&epoch), record.at_ms)])];
        let append = AtomicAppend { records, positions: self.of_epoch(&positions, record.epoch) };
        patient(&mut || {
            let (done, stored) = reply();
            self.writer.commit(&append, AckLevel::Synced, done)?;
            stored.wait().map(drop)
        })
    }

    /// Appends what is left of a commit, as much as a turn may, and commits it. `stored` gets the outcome once the log has accepted it.
    pub(super) fn go_on(
        &self,
        mut commit: Commit,
        stored: impl FnOnce(Result<(), String>) + Send + 'static,
    ) -> CommitStep {
        let committed = match self.append_parts(&mut commit) {
            Ok(true) => self.commit(&mut commit, stored),
            Ok(false) => return CommitStep::Unfinished(commit),
            Err(error) => Err(error),
        };
        match committed {
            Ok(()) => CommitStep::Accepted,
            Err(error) if error.is_temporary() => CommitStep::NotYet(commit, error.to_string()),
            Err(error) => CommitStep::Failed(format!("epoch {} is not committed: {error}", commit.record.epoch)),
        }
    }

    /// Appends the next changes and records; `true` once there are no more.
    fn append_parts(&self, commit: &mut Commit) -> Result<bool, LogError> {
        let mut appends = 0;
        while let Some(part) = commit.parts.get(commit.part) {
            while commit.change < part.changes.len() {
                if appends >= APPENDS_PER_TURN {
                    return Ok(false);
                }
                appends += 1;
                let (mut records, mut size_bytes) = (Vec::new(), 0);
                for index in commit.change..part.changes.len() {
                    let (key, value) = part.changes.record(index);
                    size_bytes += key.len() + value.map_or(0, <[u8]>::len);
                    records.push(self.record(key, value, commit.record.at_ms));
                    if size_bytes >= APPEND_MAX_BYTES {
                        break;
                    }
                }
                self.writer.append(&self.topic, &records)?;
                commit.change += records.len();
            }
            while let Some(prepared) = part.prepared.get(commit.sink) {
                while commit.append < prepared.appends() {
                    if appends >= APPENDS_PER_TURN {
                        return Ok(false);
                    }
                    appends += 1;
                    prepared.append(commit.append, &*self.writer)?;
                    commit.append += 1;
                }
                (commit.sink, commit.append) = (commit.sink + 1, 0);
            }
            (commit.part, commit.change, commit.sink) = (commit.part + 1, 0, 0);
        }
        Ok(true)
    }

    fn record<'a>(&self, key: &'a [u8], value: Option<&'a [u8]>, timestamp_ms: i64) -> Record<'a> {
        Record { timestamp_ms, key: Some(key), value, headers: &[] }
    }

    /// Positions with the number of the epoch that commits them.
    fn of_epoch(&self, positions: &[PositionCommit], epoch: u64) -> Vec<PositionCommit> {
        let metadata = position_text(self.topic_id, epoch);
        positions.iter().map(|at| PositionCommit { metadata: metadata.clone(), ..at.clone() }).collect()
    }

    fn commit(
        &self,
        commit: &mut Commit,
        stored: impl FnOnce(Result<(), String>) + Send + 'static,
    ) -> Result<(), LogError> {
        // The positions in topics that were deleted since are gone with them.
        let exists = |at: &PositionCommit| {
            self.log.topic(&at.partition.topic).is_some_and(|topic| topic.id == at.position.topic)
        };
        commit.positions.retain(exists);
        let epoch = commit.record.encode();
        let record = self.record(EpochRecord::KEY, Some(&epoch), commit.record.at_ms);
        let positions = self.of_epoch(&commit.positions, commit.record.epoch);
        let append = AtomicAppend { records: vec![(self.topic.clone(), vec![record])], positions };
        let (parts, number) = (Arc::clone(&commit.parts), commit.record.epoch);
        let done = Done::call(move |outcome: Result<_, LogError>| {
            // Sinks keep their records until now.
            drop(parts);
            stored(outcome.map(drop).map_err(|error| format!("epoch {number} is not committed: {error}")));
        });
        self.writer.commit(&append, AckLevel::Synced, done)
    }
}

/// Calls the log again while it has no room, for a while.
pub(super) fn patient(call: &mut dyn FnMut() -> Result<(), LogError>) -> Result<(), LogError> {
    for _ in 1..TRIES {
        match call() {
            Err(error) if error.is_temporary() => std::thread::sleep(RETRY),
            result => return result,
        }
    }
    call()
}
