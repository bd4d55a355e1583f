//! A pool of equal lists, each stored once while it is in use.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Size from which the pool is swept, before it would grow beyond twice the lists in use.
const SWEPT_FROM: usize = 64;

#[derive(Debug)]
pub(crate) struct Pool<T> {
    lists: HashSet<Arc<[T]>>,
    sweep_at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { lists: HashSet::new(), sweep_at: SWEPT_FROM }
    }
}

impl<T: Eq + Hash> Pool<T> {
    /// The shared list that is equal to `list`.
    pub(crate) fn share<L: Into<Arc<[T]>> + AsRef<[T]>>(&mut self, list: L) -> Arc<[T]> {
        if let Some(known) = self.lists.get(list.as_ref()) {
            return known.clone();
        }
        if self.lists.len() >= self.sweep_at {
            self.lists.retain(|list| Arc::strong_count(list) > 1);
            self.sweep_at = SWEPT_FROM.max(2 * self.lists.len());
        }
        let list = list.into();
        self.lists.insert(Arc::clone(&list));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_are_shared_and_unused_ones_are_removed() {
        let mut pool = Pool::default();
        let kept: Vec<Arc<[usize]>> = (0..10).map(|n| pool.share(vec![n, n + 1])).collect();
        assert!(Arc::ptr_eq(&kept[3], &pool.share(vec![3, 4])));
        (0..10_000).for_each(|n| drop(pool.share(vec![n])));
        assert!(pool.lists.len() <= SWEPT_FROM);
        assert!(kept.iter().all(|list| Arc::ptr_eq(list, &pool.share(list.to_vec()))));
    }
}
