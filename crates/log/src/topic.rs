//! A topic and its configuration.

use std::time::Duration;

use millstream_types::{Compression, TopicId, TopicName};

use crate::{AckLevel, Error};

/// Where a topic's records live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storage {
    /// In the data directory.
    Disk,
    /// In a bounded ring per partition; gone with the process. For live data that nobody reads again.
    Memory {
        /// Bytes kept per partition; older batches make room.
        max_bytes: usize,
    },
}

/// What happens to old records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cleanup {
    /// Whole segments go by age and size.
    Delete,
    /// The last record of each key stays: a state topic.
    Compact,
    /// Both: the last record of each key stays, until its segment goes by age or size. A state that forgets, as windows do.
    CompactDelete,
}

impl Cleanup {
    /// Whether of each key only the last record is promised.
    pub fn compacts(self) -> bool {
        self != Self::Delete
    }

    /// Whether segments go by age and size.
    pub fn expires(self) -> bool {
        self != Self::Compact
    }

    /// Its name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Compact => "compact",
            Self::CompactDelete => "compact,delete",
        }
    }

    /// The one whose name is `text`: `delete`, `compact`, or both with a comma between them.
    pub fn from_name(text: &str) -> Option<Self> {
        match text.split(',').map(str::trim).collect::<Vec<_>>()[..] {
            ["delete"] => Some(Self::Delete),
            ["compact"] => Some(Self::Compact),
            ["compact", "delete"] | ["delete", "compact"] => Some(Self::CompactDelete),
            _ => None,
        }
    }
}

/// Who may append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Writers {
    /// Every authorised client.
    Anyone,
    /// Only the planes that own the topic: outside producers are refused.
    OwnersOnly,
}

/// How a topic keeps its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// Number of partitions, 1 to 10,000. Default 4.
    pub partitions: u32,
    /// Where records live. Default disk.
    pub storage: Storage,
    /// The topic's level: the default of its appends, and what its stable offset means. Default `Synced`.
    pub level: AckLevel,
    /// What happens to old records. Default delete.
    pub cleanup: Cleanup,
    /// Who may append. Default anyone.
    pub writers: Writers,
    /// Records older than this, by append time, may go. `None` keeps them. Default seven days.
    pub retention: Option<Duration>,
    /// Oldest segments go while a partition holds more than this. `None` sets no bound. Default none.
    pub retention_bytes: Option<u64>,
    /// Size at which a segment is closed and the next begun. Default 64 MiB.
    pub segment_bytes: u64,
    /// Age at which a segment is closed and the next begun. Default one day.
    pub segment_age: Duration,
    /// How the appender compresses the batches that it seals. Default none.
    pub compression: Compression,
    /// Largest record (key, value and headers). Default 1 MiB.
    pub record_max_bytes: usize,
    /// How many bytes a registered reader may hold back beyond retention. Default 1 GiB.
    pub hold_max_bytes: u64,
    /// How long a tombstone stays in a compacted topic after it was appended and first compacted. Default one day.
    pub delete_retention: Duration,
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
        }
    }
}

/// Most partitions of a topic.
pub const PARTITIONS_MAX: u32 = 10_000;
/// Smallest segment.
const SEGMENT_MIN_BYTES: u64 = 1 << 10;
/// Smallest ring of a memory topic.
const RING_MIN_BYTES: usize = 1 << 10;

impl TopicConfig {
    /// Checks each setting by itself.
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
        Ok(())
    }

    /// The same with `total` partitions.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if the topic may not have them.
    pub(crate) fn grown(&self, topic: &TopicName, total: u32) -> Result<Self, Error> {
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

    /// Bytes that a topic in memory may take; 0 for one on disk.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self.storage {
            Storage::Disk => 0,
            Storage::Memory { max_bytes } => max_bytes.saturating_mul(self.partitions as usize),
        }
    }

    /// The first setting in which the two differ.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
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
        ];
        settings.iter().find(|(_, same)| !same).map(|(setting, _)| *setting)
    }

    /// The first setting that differs and cannot be altered, with its value here.
    pub(crate) fn fixed_difference(&self, current: &Self) -> Option<(&'static str, String)> {
        if self.partitions != current.partitions {
            return Some(("partitions", self.partitions.to_string()));
        }
        if self.storage != current.storage {
            let storage = match self.storage {
                Storage::Disk => "disk".to_owned(),
                Storage::Memory { max_bytes } => format!("memory ({max_bytes} bytes a partition)"),
            };
            return Some(("storage", storage));
        }
        (self.cleanup != current.cleanup).then(|| ("cleanup", self.cleanup.as_str().to_owned()))
    }
}

/// A topic that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Unique for ever: a topic created again under an old name gets a new one.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// The configuration in force.
    pub config: TopicConfig,
}
