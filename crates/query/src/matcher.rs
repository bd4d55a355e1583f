//! The live queries of one stream and a thread that matches, as one thing.

use std::ops::Range;
use std::sync::Arc;

use millstream_types::{BatchError, Offset, PartitionId, RecordBatch};

use crate::catalogue::{Catalogue, EntryId};
use crate::compiled::Compiled;
use crate::finder::{Finder, Tally, Yield};

/// The queries of one stream, each with a tag of the owner's choice. Owner: one thread; nothing is shared.
#[derive(Debug)]
pub struct Matcher<T> {
    catalogue: Catalogue<T>,
    finder: Finder,
}

impl<T> Default for Matcher<T> {
    fn default() -> Self {
        Self { catalogue: Catalogue::default(), finder: Finder::default() }
    }
}

impl<T> Matcher<T> {
    /// Adds a query.
    pub fn insert(&mut self, query: Arc<Compiled>, tag: T) -> EntryId {
        self.catalogue.insert(query, tag)
    }

    /// Takes a query out.
    pub fn remove(&mut self, id: EntryId) -> Option<T> {
        let (tag, gone) = self.catalogue.remove(id)?;
        if let Some(output) = gone {
            self.finder.forget(output);
        }
        Some(tag)
    }

    /// How many queries there are.
    pub fn len(&self) -> usize {
        self.catalogue.len()
    }

    /// Whether there are none.
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
        self.finder.run(&self.catalogue, batch, partition, offsets, now_ms)
    }

    /// Hands out what the batches since the last call gave, query by query.
    pub fn drain(&mut self, take: impl FnMut(EntryId, &T, Yield)) {
        self.finder.drain(&self.catalogue, take);
    }
}
