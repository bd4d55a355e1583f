//! The order of entities in lists: sorted positions in blocks, so that a page skips whole blocks.

use crate::index::blocks::Blocks;
use crate::model::entity::ListPosition;

const BLOCK_MAX: usize = 512;

pub(crate) type Places = Blocks<ListPosition, BLOCK_MAX>;

impl Places {
    /// Positions after `last`; all positions if it is `None`.
    pub(crate) fn after<'a>(&'a self, last: Option<&'a ListPosition>) -> impl Iterator<Item = &'a ListPosition> {
        self.from(last.cloned()).skip_while(move |place| last == Some(*place))
    }

    /// Positions of entities created at `at_ms` or later.
    pub(crate) fn since(&self, at_ms: i64) -> impl Iterator<Item = &ListPosition> {
        self.from(Some(ListPosition::first_at(at_ms)))
    }
}

/// Positions of one index in one partition, as input of a merge.
pub(crate) struct PositionRun<'a, T> {
    now: &'a [ListPosition],
    later: Box<dyn Iterator<Item = &'a [ListPosition]> + Send + 'a>,
    /// The origin of the positions.
    pub(crate) of: T,
}

impl<'a, T> PositionRun<'a, T> {
    pub(crate) fn new(mut blocks: impl Iterator<Item = &'a [ListPosition]> + Send + 'a, of: T) -> Self {
        Self { now: blocks.next().unwrap_or_default(), later: Box::new(blocks), of }
    }

    pub(crate) fn next(&mut self) -> Option<&'a ListPosition> {
        let (first, rest) = self.now.split_first()?;
        self.now = if rest.is_empty() { self.later.next().unwrap_or_default() } else { rest };
        Some(first)
    }
}

/// Skips whole blocks while all their positions are among the first `count` of the merged runs; returns
/// the number of skipped positions.
pub(crate) fn skip_blocks<T>(runs: &mut [PositionRun<'_, T>], count: usize) -> usize {
    let mut passed = 0;
    loop {
        // The block that ends first ends before every other run's next block begins.
        let ahead: usize = runs.iter().map(|run| run.now.len()).sum();
        let first = runs.iter_mut().filter(|run| !run.now.is_empty()).min_by_key(|run| run.now.last());
        match first {
            Some(run) if passed + ahead <= count => {
                passed += run.now.len();
                run.now = run.later.next().unwrap_or_default();
            }
            _ => return passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::entity::Key;

    fn place(n: u16) -> ListPosition {
        let key = Key { id: format!("{n:05}").into(), kind: "T".into(), path: "/".into() };
        ListPosition { created_us: i64::from(n / 7), key: Arc::new(key) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn skipped_entries_are_among_the_first_of_all_runs(
            owners in prop::collection::vec(0..4_usize, 0..5_000),
            count in 0..6_000_usize,
        ) {
            let mut runs = [const { Vec::new() }; 4];
            for (n, owner) in owners.iter().enumerate() {
                runs[*owner].push(place(n as u16));
            }
            let mut places = [(); 4].map(|()| Places::default());
            for (places, run) in places.iter_mut().zip(&runs) {
                run.iter().cloned().for_each(|place| places.insert(place));
            }
            let mut runs: Vec<PositionRun<'_, ()>> = places.iter().map(|places| PositionRun::new(places.blocks(), ())).collect();
            let passed = skip_blocks(&mut runs, count);
            prop_assert!(passed <= count);
            prop_assert!(passed + 4 * BLOCK_MAX >= count.min(owners.len()), "few are left to be passed one by one");
            let mut rest: Vec<ListPosition> = Vec::new();
            for run in &mut runs {
                while let Some(place) = run.next() {
                    rest.push(place.clone());
                }
            }
            rest.sort_unstable();
            let page: Vec<&ListPosition> = rest.iter().skip(count - passed).collect();
            let expected: Vec<ListPosition> = (count..owners.len().max(count)).map(|n| place(n as u16)).collect();
            prop_assert!(page.into_iter().eq(&expected), "what follows the first {count} is the same");
        }
    }
}
