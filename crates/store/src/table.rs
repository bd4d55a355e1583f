//! The table of a partition's keys: where the record of each key is, in 32 bytes.
//!
//! A key itself is not in the table. 96 bits of two keyed hashes (SipHash, with keys of this process) stand for it, so
//! that nobody can choose keys that meet in one entry; among 10^9 keys two meet with a probability of 10^-11.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use hashbrown::HashTable;
use parking_lot::RwLock;

/// Parts of the table, each with a lock of its own. A part is small enough that its growth holds up nobody.
const PARTS: usize = 64;

const LENGTH_LOW_BITS: u32 = 20;
/// Largest length of a value: 2^44 - 1 bytes.
pub(crate) const LENGTH_MAX: u64 = (1 << 44) - 1;
const EXPIRY_LOW_BITS: u32 = 44;
/// The latest expiry that is told apart: the year 37648.
const EXPIRY_MAX_MS: u64 = (1 << 50) - 1;

const LARGE: u64 = 1;
const HIDDEN: u64 = 2;
const FLAG_BITS: u32 = 2;

/// How the keys of the records of open uploads begin.
pub(crate) const OPEN_UPLOAD: &[u8] = b"\0u";

/// The hashes that stand for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    high: u64,
    low: u32,
}

/// A key's entry in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The offset of the record, which is the version.
    pub(crate) offset: u64,
    /// Length of the value in bytes.
    pub(crate) length: u64,
    /// When the key expires: milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) expires_ms: Option<i64>,
    /// `true` if the record is a manifest and the value lies in parts.
    pub(crate) is_large: bool,
    /// `true` if the key is the store's own: a part of a value, never listed or counted.
    pub(crate) is_hidden: bool,
}

impl Place {
    /// `true` if the key is gone at `now_ms`.
    pub(crate) fn has_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }

    /// Bytes that count against the bucket's quota. The parts of a large value count by themselves.
    fn counted_bytes(&self, key_bytes: usize) -> u64 {
        key_bytes as u64 + if self.is_large { 0 } else { self.length }
    }
}

/// A place as the table packs it.
#[derive(Debug, Clone, Copy)]
struct TableSlot {
    high: u64,
    offset: u64,
    /// The low bits of the expiry (44) and of the length (20).
    expiry_length: u64,
    /// Low hash (32), the high bits of the length (24) and of the expiry (6), flags (2).
    low_length_flags: u64,
}

impl TableSlot {
    fn new(fingerprint: Fingerprint, place: &Place) -> Self {
        let expiry = place.expires_ms.map_or(0, |ms| (ms.max(1) as u64).min(EXPIRY_MAX_MS));
        let length = place.length.min(LENGTH_MAX);
        let flags = if place.is_large { LARGE } else { 0 } | if place.is_hidden { HIDDEN } else { 0 };
        Self {
            high: fingerprint.high,
            offset: place.offset,
            expiry_length: expiry << LENGTH_LOW_BITS | length & ((1 << LENGTH_LOW_BITS) - 1),
            low_length_flags: u64::from(fingerprint.low) << 32
                | length >> LENGTH_LOW_BITS << 8
                | expiry >> EXPIRY_LOW_BITS << FLAG_BITS
                | flags,
        }
    }

    fn is(&self, fingerprint: Fingerprint) -> bool {
        self.high == fingerprint.high && (self.low_length_flags >> 32) as u32 == fingerprint.low
    }

    fn place(&self) -> Place {
        let expiry_high = self.low_length_flags >> FLAG_BITS & 0x3f;
        let expiry = expiry_high << EXPIRY_LOW_BITS | self.expiry_length >> LENGTH_LOW_BITS;
        let length_high = self.low_length_flags >> 8 & 0x00ff_ffff;
        Place {
            offset: self.offset,
            length: length_high << LENGTH_LOW_BITS | self.expiry_length & ((1 << LENGTH_LOW_BITS) - 1),
            expires_ms: (expiry > 0).then_some(expiry as i64),
            is_large: self.low_length_flags & LARGE != 0,
            is_hidden: self.low_length_flags & HIDDEN != 0,
        }
    }
}

/// Keys and bytes of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Keys, without the store's own.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// The places of a partition's keys. Its owner alone changes it.
#[derive(Debug)]
pub(crate) struct Table {
    parts: Box<[RwLock<HashTable<TableSlot>>]>,
    /// No key of a part expires before this time.
    soonest_ms: Box<[AtomicI64]>,
    hashes: [RandomState; 2],
    keys: AtomicU64,
    expiring_keys: AtomicU64,
    bytes: AtomicU64,
    open_uploads: AtomicU64,
    newest_ms: AtomicI64,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| RwLock::default()).collect(),
            soonest_ms: (0..PARTS).map(|_| AtomicI64::new(i64::MAX)).collect(),
            hashes: [RandomState::new(), RandomState::new()],
            keys: AtomicU64::new(0),
            expiring_keys: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            open_uploads: AtomicU64::new(0),
            newest_ms: AtomicI64::new(i64::MIN),
        }
    }
}

