//! The configuration of the log.

use std::path::PathBuf;

use millstream_types::TopicName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, KafkaClusterConfig, LogEngine};

/// Space that a journal file needs beside the largest append: the headers of file, frame and batches.
const JOURNAL_FILE_SPARE_BYTES: u64 = 16 << 10;

/// The engine of the log, and its limits and intervals. Most are those of the embedded engine; Kafka has its own for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// The engine's directory, which one process owns at a time. Not a setting: it is
    /// derived from the data directory.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The topics that a start may set aside if they are damaged. Not
    /// a setting: the planes that own them name them. Default none.
    #[serde(skip)]
    pub derived: Vec<DerivedTopic>,
    /// First words of the users' topics `<word>.<tenant>` that are [`crate::Writers::OwnersOnly`], however they are
    /// created. Not a setting: `server` names them. Default none.
    #[serde(skip)]
    pub guarded_words: Vec<String>,
    /// The engine that keeps the log: `embedded`, on the disk of this machine, or `kafka`. Default embedded.
    pub engine: LogEngine,
    /// The Kafka cluster that keeps the log, if `log.engine` says so.
    pub kafka: KafkaClusterConfig,
    /// Size of one journal file, in bytes; an append must fit into one. Default 10 MiB.
    pub journal_file_bytes: u64,
    /// Size of all journal files together, in bytes. It bounds the lag of the segments behind acknowledged records,
    /// the memory for these records, and the work of a start after a crash. At least three files. Default 40 MiB.
    pub journal_max_bytes: u64,
    /// Free bytes on the disk below which appends are refused until there is room again. Default 256 MiB.
    pub disk_free_min_bytes: u64,
    /// Bytes accepted and not yet written, over all partitions; further appends are refused
    /// as overloaded. Default 64 MiB.
    pub pending_max_bytes: usize,
    /// Share of `log.pending_max_bytes` that appends at level `memory` (telemetry at QoS 0) may fill, in percent;
    /// the remainder is for appends whose sender waits for an acknowledgement. One such append of
    /// `log.append_max_bytes` always fits. Default 50.
    pub pending_unwaited_percent: u8,
    /// Largest append, in bytes: records, their keys and headers. Default 8 MiB.
    pub append_max_bytes: usize,
    /// Size at which a batch is sealed and the next begun, in bytes. Default 1 MiB.
    pub batch_max_bytes: usize,
    /// Bytes of batches in memory up to which batches stay after they have reached their segment, for readers near
    /// the tail. Default 16 MiB.
    pub cache_bytes: usize,
    /// Bytes that all memory topics may take together, at `max_bytes` for each partition; another topic
    /// is refused. Default 256 MiB.
    pub memory_topics_max_bytes: usize,
    /// Partitions that the topics of one tenant may have together, those of devices, entities and buckets aside; another
    /// topic or partition is refused. Default 10,000.
    pub partitions_per_tenant_max: usize,
    /// Time that records whose sender waits for no sync may stay unsynced, in milliseconds; where there are many,
    /// they are durable once their segments are written. Default 50.
    pub sync_interval_ms: u64,
    /// Longest time that records are in the journal only, in milliseconds; also the
    /// interval of retention. Default 2,000.
    pub flush_interval_ms: u64,
    /// Idempotent producers that each partition remembers; beyond that the one unused for longest is forgotten, and
    /// records that it sends again may be stored twice. Default 1,000.
    pub producers_max: usize,
    /// Aborted transactions that each partition remembers until retention or compaction has removed their records.
    /// Beyond it no transaction can begin there. Default 10,000.
    pub aborted_max: usize,
    /// Time after its last append for which an idempotent producer is remembered, in milliseconds. Default one day.
    pub producer_expiry_ms: u64,
    /// Memory for the keys of one compaction, in bytes (about 46 for each key). Further keys wait for the
    /// next one. Default 32 MiB.
    pub compaction_map_bytes: usize,
    /// Share of a partition's closed segments, in percent of their bytes, that must be uncompacted for a
    /// compaction to start. Default 50.
    pub compaction_dirty_percent: u64,
    /// Bytes per second that compaction reads and writes at most, and as much again for each GiB that is new in the
    /// partition. Default 64 MiB.
    pub compaction_bytes_per_second: u64,
}

/// A topic whose owner builds it anew if it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedTopic {
    /// The name of the derived topic.
    pub name: TopicName,
    /// The topic that it is a copy of; it is set aside only while that one is intact. `None` if it is rebuilt from
    /// topics that lose old records by themselves.
    pub source: Option<TopicName>,
    /// A description of the loss, for the warning.
    pub loses: &'static str,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("data/log"),
            derived: Vec::new(),
            guarded_words: Vec::new(),
            engine: LogEngine::default(),
            kafka: KafkaClusterConfig::default(),
            journal_file_bytes: 10 << 20,
            journal_max_bytes: 40 << 20,
            disk_free_min_bytes: 256 << 20,
            pending_max_bytes: 64 << 20,
            pending_unwaited_percent: 50,
            append_max_bytes: 8 << 20,
            batch_max_bytes: 1 << 20,
            cache_bytes: 16 << 20,
            memory_topics_max_bytes: 256 << 20,
            partitions_per_tenant_max: 10_000,
            sync_interval_ms: 50,
            flush_interval_ms: 2_000,
            producers_max: 1_000,
            aborted_max: 10_000,
            producer_expiry_ms: 24 * 60 * 60 * 1_000,
            compaction_map_bytes: 32 << 20,
            compaction_dirty_percent: 50,
            compaction_bytes_per_second: 64 << 20,
        }
    }
}

