//! The keys of all partitions in one order, with the keys below a delimiter folded into their common prefix.
//!
//! Each partition is read ahead by a bounded number of keys. A common prefix is skipped by a seek, so that it costs the
//! same whatever lies below it.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use memchr::memmem;
use millstream_types::PartitionId;

use crate::Error;
use crate::record::Listed;

/// Keys that are read ahead in a partition: at first, and at most.
const AHEAD_MIN: usize = 64;
const AHEAD_MAX: usize = 1_024;
/// Bytes of keys and entries that are read ahead in a partition.
const AHEAD_BYTES: usize = 64 << 10;
/// Bytes of an entry beside the key.
const ENTRY_BYTES: usize = 96;
/// The first key that is a client's; keys before it are the store's own.
const FIRST_KEY: &[u8] = &[1];

/// A bucket's keys, in order within each partition.
pub(crate) trait KeySource {
    /// Calls `visit` with the keys of `partition` from `start` on, in order, until it breaks.
    fn list_keys(
        &self,
        partition: PartitionId,
        start: &[u8],
        visit: &mut dyn FnMut(&[u8], Listed) -> ControlFlow<()>,
    ) -> Result<(), Error>;
}

/// The keys that a listing asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Only keys that begin with this are listed.
    pub(crate) prefix: Vec<u8>,
    /// The first key; it need not be there.
    pub(crate) start: Vec<u8>,
    /// Keys that have this behind the prefix are folded.
    pub(crate) delimiter: Option<Vec<u8>>,
}

/// A step of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MergeStep {
    Key(Vec<u8>, Listed),
    /// The common prefix of keys, with the delimiter at its end.
    Prefix(Vec<u8>),
    /// Many keys were passed over; the listing goes on with the next call.
    PassedOver,
    End,
}

/// Merges the keys of all partitions into one order.
#[derive(Debug)]
pub(crate) struct KeyMerge {
    selection: Selection,
    cursors: Vec<Cursor>,
}

/// The place of a listing in one partition.
#[derive(Debug)]
struct Cursor {
    partition: PartitionId,
    /// The next key to read.
    start: Vec<u8>,
    ahead: VecDeque<(Vec<u8>, Listed)>,
    ahead_max: usize,
    is_at_end: bool,
}

impl KeyMerge {
    pub(crate) fn new(partitions: u32, selection: Selection) -> Self {
        let start = selection.start.as_slice().max(&selection.prefix).max(FIRST_KEY);
        let cursor = |number| Cursor {
            partition: PartitionId(number),
            start: start.to_vec(),
            ahead: VecDeque::new(),
            ahead_max: AHEAD_MIN,
            is_at_end: false,
        };
        let cursors = (0..partitions).map(cursor).collect();
        Self { selection, cursors }
    }

    /// The next key or common prefix, without keys that have expired at `now_ms`.
    pub(crate) fn step(&mut self, source: &impl KeySource, now_ms: i64) -> Result<MergeStep, Error> {
        for cursor in &mut self.cursors {
            if cursor.ahead.is_empty() && !cursor.is_at_end {
                cursor.read_ahead(source, &self.selection.prefix, now_ms)?;
                if cursor.ahead.is_empty() && !cursor.is_at_end {
                    return Ok(MergeStep::PassedOver);
                }
            }
        }
        let fronts = self.cursors.iter().enumerate().filter_map(|(at, cursor)| Some((&cursor.ahead.front()?.0, at)));
        let Some(at) = fronts.min().map(|(_, at)| at) else { return Ok(MergeStep::End) };
        let Some((key, listed)) = self.cursors[at].ahead.pop_front() else { return Ok(MergeStep::End) };
        let Some(common) = self.common_prefix(&key) else { return Ok(MergeStep::Key(key, listed)) };
        let common = common.to_vec();
        let behind = successor(&common);
        self.cursors.iter_mut().for_each(|cursor| cursor.skip_to(behind.as_deref()));
        Ok(MergeStep::Prefix(common))
    }