impl Table {
    /// The fingerprint of `key` in this table.
    pub(crate) fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        let [high, low] = &self.hashes;
        Fingerprint { high: high.hash_one(key), low: low.hash_one(key) as u32 }
    }

    fn part(&self, fingerprint: Fingerprint) -> &RwLock<HashTable<TableSlot>> {
        &self.parts[Self::number(fingerprint)]
    }

    fn number(fingerprint: Fingerprint) -> usize {
        fingerprint.low as usize % PARTS
    }

    /// The place of a key.
    pub(crate) fn get(&self, fingerprint: Fingerprint) -> Option<Place> {
        let part = self.part(fingerprint).read();
        part.find(fingerprint.high, |slot| slot.is(fingerprint)).map(TableSlot::place)
    }

    /// Sets the place of `key`.
    pub(crate) fn insert(&self, key: &[u8], place: Place) {
        let fingerprint = self.fingerprint(key);
        let slot = TableSlot::new(fingerprint, &place);
        let before = {
            let mut part = self.part(fingerprint).write();
            if let Some(expires_ms) = slot.place().expires_ms {
                self.soonest_ms[Self::number(fingerprint)].fetch_min(expires_ms, Ordering::Relaxed);
            }
            match part.find_mut(fingerprint.high, |slot| slot.is(fingerprint)) {
                Some(found) => Some(std::mem::replace(found, slot).place()),
                None => {
                    part.insert_unique(fingerprint.high, slot, |slot| slot.high);
                    None
                }
            }
        };
        self.count(key, before, Some(slot.place()));
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        let fingerprint = self.fingerprint(key);
        let removed = {
            let mut part = self.part(fingerprint).write();
            part.find_entry(fingerprint.high, |slot| slot.is(fingerprint)).ok().map(|entry| entry.remove().0.place())
        };
        self.count(key, removed, None);
    }

    fn count(&self, key: &[u8], before: Option<Place>, after: Option<Place>) {
        let change = TotalsDelta::between(key, before, after);
        self.keys.fetch_add(change.keys as u64, Ordering::Relaxed);
        self.bytes.fetch_add(change.bytes as u64, Ordering::Relaxed);
        if key.starts_with(OPEN_UPLOAD) {
            let change = i64::from(after.is_some()) - i64::from(before.is_some());
            self.open_uploads.fetch_add(change as u64, Ordering::Relaxed);
        }
        let expiring = |place: Option<Place>| place.is_some_and(|place| !place.is_hidden && place.expires_ms.is_some());
        let change = i64::from(expiring(after)) - i64::from(expiring(before));
        if change != 0 {
            self.expiring_keys.fetch_add(change as u64, Ordering::Relaxed);
        }
    }

    /// Keys that expire, without the store's own.
    pub(crate) fn expiring_keys(&self) -> u64 {
        self.expiring_keys.load(Ordering::Relaxed)
    }

    /// Keys and bytes in the table.
    pub(crate) fn totals(&self) -> Totals {
        Totals { keys: self.keys.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    /// Uploads that are open.
    pub(crate) fn open_uploads(&self) -> u64 {
        self.open_uploads.load(Ordering::Relaxed)
    }

    /// Notes that a value was written at this time.
    pub(crate) fn note_time(&self, written_ms: i64) {
        self.newest_ms.fetch_max(written_ms, Ordering::Relaxed);
    }

    /// The latest time at which a value was written; `i64::MIN` if there is none.
    pub(crate) fn newest_ms(&self) -> i64 {
        self.newest_ms.load(Ordering::Relaxed)
    }

    /// Number of parts, for [`Table::expired`].
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Offsets of keys in a part that have expired at `now_ms`, at most `limit`. Costs nothing while no key is due.
    pub(crate) fn expired(&self, part: usize, now_ms: i64, limit: usize) -> Vec<u64> {
        let soonest = &self.soonest_ms[part];
        if soonest.load(Ordering::Relaxed) > now_ms {
            return Vec::new();
        }
        let (mut offsets, mut next_ms) = (Vec::new(), i64::MAX);
        // Nobody changes the part meanwhile.
        let part = self.parts[part].read();
        for place in part.iter().map(TableSlot::place) {
            match place.expires_ms {
                Some(expires_ms) if expires_ms > now_ms => next_ms = next_ms.min(expires_ms),
                Some(expires_ms) if offsets.len() == limit => next_ms = next_ms.min(expires_ms),
                Some(_) => offsets.push(place.offset),
                None => {}
            }
        }
        // Those that were found are looked for again, if somebody else does not remove them.
        soonest.store(if offsets.is_empty() { next_ms } else { next_ms.min(now_ms) }, Ordering::Relaxed);
        offsets
    }
}

impl Table {
    /// The offset of any key that is not hidden and has not expired; `None` if there is none.
    pub(crate) fn random(&self, now_ms: i64) -> Option<u64> {
        let is_live = |place: &Place| !place.is_hidden && !place.has_expired(now_ms);
        let first = fastrand::usize(..self.parts.len());
        (0..self.parts.len()).map(|step| (first + step) % self.parts.len()).find_map(|part| {
            let part = self.parts[part].read();
            let live = || part.iter().map(TableSlot::place).filter(is_live);
            let found = live().nth(fastrand::usize(..part.len().clamp(1, 64))).or_else(|| live().next());
            found.map(|place| place.offset)
        })
    }
}

/// The difference that a change of a key makes to the totals; negative if it takes away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TotalsDelta {
    pub(crate) keys: i64,
    pub(crate) bytes: i64,
}

