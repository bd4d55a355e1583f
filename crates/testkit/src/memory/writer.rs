//! A fenced writer.

use std::sync::Arc;

use millstream_log::{AckLevel, Appended, AtomicAppend, Done, Error, Writer};
use millstream_types::{Record, TopicPartition};

use super::Shared;

pub(super) struct MemoryWriter {
    shared: Arc<Shared>,
    name: String,
    number: u64,
}

impl MemoryWriter {
    pub(super) fn new(shared: Arc<Shared>, name: String, number: u64) -> Self {
        Self { shared, name, number }
    }
}

impl Writer for MemoryWriter {
    fn name(&self) -> &str {
        &self.name
    }

    fn append(&self, partition: &TopicPartition, records: &[Record<'_>]) -> Result<(), Error> {
        let now_ms = self.shared.wall.now_ms();
        self.shared
            .change(|contents| contents.append_in_transaction(&self.name, self.number, partition, records, now_ms))
    }

    fn commit(&self, append: &AtomicAppend<'_>, _level: AckLevel, done: Done<Vec<Appended>>) -> Result<(), Error> {
        let now_ms = self.shared.wall.now_ms();
        let outcome = self.shared.change(|contents| contents.commit(&self.name, self.number, append, now_ms))?;
        self.shared.answer(done, outcome);
        Ok(())
    }

    fn abort(&self) -> Result<(), Error> {
        self.shared.change(|contents| contents.abort(&self.name, self.number))
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        // A later writer of the name has voided it already, and so does the next start.
        let _ = self.abort();
    }
}
