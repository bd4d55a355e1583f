//! The cursors of SCAN.
//!
//! Redis clients take a cursor for an unsigned 64-bit number, and a page ends at a key. So the listener keeps a bounded
//! table from numbers to keys. A number is a hash of its position: a client that asks twice for the same page gets the
//! same cursor twice, and a table of 2^16 positions lasts for as many scans at once. A cursor that has fallen out of
//! the table is an error that says so; the scan must start again.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::resp::shared::owned;

/// Most positions that are remembered; the oldest go first.
const CURSORS_MAX: usize = 1 << 16;
/// Bytes of the keys that are remembered.
const KEYS_MAX_BYTES: usize = 16 << 20;

/// A scan goes on behind this key of a database of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ScanPosition {
    tenant: std::sync::Arc<str>,
    database: u32,
    after: Bytes,
}

/// The positions of scans, by cursor.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    positions: HashMap<u64, ScanPosition>,
    oldest_first: VecDeque<u64>,
    key_bytes: usize,
    hasher: foldhash::quality::RandomState,
}

impl Cursors {
    /// The cursor of a position. It is not 0.
    pub(crate) fn number(&self, tenant: &std::sync::Arc<str>, database: u32, after: &[u8]) -> u64 {
        let position = ScanPosition { tenant: tenant.clone(), database, after: owned(after) };
        let mut table = self.0.lock();
        let mut number = table.hasher.hash_one(&position).max(1);
        loop {
            match table.positions.get(&number) {
                Some(known) if *known == position => return number,
                // Two positions with the same hash.
                Some(_) => number = number.wrapping_add(1).max(1),
                None => break,
            }
        }
        table.key_bytes += position.after.len();
        table.positions.insert(number, position);
        table.oldest_first.push_back(number);
        while table.positions.len() > CURSORS_MAX || table.key_bytes > KEYS_MAX_BYTES {
            let Some(oldest) = table.oldest_first.pop_front() else { break };
            if let Some(position) = table.positions.remove(&oldest) {
                table.key_bytes -= position.after.len();
            }
        }
        number
    }

    /// The key behind which a scan goes on; `None` if the cursor is not known for this database.
    pub(crate) fn after(&self, tenant: &str, database: u32, number: u64) -> Option<Bytes> {
        let table = self.0.lock();
        let position = table.positions.get(&number)?;
        (&*position.tenant == tenant && position.database == database).then(|| position.after.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_stable_bounded_and_belong_to_their_database() {
        let (cursors, tenant) = (Cursors::default(), std::sync::Arc::from("t"));
        let first = cursors.number(&tenant, 0, b"key");
        assert_eq!(cursors.number(&tenant, 0, b"key"), first);
        assert_eq!(cursors.after("t", 0, first).as_deref(), Some(&b"key"[..]));
        assert_eq!(cursors.after("t", 1, first), None);
        assert_eq!(cursors.after("u", 0, first), None);
        for number in 0..CURSORS_MAX {
            cursors.number(&tenant, 1, &number.to_le_bytes());
        }
        assert_eq!(cursors.after("t", 0, first), None, "the oldest falls out");
        let table = cursors.0.lock();
        assert_eq!((table.positions.len(), table.oldest_first.len()), (CURSORS_MAX, CURSORS_MAX));
    }
}
