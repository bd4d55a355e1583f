//! What the commands of one batch have done so far: changes, source positions, records for other topics.
//!
//! Each command is checked when it has been decided, so that one whose changes no log would take is undone and refused
//! by itself, and the batch ends before it grows beyond what one append may carry.

use std::sync::Arc;

use millstream_log::Log;
use millstream_types::{Offset, TopicPartition};

use crate::state_record::{StateRecord, StateRecords};
use crate::view::{Draft, Publish, View};
use crate::{Error, Source, Sources};

/// What a published record takes in an append beside its parts, at most.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// See the module.
pub(crate) struct Gathered<V: View> {
    changes: Vec<V::Change>,
    advanced: Vec<(Source, Offset)>,
    published: Vec<(TopicPartition, Publish)>,
    records: StateRecords,
    published_bytes: usize,
    /// Partitions that were published to, with their topics' limits.
    targets: Vec<(TopicPartition, usize)>,
}

/// How much was there before a command.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    changes: usize,
    advanced: usize,
    published: usize,
    published_bytes: usize,
}

/// Where a batch goes, and what may be in it.
pub(crate) struct Limits<'a> {
    pub(crate) partition: &'a TopicPartition,
    pub(crate) record_max_bytes: usize,
    pub(crate) append_max_bytes: usize,
    pub(crate) log: &'a dyn Log,
}

impl<V: View> Gathered<V> {
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

    /// Where the next command leaves its changes.
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

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            changes: self.changes.len(),
            advanced: self.advanced.len(),
            published: self.published.len(),
            published_bytes: self.published_bytes,
        }
    }

    /// Takes in what one command has done since `mark`.
    ///
    /// # Errors
    /// If the log would refuse it: [`Error::ChangesTooLarge`], [`Error::Log`]. Then [`Gathered::undo`] it.
    pub(crate) fn take_in(&mut self, mark: Mark, limits: &Limits<'_>) -> Result<(), Error> {
        let before = self.size_bytes();
        for change in &self.changes[mark.changes..] {
            let size_bytes = self.records.change::<V>(change);
            check_record(size_bytes, limits.record_max_bytes, limits.partition)?;
        }
        for index in mark.published..self.published.len() {
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

    /// Forgets what was done since `mark`, and brings `state` and `sources` (those before the batch) up to there.
    pub(crate) fn undo(&mut self, mark: Mark, state: &mut V::State, sources: &mut Sources) {
        self.changes.truncate(mark.changes);
        self.advanced.truncate(mark.advanced);
        self.published.truncate(mark.published);
        self.records.truncate(mark.changes);
        self.published_bytes = mark.published_bytes;
        self.changes.iter().for_each(|change| V::apply(state, change));
        for (source, next) in &self.advanced {
            sources.insert(*source, *next);
        }
    }

    /// What it takes in an append, at most.
    pub(crate) fn size_bytes(&self) -> usize {
        self.records.size_bytes() + self.published_bytes
    }

    /// The state records (of each source the newest position only) and the records for other topics.
    pub(crate) fn finish(mut self) -> (Vec<StateRecord>, Vec<(TopicPartition, Publish)>) {
        for (i, (source, next)) in self.advanced.iter().enumerate() {
            if !self.advanced[i + 1..].iter().any(|(later, _)| later == source) {
                self.records.source(*source, *next);
            }
        }
        (self.records.finish(), self.published)
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
    use crate::tally::Tally;

    #[test]
    fn of_each_source_the_newest_position_is_written_and_undoing_brings_back_the_one_before() {
        let source = |number| Source { topic: TopicId(1), partition: PartitionId(number) };
        let (mut state, mut sources) = (imbl::OrdMap::new(), Sources::new());
        let mut gathered = Gathered::<Tally>::new();
        let mut advance = |gathered: &mut Gathered<Tally>, number, next| {
            let mut draft = gathered.draft(&mut state, &mut sources, 0);
            draft.change((format!("part-{next}"), Some(1)));
            draft.advance(source(number), Offset(next));
            draft.applied(source(number))
        };
        assert_eq!(advance(&mut gathered, 0, 10), Offset(10));
        assert_eq!(advance(&mut gathered, 1, 15), Offset(15));
        assert_eq!(advance(&mut gathered, 0, 20), Offset(20));
        assert_eq!(advance(&mut gathered, 0, 12), Offset(20), "it never goes back");
        let mark = gathered.mark();
        assert_eq!(advance(&mut gathered, 0, 30), Offset(30));
        let (mut state, mut sources) = (imbl::OrdMap::new(), Sources::new());
        gathered.undo(mark, &mut state, &mut sources);
        assert_eq!(sources, [(source(0), Offset(20)), (source(1), Offset(15))].into_iter().collect());
        assert_eq!(state.keys().collect::<Vec<_>>(), ["part-10", "part-12", "part-15", "part-20"]);

        let mut expected = StateRecords::default();
        expected.source(source(1), Offset(15));
        expected.source(source(0), Offset(20));
        assert_eq!(gathered.finish().0, expected.finish());
    }
}
