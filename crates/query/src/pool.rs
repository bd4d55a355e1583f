//! Equal lists kept once, for as long as somebody has them.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// It is swept before it would grow beyond twice of what was in use.
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
    /// The list that all have who ask for one like it.
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
    fn equal_lists_are_one_and_those_that_nobody_has_go() {
        let mut pool = Pool::default();
        let kept: Vec<Arc<[usize]>> = (0..10).map(|n| pool.share(vec![n, n + 1])).collect();
        assert!(Arc::ptr_eq(&kept[3], &pool.share(vec![3, 4])));
        (0..10_000).for_each(|n| drop(pool.share(vec![n])));
        assert!(pool.lists.len() <= SWEPT_FROM);
        assert!(kept.iter().all(|list| Arc::ptr_eq(list, &pool.share(list.to_vec()))));
    }
}
