//! Merging of a keyspace's tables, so that changed and deleted records leave the disk.
//!
//! The store itself merges by the number of tables, which suits many live records: each merge writes all of them
//! again. In a keyspace with few live records, such as a queue, the same number of tables is nearly all waste. A
//! keyspace is therefore also merged whole once its tables take twice what the last merge left, and [`SLACK_BYTES`].

use std::thread::JoinHandle;

use fjall::Keyspace;
use millstream_log::run_in_background;

/// Bytes of tables that are never worth a merge.
const SLACK_BYTES: u64 = 8 << 20;

/// Decides when a keyspace is merged, and runs one merge at a time on a thread of its own.
pub(crate) struct Merging {
    keyspace: Keyspace,
    /// Bytes of tables after the last merge, the store's own included.
    merged_bytes: u64,
    running: Option<JoinHandle<Result<(), fjall::Error>>>,
}

impl Merging {
    pub(crate) fn new(keyspace: Keyspace) -> Self {
        let merged_bytes = keyspace.disk_space();
        Self { keyspace, merged_bytes, running: None }
    }

    /// Begins a merge if one is due and none runs.
    pub(crate) fn step(&mut self) {
        if self.running.as_ref().is_some_and(|merge| !merge.is_finished()) {
            return;
        }
        if self.running.is_some() {
            self.end();
            self.merged_bytes = self.keyspace.disk_space();
        }
        let bytes = self.keyspace.disk_space();
        self.merged_bytes = self.merged_bytes.min(bytes);
        if bytes > 2 * self.merged_bytes + SLACK_BYTES {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let keyspace = self.keyspace.clone();
        let merge = move || {
            run_in_background();
            keyspace.major_compact()
        };
        match std::thread::Builder::new().name("checkpoint-merge".to_owned()).spawn(merge) {
            Ok(thread) => self.running = Some(thread),
            Err(e) => {
                tracing::warn!(keyspace = %self.keyspace.name(), error = %e, "no thread for a merge of the checkpoint; it is tried again")
            }
        }
    }

    /// Waits for the merge that runs.
    fn end(&mut self) {
        let Some(merge) = self.running.take() else { return };
        let keyspace = self.keyspace.name();
        match merge.join() {
            Ok(Ok(())) => {}
            Ok(Err(e)) => {
                tracing::error!(%keyspace, error = %e, "the checkpoint's tables cannot be merged; they stay as they are")
            }
            Err(_) => tracing::error!(%keyspace, "merging the checkpoint's tables panicked; they stay as they are"),
        }
    }
}

/// A merge holds the store's files, which the next start wants.
impl Drop for Merging {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use bytes::Bytes;
    use millstream_types::{Epoch, Offset, PartitionId, TopicId};

    use crate::checkpoint::{Checkpoint, Checkpoints};
    use crate::dirty::Dirty;
    use crate::view::StateRecord;

    const VALUE_BYTES: usize = 2_000;
    const ROUNDS: u64 = 120;
    const RECORDS_PER_ROUND: u64 = 500;
    /// A full journal, the one before it that is on its way out, and tables.
    const STORE_MAX_BYTES: u64 = 192 << 20;
    const STORE_AT_REST_MAX_BYTES: u64 = 100 << 20;

    /// A value that does not compress.
    fn value(seed: u64) -> Bytes {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..VALUE_BYTES).map(|_| next()).collect()
    }

    fn write(checkpoint: &Checkpoint, records: Vec<StateRecord>, next: u64) {
        let mut dirty = Dirty::default();
        dirty.take(records, Epoch(1), Offset(next));
        checkpoint.write_dirty(PartitionId(0), TopicId(1), &dirty).unwrap();
    }

    fn record(number: u64, value: Option<Bytes>) -> StateRecord {
        (Bytes::from(format!("record {number:08}")), value)
    }

    /// Bytes that the files of `dir` take on disk. A file may go while they are counted.
    fn stored_bytes(dir: &Path) -> u64 {
        let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
        let bytes = entries.filter_map(Result::ok).map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => stored_bytes(&entry.path()),
            metadata => metadata.map_or(0, |file| file.blocks() * 512),
        });
        bytes.sum()
    }

    fn journals(dir: &Path) -> usize {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".jnl")).count()
    }

    #[test]
    fn a_store_of_busy_idle_and_queue_like_views_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let store = Checkpoints::open(path).unwrap();
        let idle: Vec<_> = ["a", "b", "c"].map(|name| store.keyspace(name).unwrap()).into();
        idle.iter().for_each(|checkpoint| write(checkpoint, vec![record(0, Some(value(0)))], 1));
        let (busy, queue) = (store.keyspace("busy").unwrap(), store.keyspace("queue").unwrap());
        let (mut most_bytes, mut most_journals) = (0, 0);
        for round in 0..ROUNDS {
            let first = round * RECORDS_PER_ROUND;
            let numbers = 0..RECORDS_PER_ROUND;
            // The same records over and over; and records that are gone a round later.
            write(&busy, numbers.clone().map(|n| record(n, Some(value(first + n)))).collect(), round);
            let gone = numbers.clone().map(|n| record((first + n).wrapping_sub(RECORDS_PER_ROUND), None));
            write(&queue, numbers.map(|n| record(first + n, Some(value(first + n)))).chain(gone).collect(), round);
            most_bytes = most_bytes.max(stored_bytes(path));
            most_journals = most_journals.max(journals(path));
        }
        assert!(most_bytes < STORE_MAX_BYTES, "{most_bytes} bytes");
        assert!(most_journals <= 3, "{most_journals} journals");
        while stored_bytes(path) > STORE_AT_REST_MAX_BYTES || journals(path) > 1 {
            std::thread::yield_now();
        }
    }
}
