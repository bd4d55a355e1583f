//! A table of values by key that knows which of them have changed.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::StateMemory;
use crate::Error;

/// A value that can be stored.
pub(crate) trait StateValue: Sized {
    /// Appends the stored form.
    fn encode(&self, out: &mut Vec<u8>);
    /// The memory that it takes beside its own size.
    fn heap_bytes(&self) -> u64 {
        0
    }
}

/// Gets the key and the last value, or its end, of a change.
pub(crate) type TellChange<'t> = dyn FnMut(&[u8], Option<&[u8]>) + 't;

/// Memory of an entry beside its key and value.
const ENTRY_BYTES: u64 = 96;

/// The values of one operator in one instance.
pub(crate) struct KeyedState<V> {
    values: HashTable<Entry<V>>,
    hasher: RandomState,
    /// The sum of [`digest_of`] over what is stored.
    digest: u64,
    /// Keys whose values were set or removed since the last call of [`KeyedState::take_changes`]. One that was removed and is there again
    /// stands here twice.
    changed: Vec<Arc<[u8]>>,
    memory: StateMemory,
}

struct Entry<V> {
    key: Arc<[u8]>,
    value: V,
    /// The memory that it is counted with.
    size_bytes: u64,
    /// The key stands in the list of changes.
    is_changed: bool,
    /// The checksum of what is stored of it; 0 if nothing is.
    stored_checksum: u32,
}

/// The part of a stored value in the digest of a state: one in the upper bits, and its checksum in the lower ones.
pub(crate) fn digest_of(key: &[u8], stored: &[u8]) -> u64 {
    addend(checksum_of(key, stored))
}

/// The checksum of a stored value, which is never 0.
fn checksum_of(key: &[u8], stored: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), stored).max(1)
}

fn addend(stored_checksum: u32) -> u64 {
    if stored_checksum == 0 { 0 } else { 1 << 40 | u64::from(stored_checksum) }
}

impl<V: StateValue> Entry<V> {
    /// Counts the memory of a value that was changed, and notes the change; the key, to be shared.
    fn settle(&mut self, changed: &mut Vec<Arc<[u8]>>, memory: &mut StateMemory) -> Result<Arc<[u8]>, Error> {
        let size_bytes = entry_bytes(&self.key, &self.value);
        match size_bytes.checked_sub(self.size_bytes) {
            Some(0) => {}
            Some(more) => memory.take(more)?,
            None => memory.give_back(self.size_bytes - size_bytes),
        }
        self.size_bytes = size_bytes;
        if !std::mem::replace(&mut self.is_changed, true) {
            changed.push(Arc::clone(&self.key));
        }
        Ok(Arc::clone(&self.key))
    }
}

impl<V: StateValue> KeyedState<V> {
    pub(crate) fn new(memory: StateMemory) -> Self {
        Self { values: HashTable::new(), hasher: RandomState::default(), digest: 0, changed: Vec::new(), memory }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        let entry = self.values.find(self.hasher.hash_one(key), |entry| *entry.key == *key)?;
        Some(&entry.value)
    }

