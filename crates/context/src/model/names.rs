//! Interned names of attributes and types: many entities share them. Each thread keeps its own table.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

/// Names in a thread's table; a full table is cleared.
const NAMES_MAX: usize = 4_096;
/// Longer names are not interned: they are seldom used again.
const NAME_MAX_BYTES: usize = 64;

thread_local!(static NAMES: RefCell<HashSet<Arc<str>>> = RefCell::default());

/// `name` in shared memory.
pub(crate) fn shared(name: &str) -> Arc<str> {
    if name.len() > NAME_MAX_BYTES {
        return name.into();
    }
    NAMES.with_borrow_mut(|names| {
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        let name: Arc<str> = name.into();
        names.insert(name.clone());
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stored_once_and_the_names_are_bounded() {
        let (first, again) = (shared("temperature"), shared("temperature"));
        assert!(Arc::ptr_eq(&first, &again));
        (0..NAMES_MAX * 2).for_each(|number| assert_eq!(*shared(&number.to_string()), *number.to_string()));
        assert!(NAMES.with_borrow(HashSet::len) <= NAMES_MAX);
        let long = "x".repeat(NAME_MAX_BYTES + 1);
        assert!(!Arc::ptr_eq(&shared(&long), &shared(&long)));
    }
}
