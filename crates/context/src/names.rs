//! Names that many entities share, such as those of attributes and types: kept once by each thread that reads them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

/// Names that a thread keeps at most; then it begins anew.
const NAMES_MAX: usize = 4_096;
/// A longer one is seldom a name that is used again.
const NAME_MAX_BYTES: usize = 64;

thread_local!(static NAMES: RefCell<HashSet<Arc<str>>> = RefCell::default());

/// `name`, in memory that others with this name have too.
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
    fn a_name_is_kept_once_and_not_too_many_are() {
        let (first, again) = (shared("temperature"), shared("temperature"));
        assert!(Arc::ptr_eq(&first, &again));
        (0..NAMES_MAX * 2).for_each(|number| assert_eq!(*shared(&number.to_string()), *number.to_string()));
        assert!(NAMES.with_borrow(HashSet::len) <= NAMES_MAX);
        let long = "x".repeat(NAME_MAX_BYTES + 1);
        assert!(!Arc::ptr_eq(&shared(&long), &shared(&long)));
    }
}