    fn common_prefix<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let delimiter = self.selection.delimiter.as_deref()?;
        let prefix = self.selection.prefix.len();
        let at = memmem::find(&key[prefix..], delimiter)?;
        Some(&key[..prefix + at + delimiter.len()])
    }
}

impl Cursor {
    fn read_ahead(&mut self, source: &impl KeySource, prefix: &[u8], now_ms: i64) -> Result<(), Error> {
        let (ahead, ahead_max) = (&mut self.ahead, self.ahead_max);
        let (mut visited, mut bytes, mut last) = (0, 0, None);
        source.list_keys(self.partition, &self.start, &mut |key, listed| {
            if !key.starts_with(prefix) {
                return ControlFlow::Break(());
            }
            visited += 1;
            bytes += key.len() + ENTRY_BYTES;
            if listed.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms) {
                ahead.push_back((key.to_vec(), listed));
            }
            if visited < ahead_max && bytes < AHEAD_BYTES {
                return ControlFlow::Continue(());
            }
            last = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        self.ahead_max = (2 * self.ahead_max).min(AHEAD_MAX);
        match last {
            Some(mut key) => {
                // The next key in order.
                key.push(0);
                self.start = key;
            }
            None => self.is_at_end = true,
        }
        Ok(())
    }

    /// Goes on at `start`; `None` is behind every key.
    fn skip_to(&mut self, start: Option<&[u8]>) {
        let Some(start) = start else {
            self.ahead.clear();
            self.is_at_end = true;
            return;
        };
        while self.ahead.front().is_some_and(|(key, _)| key.as_slice() < start) {
            self.ahead.pop_front();
        }
        if self.ahead.is_empty() && self.start.as_slice() < start {
            self.start = start.to_vec();
            self.ahead_max = AHEAD_MIN;
        }
    }
}

/// The first key behind all those that begin with `prefix`; `None` if there can be none.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut successor = prefix[..=end].to_vec();
    successor[end] += 1;
    Some(successor)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    const NOW_MS: i64 = 1_000;

    type Expiries = BTreeMap<Vec<u8>, Option<i64>>;

    fn listed(expires_ms: Option<i64>) -> Listed {
        let (content_type, tags) = (None, Vec::new());
        Listed { version: 0, length: 0, expires_ms, written_ms: 0, is_large: false, content_type, tags }
    }

    impl KeySource for Vec<Expiries> {
        fn list_keys(
            &self,
            partition: PartitionId,
            start: &[u8],
            visit: &mut dyn FnMut(&[u8], Listed) -> ControlFlow<()>,
        ) -> Result<(), Error> {
            for (key, expires_ms) in self[partition.0 as usize].range(start.to_vec()..) {
                if visit(key, listed(*expires_ms)).is_break() {
                    break;
                }
            }
            Ok(())
        }
    }

    /// The expected listing: a scan of all keys that knows nothing of partitions and seeks.
    fn expected(keys: &Expiries, selection: &Selection) -> Vec<Vec<u8>> {
        let mut found: Vec<Vec<u8>> = Vec::new();
        for (key, expires_ms) in keys.range(selection.start.clone()..) {
            let is_live = expires_ms.is_none_or(|expires_ms| expires_ms > NOW_MS);
            if !is_live || key[0] == 0 || !key.starts_with(&selection.prefix) {
                continue;
            }
            let folded = selection.delimiter.as_ref().and_then(|delimiter| {
                let at = (selection.prefix.len()..=key.len().saturating_sub(delimiter.len()))
                    .find(|at| key[*at..].starts_with(delimiter))?;
                Some(key[..at + delimiter.len()].to_vec())
            });
            let shown = folded.unwrap_or_else(|| key.clone());
            if found.last() != Some(&shown) {
                found.push(shown);
            }
        }
        found
    }

