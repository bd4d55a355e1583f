//! A topic and its configuration.

use std::time::Duration;

use millstream_types::{Compression, Offset, TopicId, TopicName};

use crate::{AckLevel, Error};

/// The place of a topic's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storage {
    /// Segments in the data directory.
    Disk,
    /// A bounded ring per partition, lost when the process ends. For live data that nobody reads again.
    Memory {
        /// Bytes kept per partition; the oldest batches are dropped.
        max_bytes: usize,
    },
}

/// The treatment of old records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cleanup {
    /// Removes whole segments by age and size.
    Delete,
    /// Keeps the last record of each key: a state topic.
    Compact,
    /// Keeps the last record of each key until its segment is removed by age or size. For a state
    /// that expires, as windows do.
    CompactDelete,
}

impl Cleanup {
    /// `true` if only the last record of each key is guaranteed.
    pub fn compacts(self) -> bool {
        self != Self::Delete
    }

    /// `true` if segments are removed by age and size.
    pub fn expires(self) -> bool {
        self != Self::Compact
    }

    /// The name of the value in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Compact => "compact",
            Self::CompactDelete => "compact,delete",
        }
    }

    /// Parses a setting: `delete`, `compact`, or both with a comma between them.
    pub fn from_name(text: &str) -> Option<Self> {
        match text.split(',').map(str::trim).collect::<Vec<_>>()[..] {
            ["delete"] => Some(Self::Delete),
            ["compact"] => Some(Self::Compact),
            ["compact", "delete"] | ["delete", "compact"] => Some(Self::CompactDelete),
            _ => None,
        }
    }
}

/// The clients that may append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Writers {
    /// Every client that is authorised.
    Anyone,
    /// Only the planes that own the topic; outside producers are refused.
    OwnersOnly,
}

/// The configuration of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// Number of partitions, 1 to 10,000. Default 4.
    pub partitions: u32,
    /// Place of the records. Default disk.
    pub storage: Storage,
    /// The default ack level of appends, and the level that makes records stable. Default `Synced`.
    pub level: AckLevel,
    /// Treatment of old records. Default delete.
    pub cleanup: Cleanup,
    /// Clients that may append. Default anyone.
    pub writers: Writers,
    /// Append age at which records may be removed. `None` keeps them. Default seven days.
    pub retention: Option<Duration>,
    /// Partition size above which the oldest segments are removed. `None` sets no bound. Default none.
    pub retention_bytes: Option<u64>,
    /// Size at which a segment is closed and the next one begins. Default 64 MiB.
    pub segment_bytes: u64,
    /// Age at which a segment is closed and the next one begins. Default one day.
    pub segment_age: Duration,
    /// Compression of the batches that the log seals. Default none.
    pub compression: Compression,
    /// Largest record (key, value and headers). Default 1 MiB.
    pub record_max_bytes: usize,
    /// Bytes beyond retention that a registered reader may hold. Default 1 GiB.
    pub hold_max_bytes: u64,
    /// Time that a tombstone stays in a compacted topic after its append and first compaction. Default one day.
    pub delete_retention: Duration,
    /// Age that a record must reach before compaction may remove it. Default none.
    pub compaction_lag_min: Duration,
    /// Age at which a record is compacted at the latest, even if little is gained. `None` leaves
    /// that to `log.compaction_dirty_percent`. Default none.
    pub compaction_lag_max: Option<Duration>,
    /// Share of live bytes, in percent, below which compaction rewrites a segment. Superseded records of other segments
    /// stay, and each tombstone stays until no older segment can hold a record of its key. For keys with values of
    /// very different sizes or lifetimes, read one by one: the log divides what is appended into batches of 4 KiB.
    /// `None` rewrites every segment that loses a record. Default none.
    pub compaction_live_percent: Option<u8>,
    /// `true` gives records the time of their append instead of the producer's. Default false.
    pub append_time: bool,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            partitions: 4,
            storage: Storage::Disk,
            level: AckLevel::Synced,
            cleanup: Cleanup::Delete,
            writers: Writers::Anyone,
            retention: Some(Duration::from_secs(7 * 24 * 3600)),
            retention_bytes: None,
            segment_bytes: 64 << 20,
            segment_age: Duration::from_secs(24 * 3600),
            compression: Compression::None,
            record_max_bytes: 1 << 20,
            hold_max_bytes: 1 << 30,
            delete_retention: Duration::from_secs(24 * 3600),
            compaction_lag_min: Duration::ZERO,
            compaction_lag_max: None,
            compaction_live_percent: None,
            append_time: false,
        }
    }
}

/// Most partitions of one topic.
pub const PARTITIONS_MAX: u32 = 10_000;
/// Smallest size of a segment.
const SEGMENT_MIN_BYTES: u64 = 1 << 10;
/// Smallest ring of a memory topic.
const RING_MIN_BYTES: usize = 1 << 10;

impl TopicConfig {
    /// `true` if the offsets of single records are versions that owners hand out. Then no offset is ever given again, not even
    /// by a later topic of the name, or after a restore: a new topic, and a start after a crash, begin at the offset of
    /// their time.
    pub fn has_versions(&self) -> bool {
        self.writers == Writers::OwnersOnly && self.compaction_live_percent.is_some()
    }

    /// The first offset of the partitions of a topic that is created at `now_ms`, milliseconds since 1970-01-01T00:00:00Z.
    /// It is above all offsets that a former topic of the name handed out, where offsets are versions.
    pub fn first_offset(&self, now_ms: i64) -> Offset {
        Offset(if self.has_versions() { offset_of_time(now_ms) } else { 0 })
    }