    /// The value of a key, for changes to parts of it that are not stored and of a fixed size.
    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        let entry = self.values.find_mut(self.hasher.hash_one(key), |entry| *entry.key == *key)?;
        Some(&mut entry.value)
    }

    /// Sets the value of a key; the key, to be shared.
    ///
    /// # Errors
    /// There is no memory for a further key, or a larger value.
    pub(crate) fn set(&mut self, key: &[u8], value: V) -> Result<Arc<[u8]>, Error> {
        let Self { values, hasher, digest: _, changed, memory } = self;
        let Some(entry) = values.find_mut(hasher.hash_one(key), |entry| *entry.key == *key) else {
            return self.add(key, value, true);
        };
        entry.value = value;
        entry.settle(changed, memory)
    }

    /// Changes the value of a key, which `make` makes if there is none; the key, to be shared.
    ///
    /// # Errors
    /// There is no memory for a further key, or a larger value.
    pub(crate) fn change(
        &mut self,
        key: &[u8],
        make: impl FnOnce() -> V,
        change: impl FnOnce(&mut V),
    ) -> Result<Arc<[u8]>, Error> {
        let Self { values, hasher, digest: _, changed, memory } = self;
        let Some(entry) = values.find_mut(hasher.hash_one(key), |entry| *entry.key == *key) else {
            let mut value = make();
            change(&mut value);
            return self.add(key, value, true);
        };
        change(&mut entry.value);
        entry.settle(changed, memory)
    }

    /// Adds a key that is not there.
    fn add(&mut self, key: &[u8], value: V, is_changed: bool) -> Result<Arc<[u8]>, Error> {
        let size_bytes = entry_bytes(key, &value);
        self.memory.take(size_bytes)?;
        let (hash, key): (u64, Arc<[u8]>) = (self.hasher.hash_one(key), key.into());
        let entry = Entry { key: Arc::clone(&key), value, size_bytes, is_changed, stored_checksum: 0 };
        self.values.insert_unique(hash, entry, |entry| self.hasher.hash_one(&*entry.key));
        if is_changed {
            self.changed.push(Arc::clone(&key));
        }
        Ok(key)
    }

    /// The error of a stored value that another operator has made.
    pub(crate) fn unreadable(&self) -> Error {
        self.memory.failed("a stored value cannot be read")
    }

    /// Removes the value of a key, if it has one.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        let found = self.values.find_entry(self.hasher.hash_one(key), |entry| *entry.key == *key);
        let Ok(found) = found else { return };
        let (entry, _) = found.remove();
        self.memory.give_back(entry.size_bytes);
        self.digest = self.digest.wrapping_sub(addend(entry.stored_checksum));
        if !entry.is_changed {
            self.changed.push(entry.key);
        }
    }

    /// All keys, in the order of their bytes.
    pub(crate) fn keys_in_order(&self) -> Vec<Arc<[u8]>> {
        let mut keys: Vec<Arc<[u8]>> = self.values.iter().map(|entry| Arc::clone(&entry.key)).collect();
        keys.sort_unstable();
        keys
    }

    /// Takes over a value that was stored, which does not count as a change; the key, to be shared. Its value is `None` if it cannot be
    /// read.
    ///
    /// # Errors
    /// It cannot be read, or there is no memory for it.
    pub(crate) fn restore(&mut self, key: &[u8], stored: &[u8], value: Option<V>) -> Result<Arc<[u8]>, Error> {
        let value = value.ok_or_else(|| self.unreadable())?;
        let key = self.add(key, value, false)?;
        if let Some(entry) = self.values.find_mut(self.hasher.hash_one(&*key), |entry| entry.key == key) {
            entry.stored_checksum = checksum_of(&key, stored);
            self.digest = self.digest.wrapping_add(addend(entry.stored_checksum));
        }
        Ok(key)
    }

    /// Tells the last value, or its end, of each key that was changed since the last call.
    pub(crate) fn take_changes(&mut self, tell: &mut TellChange<'_>) {
        let mut stored = Vec::new();
        for key in self.changed.drain(..) {
            let found = self.values.find_mut(self.hasher.hash_one(&*key), |entry| entry.key == key);
            match found {
                Some(entry) => {
                    // One that stands here twice was told as it is.
                    if std::mem::take(&mut entry.is_changed) {
                        stored.clear();
                        entry.value.encode(&mut stored);
                        let before = std::mem::replace(&mut entry.stored_checksum, checksum_of(&key, &stored));
                        self.digest = self.digest.wrapping_sub(addend(before));
                        self.digest = self.digest.wrapping_add(addend(entry.stored_checksum));
                        tell(&key, Some(&stored));
                    }
                }
                None => tell(&key, None),
            }
        }
    }

    /// The sum of [`digest_of`] over all that was told as changed, or restored.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The number of keys that have a value.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

fn entry_bytes<V: StateValue>(key: &[u8], value: &V) -> u64 {
    ENTRY_BYTES + (key.len() + size_of::<V>()) as u64 + value.heap_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    impl StateValue for u64 {
        fn encode(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(&self.to_be_bytes());
        }
    }

    fn changes(state: &mut KeyedState<u64>) -> BTreeMap<Vec<u8>, Option<u64>> {
        let mut found = BTreeMap::new();
        state.take_changes(&mut |key, value| {
            found.insert(key.to_vec(), value.map(|stored| u64::from_be_bytes(stored.try_into().unwrap())));
        });
        found
    }

    #[test]
    fn each_change_is_told_once_with_the_last_value() {
        let mut state = KeyedState::new(StateMemory::unbounded("node"));
        state.set(b"a", 1).unwrap();
        state.set(b"b", 2).unwrap();
        state.set(b"a", 3).unwrap();
        assert_eq!(changes(&mut state), BTreeMap::from([(b"a".to_vec(), Some(3)), (b"b".to_vec(), Some(2))]));
        assert_eq!(changes(&mut state), BTreeMap::new());
        state.remove(b"a");
        state.remove(b"never there");
        assert_eq!((changes(&mut state), state.len()), (BTreeMap::from([(b"a".to_vec(), None)]), 1));
        assert_eq!((state.get(b"a"), state.get(b"b")), (None, Some(&2)));
    }

    #[test]
    fn a_value_is_changed_in_its_place() {
        let mut state = KeyedState::new(StateMemory::unbounded("node"));
        state.change(b"a", || 1, |value| *value += 1).unwrap();
        state.change(b"a", || unreachable!(), |value| *value += 1).unwrap();
        assert_eq!(changes(&mut state), BTreeMap::from([(b"a".to_vec(), Some(3))]));
        state.change(b"a", || unreachable!(), |value| *value += 1).unwrap();
        assert_eq!(changes(&mut state), BTreeMap::from([(b"a".to_vec(), Some(4))]));
    }

    #[test]
    fn a_restored_value_is_no_change_and_a_broken_one_is_refused() {
        let mut state = KeyedState::<u64>::new(StateMemory::unbounded("node"));
        state.restore(b"a", b"7", Some(7)).unwrap();
        assert_eq!(changes(&mut state), BTreeMap::new());
        assert_eq!(state.get(b"a"), Some(&7));
        let refusal = state.restore(b"b", b"", None).unwrap_err().to_string();
        assert!(refusal.contains("node"), "{refusal}");
    }
}
