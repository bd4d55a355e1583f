//! The last offset of each key, in bounded memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Memory of one key at most: 24 bytes and one of control, twice while the table grows, in tables that are filled to 7/8.
const BUCKET_BYTES: usize = 40;

/// Keys by a 128-bit hash under a secret that is new for each pass: nobody can send keys that collide, and by chance two
/// of 2^32 keys do so once in 2^65 passes.
pub(super) struct KeyMap {
    last: HashMap<[u64; 2], u64>,
    secrets: [RandomState; 2],
    max_keys: usize,
}

impl KeyMap {
    pub(super) fn new(max_bytes: usize) -> Self {
        let buckets = 1 << (max_bytes / BUCKET_BYTES).max(8).ilog2();
        let secrets = [RandomState::new(), RandomState::new()];
        Self { last: HashMap::new(), secrets, max_keys: buckets / 8 * 7 }
    }

    /// Notes that `key` stands at `offset`, above all before. `false` if there is no room for another key.
    pub(super) fn note(&mut self, key: &[u8], offset: u64) -> bool {
        let hash = self.hash(key);
        if let Some(last) = self.last.get_mut(&hash) {
            *last = offset;
            return true;
        }
        let has_room = self.last.len() < self.max_keys;
        if has_room {
            self.last.insert(hash, offset);
        }
        has_room
    }

    /// Whether `key` stands again above `offset`.
    pub(super) fn is_superseded(&self, key: &[u8], offset: u64) -> bool {
        self.last.get(&self.hash(key)).is_some_and(|last| *last > offset)
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.secrets[0].hash_one(key), self.secrets[1].hash_one(key)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_refuses_new_keys_and_moves_those_it_has() {
        let mut keys = KeyMap::new(1024);
        let taken = (0_u64..100).take_while(|key| keys.note(&key.to_le_bytes(), *key)).count();
        assert_eq!(taken, 14);
        assert!(keys.note(&3_u64.to_le_bytes(), 200));
        assert!(keys.is_superseded(&3_u64.to_le_bytes(), 3) && !keys.is_superseded(&3_u64.to_le_bytes(), 200));
        assert!(!keys.is_superseded(&99_u64.to_le_bytes(), 0));
    }
}
