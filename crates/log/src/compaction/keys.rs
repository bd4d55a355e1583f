//! Keys of a pass in bounded memory: a map to their last offsets, and sets that may claim too much.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Most memory of one key: 24 bytes and one control byte, twice while the table grows, in tables filled to 7/8.
const BUCKET_BYTES: usize = 40;
/// Bits that a [`KeyFilter`] sets for a key.
const FILTER_BITS: u64 = 3;

/// A key under the secret of one pass.
pub(super) type KeyHash = [u64; 2];

/// Keys by a 128-bit hash under a secret that is new for each pass. Nobody can send keys that collide; by chance two
/// of 2^32 keys collide once in 2^65 passes.
pub(super) struct KeyMap {
    last: HashMap<KeyHash, u64>,
    secrets: [RandomState; 2],
    max_keys: usize,
}

impl KeyMap {
    pub(super) fn new(max_bytes: usize) -> Self {
        let buckets = 1 << (max_bytes / BUCKET_BYTES).max(8).ilog2();
        let secrets = [RandomState::new(), RandomState::new()];
        Self { last: HashMap::new(), secrets, max_keys: buckets / 8 * 7 }
    }

    /// Notes that `key` occurs at `offset`; offsets ascend. `false` if there is no room for another key.
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

    /// `true` if the key occurs again above `offset`.
    pub(super) fn is_superseded(&self, key: &KeyHash, offset: u64) -> bool {
        self.last.get(key).is_some_and(|last| *last > offset)
    }

    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        [self.secrets[0].hash_one(key), self.secrets[1].hash_one(key)]
    }
}

/// A set of keys in fixed memory (a Bloom filter): it has every key that was inserted, and may claim others.
pub(super) struct KeyFilter {
    bits: Vec<u64>,
}

impl KeyFilter {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { bits: vec![0; 1 << (max_bytes / 8).max(1).ilog2()] }
    }

    pub(super) fn insert(&mut self, key: &KeyHash) {
        for (word, bit) in self.places(key) {
            self.bits[word] |= bit;
        }
    }

    /// `false` if the key was certainly not inserted.
    pub(super) fn may_contain(&self, key: &KeyHash) -> bool {
        self.places(key).all(|(word, bit)| self.bits[word] & bit != 0)
    }

    fn places(&self, [first, step]: &KeyHash) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (first, step, words) = (*first, *step | 1, self.bits.len() as u64);
        (0..FILTER_BITS).map(move |number| {
            let place = first.wrapping_add(number.wrapping_mul(step));
            ((place / 64 % words) as usize, 1 << (place % 64))
        })
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
        let is_superseded = |key: u64, offset| keys.is_superseded(&keys.hash(&key.to_le_bytes()), offset);
        assert!(is_superseded(3, 3) && !is_superseded(3, 200));
        assert!(!is_superseded(99, 0));
    }

    #[test]
    fn a_filter_has_every_key_that_was_inserted_and_hardly_another_while_it_has_room() {
        let keys = KeyMap::new(1024);
        let mut filter = KeyFilter::new(4096);
        let hash = |key: u64| keys.hash(&key.to_le_bytes());
        (0..1_000).for_each(|key| filter.insert(&hash(key)));
        assert!((0..1_000).all(|key| filter.may_contain(&hash(key))));
        let claimed = (1_000..11_000).filter(|key| filter.may_contain(&hash(*key))).count();
        assert!(claimed < 500, "{claimed} of 10,000 keys are claimed");
    }
}