    /// Checks each setting against its rule.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] names the setting, its value and the rule.
    pub fn validate(&self, topic: &TopicName) -> Result<(), Error> {
        let refuse = |setting, value, rule| Err(Error::InvalidConfig { topic: topic.clone(), setting, value, rule });
        if self.partitions == 0 || self.partitions > PARTITIONS_MAX {
            return refuse("partitions", self.partitions.to_string(), "use 1 to 10000");
        }
        if let Storage::Memory { max_bytes } = self.storage
            && max_bytes < RING_MIN_BYTES
        {
            return refuse("storage.memory.max_bytes", max_bytes.to_string(), "use at least 1024");
        }
        if self.segment_bytes < SEGMENT_MIN_BYTES {
            return refuse("segment_bytes", self.segment_bytes.to_string(), "use at least 1024");
        }
        if self.segment_age.is_zero() {
            return refuse("segment_age", "0".to_owned(), "use at least a millisecond");
        }
        if self.record_max_bytes == 0 {
            return refuse("record_max_bytes", "0".to_owned(), "use at least 1");
        }
        if let Some(lag) = self.compaction_lag_max
            && (lag.is_zero() || lag < self.compaction_lag_min)
        {
            let rule = "use at least a millisecond, and at least compaction_lag_min (min.compaction.lag.ms)";
            return refuse("compaction_lag_max", format!("{} ms", lag.as_millis()), rule);
        }
        if let Some(percent) = self.compaction_live_percent {
            if !(1..=100).contains(&percent) {
                return refuse("compaction_live_percent", percent.to_string(), "use 1 to 100, or none");
            }
            if self.compaction_lag_max.is_some() {
                let rule =
                    "it leaves superseded records in place; leave compaction_lag_max (max.compaction.lag.ms) out";
                return refuse("compaction_live_percent", percent.to_string(), rule);
            }
        }
        Ok(())
    }

    /// This configuration with `total` partitions, if the topic may have them.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if `total` is too small or too large, or if the topic keeps a state.
    pub fn grown(&self, topic: &TopicName, total: u32) -> Result<Self, Error> {
        let refuse = |rule| {
            let value = total.to_string();
            Err(Error::InvalidConfig { topic: topic.clone(), setting: "partitions", value, rule })
        };
        if self.cleanup.compacts() || self.writers == Writers::OwnersOnly {
            return refuse(
                "a state topic keeps its partitions, in which its keys have their place; create another topic",
            );
        }
        if total < self.partitions {
            return refuse("partitions can be added and not removed; create another topic");
        }
        let grown = Self { partitions: total, ..self.clone() };
        grown.validate(topic).map(|()| grown)
    }

    /// Most bytes of a memory topic; 0 for a topic on disk.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self.storage {
            Storage::Disk => 0,
            Storage::Memory { max_bytes } => max_bytes.saturating_mul(self.partitions as usize),
        }
    }

    /// The first setting that differs, if any does.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let settings = [
            ("partitions", self.partitions == other.partitions),
            ("storage", self.storage == other.storage),
            ("level", self.level == other.level),
            ("cleanup", self.cleanup == other.cleanup),
            ("writers", self.writers == other.writers),
            ("retention", self.retention == other.retention),
            ("retention_bytes", self.retention_bytes == other.retention_bytes),
            ("segment_bytes", self.segment_bytes == other.segment_bytes),
            ("segment_age", self.segment_age == other.segment_age),
            ("compression", self.compression == other.compression),
            ("record_max_bytes", self.record_max_bytes == other.record_max_bytes),
            ("hold_max_bytes", self.hold_max_bytes == other.hold_max_bytes),
            ("delete_retention", self.delete_retention == other.delete_retention),
            ("compaction_lag_min", self.compaction_lag_min == other.compaction_lag_min),
            ("compaction_lag_max", self.compaction_lag_max == other.compaction_lag_max),
            ("compaction_live_percent", self.compaction_live_percent == other.compaction_live_percent),
            ("append_time", self.append_time == other.append_time),
        ];
        settings.iter().find(|(_, same)| !same).map(|(setting, _)| *setting)
    }

    /// Checks that a topic with the configuration `current` may be altered to this one.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] names a setting that cannot be altered.
    pub fn check_change(&self, topic: &TopicName, current: &Self) -> Result<(), Error> {
        let refuse = |setting, value, rule| Err(Error::InvalidConfig { topic: topic.clone(), setting, value, rule });
        if self.partitions != current.partitions {
            let rule = "partitions are only added; or create another topic";
            return refuse("partitions", self.partitions.to_string(), rule);
        }
        if self.storage != current.storage {
            let storage = match self.storage {
                Storage::Disk => "disk".to_owned(),
                Storage::Memory { max_bytes } => format!("memory ({max_bytes} bytes a partition)"),
            };
            return refuse("storage", storage, "it cannot be altered; create another topic");
        }
        Ok(())
    }
}

/// Offsets for each millisecond: more than a partition can hand out.
const OFFSETS_PER_MS: u64 = 1 << 10;

/// The offset at which a partition with versions begins at a time. It is above all that were handed out before.
pub(crate) fn offset_of_time(now_ms: i64) -> u64 {
    u64::try_from(now_ms).unwrap_or(0) * OFFSETS_PER_MS
}

/// A topic that exists in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Unique for ever: a topic that is recreated under an old name gets a new id.
    pub id: TopicId,
    /// Unique name of the topic.
    pub name: TopicName,
    /// The configuration that is in force.
    pub config: TopicConfig,
}
