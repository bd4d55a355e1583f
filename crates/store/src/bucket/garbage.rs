//! Gives the disk back: has the log compact a partition in which less than half of the bytes live.
//!
//! The log's own rules look at full segments that are new. Only the table knows that keys were deleted or replaced, also in
//! a bucket to which nobody writes any more, and in the segment that is being written.

use parking_lot::Mutex;

use super::Bucket;
use crate::table::Totals;

/// Bytes of a record beside key and value, about: its headers, and its part of those of its batch.
const RECORD_BYTES: u64 = 128;
/// A smaller partition is left alone.
const PARTITION_LEAST_BYTES: u64 = 1 << 20;
/// A pass begins once a part of the partition this large has become garbage since the last one.
const NEW_PARTS: u64 = 4;

/// For each partition, the bytes of garbage that the log has been asked to remove, or has left.
#[derive(Debug)]
pub(super) struct KnownGarbage(Mutex<Vec<u64>>);

impl KnownGarbage {
    pub(super) fn of(partitions: u32) -> Self {
        Self(Mutex::new(vec![0; partitions as usize]))
    }
}

/// `true` if a partition of `size_bytes` with these keys is worth a pass. `known_bytes` is what earlier passes could not
/// remove, such as tombstones; of what is new it becomes the part that is left to this pass.
fn is_worth_a_pass(size_bytes: u64, totals: Totals, known_bytes: &mut u64) -> bool {
    let live_bytes = totals.bytes + totals.keys * RECORD_BYTES;
    let garbage_bytes = size_bytes.saturating_sub(live_bytes);
    *known_bytes = garbage_bytes.min(*known_bytes);
    let is_much = size_bytes >= PARTITION_LEAST_BYTES && garbage_bytes > size_bytes / 2;
    let is_due = is_much && garbage_bytes - *known_bytes >= size_bytes / NEW_PARTS;
    if is_due {
        *known_bytes = garbage_bytes;
    }
    is_due
}

impl Bucket {
    /// Has the log compact the partitions that have become mostly garbage.
    pub(crate) fn remove_garbage(&self) {
        let mut known = self.known_garbage.0.lock();
        for ((partition, table), known_bytes) in self.partitions.iter().zip(&self.tables).zip(known.iter_mut()) {
            if is_worth_a_pass(partition.size_bytes(), table.totals(), known_bytes) {
                partition.compact();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_pass_begins_when_half_is_garbage_and_again_only_for_new_garbage() {
        let mut known_bytes = 0;
        let mut check = |size_mib: u64, live_mib: u64| {
            is_worth_a_pass(size_mib * MIB, Totals { keys: 10, bytes: live_mib * MIB }, &mut known_bytes)
        };
        assert!(!check(1_000, 1_000) && !check(1_000, 501));
        assert!(check(1_000, 490));
        assert!(!check(1_000, 490), "the pass has not ended yet");
        assert!(!check(550, 490), "it has ended");
        assert!(!check(900, 490) && check(1_000, 490), "more than half is garbage again");
        // All is deleted, and tombstones are left.
        assert!(check(1_000, 0));
        assert!(!check(60, 0) && !check(70, 0), "no pass can remove them yet");
        assert!(check(100, 0));
        assert!(!check(0, 0), "too small");
    }
}
