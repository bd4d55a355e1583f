//! The effects of the commands in one batch: changes, source positions, records for other topics.
//!
//! Each command is checked right after its decision. A command whose changes the log would refuse is undone and
//! refused by itself, and the batch ends before it exceeds one append.

use std::sync::Arc;

use millstream_log::Log;
use millstream_types::{Offset, TopicPartition};

use crate::state_record::{RecordHeaders, StateRecords};
use crate::view::{Draft, Publish, StateRecord, View};
use crate::{Error, SourcePartition, Sources};

/// Largest overhead of a published record in an append.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// The changes of one batch, not yet appended.
pub(crate) struct ChangeBatch<V: View> {
    changes: Vec<V::Change>,
    advanced: Vec<(SourcePartition, Offset)>,
    published: Vec<(TopicPartition, Publish)>,
    records: StateRecords,
    published_bytes: usize,
    /// Partitions of published records, with the record limits of their topics.
    targets: Vec<(TopicPartition, usize)>,
}

/// The records of a batch, for one append.
pub(crate) struct EncodedChanges {
    /// The state records: one for each change, then the source positions.
    pub(crate) records: Vec<StateRecord>,
    pub(crate) headers: Vec<RecordHeaders>,
    /// The records for other topics.
    pub(crate) published: Vec<(TopicPartition, Publish)>,
}

/// The size of the batch before a command, to undo that command.
#[derive(Clone, Copy)]
pub(crate) struct Savepoint {
    changes: usize,
    advanced: usize,
    published: usize,
    published_bytes: usize,
}

/// The limits of an append, and its destination.
pub(crate) struct AppendLimits<'a> {
    pub(crate) partition: &'a TopicPartition,
    pub(crate) record_max_bytes: usize,
    pub(crate) append_max_bytes: usize,
    pub(crate) log: &'a dyn Log,
}

impl<V: View> ChangeBatch<V> {
    pub(crate) fn new() -> Self {
        Self {
            changes: Vec::new(),
            advanced: Vec::new(),
            published: Vec::new(),
            records: StateRecords::default(),
            published_bytes: 0,
            targets: Vec::new(),
        }
    }

    /// A draft that collects the changes of the next command.
    pub(crate) fn draft<'a>(
        &'a mut self,
        state: &'a mut V::State,
        sources: &'a mut Sources,
        now_ms: i64,
    ) -> Draft<'a, V> {
        Draft {
            state,
            sources,
            changes: &mut self.changes,
            advanced: &mut self.advanced,
            published: &mut self.published,
            now_ms,
        }
    }

    pub(crate) fn savepoint(&self) -> Savepoint {
        Savepoint {
            changes: self.changes.len(),
            advanced: self.advanced.len(),
            published: self.published.len(),
            published_bytes: self.published_bytes,
        }
    }

    /// Encodes and checks the effects of one command since `savepoint`.
    ///
    /// # Errors
    /// [`Error::ChangesTooLarge`] or [`Error::Log`] if the log would refuse them. Then call [`ChangeBatch::undo`].
    pub(crate) fn encode_since(&mut self, savepoint: Savepoint, limits: &AppendLimits<'_>) -> Result<(), Error> {
        let before = self.size_bytes();
        for change in &self.changes[savepoint.changes..] {
            let size_bytes = self.records.change::<V>(change);
            check_record(size_bytes, limits.record_max_bytes, limits.partition)?;
        }
        for index in savepoint.published..self.published.len() {
            let limit_bytes = self.record_limit(index, limits.log)?;
            let (to, record) = &self.published[index];
            let size_bytes = payload_bytes(record);
            check_record(size_bytes, limit_bytes, to)?;
            self.published_bytes += size_bytes + RECORD_OVERHEAD_BYTES * (1 + record.headers.len());
        }
        let size_bytes = self.size_bytes() - before;
        if size_bytes > limits.append_max_bytes {
            let (partition, limit_bytes) = (limits.partition.clone(), limits.append_max_bytes);
            return Err(Error::ChangesTooLarge { partition, size_bytes, limit_bytes });
        }
        Ok(())
    }

    fn record_limit(&mut self, index: usize, log: &dyn Log) -> Result<usize, Error> {
        let to = &self.published[index].0;
        if let Some((_, limit_bytes)) = self.targets.iter().find(|(known, _)| known == to) {
            return Ok(*limit_bytes);
        }
        let limit_bytes = log.partition(to)?.topic().config.record_max_bytes;
        self.targets.push((to.clone(), limit_bytes));
        Ok(limit_bytes)
    }

    /// Discards the effects since `savepoint`, and applies the earlier ones to `state` and `sources`, which hold
    /// the state before the batch.
    pub(crate) fn undo(&mut self, savepoint: Savepoint, state: &mut V::State, sources: &mut Sources) {
        self.changes.truncate(savepoint.changes);
        self.advanced.truncate(savepoint.advanced);
        self.published.truncate(savepoint.published);
        self.records.truncate(savepoint.changes);
        self.published_bytes = savepoint.published_bytes;
        self.changes.iter().for_each(|change| V::apply(state, change));
        for (source, next) in &self.advanced {
            sources.insert(*source, *next);
        }
    }

    /// Largest size of the batch in an append.
    pub(crate) fn size_bytes(&self) -> usize {
        self.records.size_bytes() + self.published_bytes
    }

    /// The changes and their encoding, with the newest position of each source only.
    pub(crate) fn finish(mut self) -> (Vec<V::Change>, EncodedChanges) {
        for (i, (source, next)) in self.advanced.iter().enumerate() {
            if !self.advanced[i + 1..].iter().any(|(later, _)| later == source) {
                self.records.source::<V>(*source, *next);
            }
        }
        let (records, headers) = self.records.finish();
        (self.changes, EncodedChanges { records, headers, published: self.published })
    }
}