impl TotalsDelta {
    pub(crate) fn between(key: &[u8], before: Option<Place>, after: Option<Place>) -> Self {
        let keys = |place: Option<Place>| place.map_or(0, |place| i64::from(!place.is_hidden));
        let bytes = |place: Option<Place>| place.map_or(0, |place| place.counted_bytes(key.len()) as i64);
        Self { keys: keys(after) - keys(before), bytes: bytes(after) - bytes(before) }
    }
}

impl std::ops::AddAssign for TotalsDelta {
    fn add_assign(&mut self, other: Self) {
        self.keys += other.keys;
        self.bytes += other.bytes;
    }
}

impl std::ops::SubAssign for TotalsDelta {
    fn sub_assign(&mut self, other: Self) {
        self.keys -= other.keys;
        self.bytes -= other.bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_takes_32_bytes() {
        assert_eq!(size_of::<TableSlot>(), 32);
    }

    fn place() -> impl Strategy<Value = Place> {
        let expiry = proptest::option::of(1..EXPIRY_MAX_MS as i64);
        (any::<u64>(), 0..=LENGTH_MAX, expiry, any::<bool>(), any::<bool>()).prop_map(
            |(offset, length, expires_ms, is_large, is_hidden)| Place {
                offset,
                length,
                expires_ms,
                is_large,
                is_hidden,
            },
        )
    }

    proptest! {
        #[test]
        fn a_place_comes_out_as_it_went_in(places in proptest::collection::vec(place(), 1..40)) {
            let table = Table::default();
            let key = |number: usize| format!("key-{number}").into_bytes();
            for (number, place) in places.iter().enumerate() {
                table.insert(&key(number), Place { offset: 1, ..*place });
                table.insert(&key(number), *place);
            }
            for (number, place) in places.iter().enumerate() {
                prop_assert_eq!(table.get(table.fingerprint(&key(number))), Some(*place));
            }
            let visible = places.iter().filter(|place| !place.is_hidden).count() as u64;
            prop_assert_eq!(table.totals().keys, visible);
            let expires = |place: &&Place| !place.is_hidden && place.expires_ms.is_some();
            prop_assert_eq!(table.expiring_keys(), places.iter().filter(expires).count() as u64);
            for number in 0..places.len() {
                table.remove(&key(number));
                table.remove(&key(number));
            }
            prop_assert_eq!((table.totals(), table.expiring_keys()), (Totals::default(), 0));
        }
    }

    #[test]
    fn the_expired_keys_of_a_part_are_found() {
        let table = Table::default();
        for number in 0..100_u64 {
            let expires_ms = (number % 2 == 0).then_some(1_000 + number as i64);
            let place = Place { offset: number, length: 1, expires_ms, is_large: false, is_hidden: false };
            table.insert(&number.to_be_bytes(), place);
        }
        let expired = |now_ms| -> Vec<u64> {
            let mut all: Vec<u64> = (0..table.parts()).flat_map(|part| table.expired(part, now_ms, 100)).collect();
            all.sort_unstable();
            all
        };
        assert!(expired(999).is_empty());
        assert_eq!(expired(1_004), [0, 2, 4]);
        assert_eq!(expired(2_000).len(), 50);
    }
}
