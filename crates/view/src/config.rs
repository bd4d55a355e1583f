//! The configuration of a view.

use std::time::Duration;

use millstream_types::MemoryBudget;

/// Limits of the owners of a view.
#[derive(Debug, Clone)]
pub struct ViewsConfig {
    /// Partitions of the state topic, fixed when the data directory is created. Default 4.
    pub partitions: u32,
    /// Most commands that wait for one partition; further ones are refused. Default 16,384.
    pub inbox_max_commands: usize,
    /// Bytes of waiting commands, divided evenly among the partitions; further commands are refused. A command for an
    /// idle partition is accepted at any size. Default 32 MiB.
    pub inbox_max_bytes: usize,
    /// The setting that a refusal names for that limit. Default `inbox_max_bytes`.
    pub inbox_setting: &'static str,
    /// Memory for waiting commands, which other views may share. A larger command counts as all of it. Default: no limit.
    pub inbox_memory: MemoryBudget,
    /// Most commands decided in one batch. Default 1,024.
    pub batch_max_commands: usize,
    /// Bytes of changes in one append; a command with larger changes is refused. At most half of
    /// `log.append_max_bytes`, as the last command may exceed the limit. Default 2 MiB.
    pub append_max_bytes: usize,
    /// Most appends in flight per partition. Default 8.
    pub flights_max: usize,
    /// Longest time that changes are missing from the checkpoint. Default 1 s.
    pub checkpoint_interval: Duration,
    /// Bytes of changes that may be in flight or missing from the checkpoint before commands wait, divided evenly
    /// among the partitions. Default 128 MiB.
    pub dirty_max_bytes: usize,
    /// Memory for changes in flight or missing from the checkpoint, which other views may share. A batch takes twice
    /// `append_max_bytes` while it is decided; commands wait until that is there. Default: no limit.
    pub dirty_memory: MemoryBudget,
}

impl Default for ViewsConfig {
    fn default() -> Self {
        Self {
            partitions: 4,
            inbox_max_commands: 16_384,
            inbox_max_bytes: 32 << 20,
            inbox_setting: "inbox_max_bytes",
            inbox_memory: MemoryBudget::new("inbox_max_bytes", u64::MAX),
            batch_max_commands: 1_024,
            append_max_bytes: 2 << 20,
            flights_max: 8,
            checkpoint_interval: Duration::from_secs(1),
            dirty_max_bytes: 128 << 20,
            dirty_memory: MemoryBudget::new("dirty_max_bytes", u64::MAX),
        }
    }
}