fn check_record(size_bytes: usize, limit_bytes: usize, partition: &TopicPartition) -> Result<(), Error> {
    if size_bytes <= limit_bytes {
        return Ok(());
    }
    let partition = partition.clone();
    Err(Error::Log(Arc::new(millstream_log::Error::RecordTooLarge { partition, size_bytes, limit_bytes })))
}

fn payload_bytes(record: &Publish) -> usize {
    let headers = record.headers.iter().map(|(key, value)| key.len() + value.len());
    record.key.as_ref().map_or(0, Vec::len) + record.value.as_ref().map_or(0, Vec::len) + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use millstream_types::{PartitionId, TopicId};

    use super::*;
    use crate::tally::{Change, TallyView};

    #[test]
    fn the_newest_position_of_each_source_is_written_and_undo_restores_the_one_before() {
        let source = |number| SourcePartition { topic: TopicId(1), partition: PartitionId(number) };
        let (mut state, mut sources) = (imbl::OrdMap::new(), Sources::new());
        let mut batch = ChangeBatch::<TallyView>::new();
        let mut advance = |batch: &mut ChangeBatch<TallyView>, number, next| {
            let mut draft = batch.draft(&mut state, &mut sources, 0);
            draft.change(Change { name: format!("part-{next}"), number: Some(1) });
            draft.advance(source(number), Offset(next));
            draft.applied(source(number))
        };
        assert_eq!(advance(&mut batch, 0, 10), Offset(10));
        assert_eq!(advance(&mut batch, 1, 15), Offset(15));
        assert_eq!(advance(&mut batch, 0, 20), Offset(20));
        assert_eq!(advance(&mut batch, 0, 12), Offset(20), "it never goes back");
        let savepoint = batch.savepoint();
        assert_eq!(advance(&mut batch, 0, 30), Offset(30));
        let (mut state, mut sources) = (imbl::OrdMap::new(), Sources::new());
        batch.undo(savepoint, &mut state, &mut sources);
        assert_eq!(sources, [(source(0), Offset(20)), (source(1), Offset(15))].into_iter().collect());
        assert_eq!(state.keys().collect::<Vec<_>>(), ["part-10", "part-12", "part-15", "part-20"]);

        let mut expected = StateRecords::default();
        expected.source::<TallyView>(source(1), Offset(15));
        expected.source::<TallyView>(source(0), Offset(20));
        assert_eq!(batch.finish().1.records, expected.finish().0);
    }
}
