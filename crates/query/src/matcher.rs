//! The live queries of one stream and a thread that matches, as one thing.

use std::ops::Range;
use std::sync::Arc;

use millstream_types::{BatchError, Offset, PartitionId, RecordBatch};

use crate::batch_matcher::{BatchMatcher, Matches, Tally};
use crate::catalogue::{Catalogue, EntryId};
use crate::compiled::Compiled;

/// The queries of one stream, each with a tag of the owner's choice. Owner: one thread; nothing is shared.
#[derive(Debug)]
pub struct Matcher<T> {
    catalogue: Catalogue<T>,
    batch_matcher: BatchMatcher,
}

impl<T> Default for Matcher<T> {
    fn default() -> Self {
        Self { catalogue: Catalogue::default(), batch_matcher: BatchMatcher::default() }
    }
}

impl<T> Matcher<T> {
    /// Adds a query with its tag.
    pub fn insert(&mut self, query: Arc<Compiled>, tag: T) -> EntryId {
        self.catalogue.insert(query, tag)
    }

    /// Removes a query and returns its tag.
    pub fn remove(&mut self, id: EntryId) -> Option<T> {
        let (tag, gone) = self.catalogue.remove(id)?;
        if let Some(output) = gone {
            self.batch_matcher.forget(output);
        }
        Some(tag)
    }

    /// The number of queries in the set.
    pub fn len(&self) -> usize {
        self.catalogue.len()
    }

    /// True if there are no queries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tags of all queries.
    pub fn tags(&self) -> impl Iterator<Item = &T> {
        self.catalogue.tags()
    }

    /// Matches the records of `batch` (which is not compressed) from offset `from` on; [`Self::drain`] hands out the
    /// results. `now_ms` is what NOW means.
    ///
    /// # Errors
    /// A record that cannot be read; those before it have been matched.
    pub fn run(
        &mut self,
        batch: &RecordBatch,
        partition: PartitionId,
        from: Offset,
        now_ms: i64,
    ) -> Result<Tally, BatchError> {
        self.run_within(batch, partition, from..Offset(u64::MAX), now_ms)
    }

    /// As [`Self::run`], for records within `offsets`.
    pub(crate) fn run_within(
        &mut self,
        batch: &RecordBatch,
        partition: PartitionId,
        offsets: Range<Offset>,
        now_ms: i64,
    ) -> Result<Tally, BatchError> {
        self.catalogue.refresh();
        self.batch_matcher.run(&self.catalogue, batch, partition, offsets, now_ms)
    }

    /// Hands out the matches since the last call, query by query.
    pub fn drain(&mut self, take: impl FnMut(EntryId, &T, Matches)) {
        self.batch_matcher.drain(&self.catalogue, take);
    }
}