    /// All pages of `limit`, each begun where the one before has ended.
    fn pages(source: &Vec<Expiries>, selection: &Selection, limit: usize) -> Vec<Vec<u8>> {
        let (mut all, mut selection) = (Vec::new(), selection.clone());
        loop {
            let mut merge = KeyMerge::new(source.len() as u32, selection.clone());
            let mut left = limit;
            selection.start = loop {
                match merge.step(source, NOW_MS).unwrap() {
                    MergeStep::Key(key, _) | MergeStep::Prefix(key) if left == 0 => break key,
                    MergeStep::Key(key, _) | MergeStep::Prefix(key) => all.push(key),
                    MergeStep::PassedOver => continue,
                    MergeStep::End => return all,
                }
                left -= 1;
            };
        }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0), Just(1), Just(b'/'), Just(b'a'), Just(b'b'), Just(254), Just(255)];
        vec(byte, 1..6)
    }

    proptest! {
        #[test]
        fn pages_hold_what_a_plain_map_holds(
            keys in btree_map(key(), prop_oneof![2 => Just(None), 1 => Just(Some(5)), 1 => Just(Some(5_000))], 0..300),
            prefix in vec(prop_oneof![Just(b'a'), Just(b'/'), Just(255)], 0..3),
            start in vec(prop_oneof![Just(b'a'), Just(b'/'), Just(255)], 0..3),
            delimiter in prop_oneof![Just(None), Just(Some(b"/".to_vec())), Just(Some(vec![255])), Just(Some(b"ab".to_vec()))],
            limit in 1_usize..40,
            partitions in 1_usize..5,
        ) {
            let mut source = vec![Expiries::new(); partitions];
            for (number, (key, expires_ms)) in keys.iter().enumerate() {
                source[number * 7 % partitions].insert(key.clone(), *expires_ms);
            }
            let selection = Selection { prefix, start, delimiter };
            prop_assert_eq!(pages(&source, &selection, limit), expected(&keys, &selection));
        }
    }

    #[test]
    fn a_common_prefix_is_skipped_whatever_lies_below_it() {
        let keys: Expiries = (0..100_000).map(|number| (format!("a/{number:06}").into_bytes(), None)).collect();
        let source = vec![keys, Expiries::from([(b"b".to_vec(), None)])];
        let mut visited = 0;
        struct CountingSource<'a>(&'a Vec<Expiries>, std::cell::Cell<usize>);
        impl KeySource for CountingSource<'_> {
            fn list_keys(
                &self,
                partition: PartitionId,
                start: &[u8],
                visit: &mut dyn FnMut(&[u8], Listed) -> ControlFlow<()>,
            ) -> Result<(), Error> {
                self.0.list_keys(partition, start, &mut |key, listed| {
                    self.1.set(self.1.get() + 1);
                    visit(key, listed)
                })
            }
        }
        let counted = CountingSource(&source, std::cell::Cell::new(0));
        let selection = Selection { delimiter: Some(b"/".to_vec()), ..Selection::default() };
        let mut merge = KeyMerge::new(2, selection);
        assert_eq!(merge.step(&counted, NOW_MS).unwrap(), MergeStep::Prefix(b"a/".to_vec()));
        assert_eq!(merge.step(&counted, NOW_MS).unwrap(), MergeStep::Key(b"b".to_vec(), listed(None)));
        assert_eq!(merge.step(&counted, NOW_MS).unwrap(), MergeStep::End);
        visited += counted.1.get();
        assert!(visited < 200, "{visited} keys were read");
    }

    #[test]
    fn the_successor_is_behind_all_keys_of_a_prefix() {
        for (prefix, expected) in [
            (&b"a"[..], Some(&b"b"[..])),
            (b"a/", Some(b"a0")),
            (b"a\xff", Some(b"b")),
            (b"\xff\xff", None),
            (b"", None),
        ] {
            assert_eq!(successor(prefix).as_deref(), expected, "{prefix:?}");
        }
    }
}