impl LogConfig {
    /// Most pending bytes of appends that nobody waits for.
    pub(crate) fn pending_unwaited_max_bytes(&self) -> usize {
        let share = self.pending_max_bytes as u128 * u128::from(self.pending_unwaited_percent) / 100;
        (share as usize).max(self.append_max_bytes)
    }

    /// Checks each limit, and that the limits fit together.
    ///
    /// # Errors
    /// [`Error::InvalidLimit`] names the limit, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        let append_max_bytes = self.append_max_bytes as u64;
        let rules = [
            (
                "log.append_max_bytes",
                append_max_bytes,
                append_max_bytes > 0 && append_max_bytes + JOURNAL_FILE_SPARE_BYTES <= self.journal_file_bytes,
                "an append must fit into one journal file: at most log.journal_file_bytes less 16 KiB, and not 0",
            ),
            (
                "log.journal_file_bytes",
                self.journal_file_bytes,
                self.journal_file_bytes <= 1 << 30,
                "a journal file has at most 1 GiB",
            ),
            (
                "log.journal_max_bytes",
                self.journal_max_bytes,
                self.journal_max_bytes / 3 >= self.journal_file_bytes,
                "use at least three times log.journal_file_bytes",
            ),
            (
                "log.batch_max_bytes",
                self.batch_max_bytes as u64,
                self.batch_max_bytes >= 1024 && self.batch_max_bytes <= self.append_max_bytes,
                "use 1024 up to log.append_max_bytes",
            ),
            (
                "log.pending_max_bytes",
                self.pending_max_bytes as u64,
                self.pending_max_bytes >= self.append_max_bytes,
                "use at least log.append_max_bytes",
            ),
            (
                "log.pending_unwaited_percent",
                u64::from(self.pending_unwaited_percent),
                (1..=100).contains(&self.pending_unwaited_percent),
                "use 1 to 100",
            ),
            (
                "log.sync_interval_ms",
                self.sync_interval_ms,
                (1..=3_600_000).contains(&self.sync_interval_ms),
                "use 1 to 3600000",
            ),
            (
                "log.flush_interval_ms",
                self.flush_interval_ms,
                (1..=3_600_000).contains(&self.flush_interval_ms),
                "use 1 to 3600000",
            ),
            (
                "log.producers_max",
                self.producers_max as u64,
                (1..=100_000).contains(&self.producers_max),
                "use 1 to 100000",
            ),
            (
                "log.aborted_max",
                self.aborted_max as u64,
                (1..=1_000_000).contains(&self.aborted_max),
                "use 1 to 1000000",
            ),
            (
                "log.producer_expiry_ms",
                self.producer_expiry_ms,
                self.producer_expiry_ms >= 1_000,
                "use at least 1000: a producer that waits for an answer must not be forgotten",
            ),
            (
                "log.compaction_map_bytes",
                self.compaction_map_bytes as u64,
                self.compaction_map_bytes >= 1024,
                "use at least 1024",
            ),
            (
                "log.compaction_dirty_percent",
                self.compaction_dirty_percent,
                (1..=100).contains(&self.compaction_dirty_percent),
                "use 1 to 100",
            ),
            (
                "log.compaction_bytes_per_second",
                self.compaction_bytes_per_second,
                self.compaction_bytes_per_second >= 64 << 10,
                "use at least 65536",
            ),
        ];
        for (limit, value, holds, rule) in rules {
            if !holds {
                return Err(Error::InvalidLimit { limit, value, rule });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_an_invalid_limit_is_refused_with_its_rule() {
        LogConfig::default().validate().unwrap();
        type Change = fn(&mut LogConfig);
        let table: [(Change, &str); 13] = [
            (|c| c.append_max_bytes = 16 << 20, "log.append_max_bytes = 16777216"),
            (|c| c.journal_max_bytes = 24 << 20, "log.journal_max_bytes = 25165824"),
            (|c| c.batch_max_bytes = 3, "log.batch_max_bytes = 3"),
            (|c| c.pending_max_bytes = 7, "log.pending_max_bytes = 7"),
            (|c| c.pending_unwaited_percent = 101, "log.pending_unwaited_percent = 101"),
            (|c| c.sync_interval_ms = 0, "log.sync_interval_ms = 0"),
            (|c| c.flush_interval_ms = 0, "log.flush_interval_ms = 0"),
            (|c| c.producers_max = 0, "log.producers_max = 0"),
            (|c| c.aborted_max = 0, "log.aborted_max = 0"),
            (|c| c.producer_expiry_ms = 9, "log.producer_expiry_ms = 9"),
            (|c| c.compaction_map_bytes = 9, "log.compaction_map_bytes = 9"),
            (|c| c.compaction_dirty_percent = 101, "log.compaction_dirty_percent = 101"),
            (|c| c.compaction_bytes_per_second = 1, "log.compaction_bytes_per_second = 1"),
        ];
        for (change, expected) in table {
            let mut config = LogConfig::default();
            change(&mut config);
            let refusal = config.validate().unwrap_err().to_string();
            assert!(refusal.contains(expected) && refusal.contains(": "), "{refusal}");
        }
    }
}
