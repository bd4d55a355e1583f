//! Accepts records of a writer's open transaction.

use millstream_types::{Offset, Producer, Record};

use super::disk_use;
use crate::partition::PartitionLog;
use crate::record_limits::record_bytes;
use crate::{AckLevel, Done, Error};

impl PartitionLog {
    /// Appends records to the open transaction of a producer that the log has given to a writer; it begins with the first.
    pub(crate) fn accept_in_transaction(&self, records: &[Record<'_>], producer_id: i64) -> Result<(), Error> {
        let topic = self.topic.current();
        if self.topic.is_memory {
            let what = "belongs to a transaction, and the topic is in memory only";
            return Err(Error::UnsupportedBatch { partition: self.id.clone(), what });
        }
        let batch_max_bytes = self.batch_max_bytes(&topic);
        let size_bytes = self.check_append(records, &topic)?.size_bytes;
        let mut accept = self.lock();
        self.check_begins(&accept, producer_id)?;
        // The commit waits for the disk, for all of the transaction.
        let level = AckLevel::Memory;
        self.admit(&accept, records.len() as u64, size_bytes, level, disk_use(records, &topic))?;
        self.seal(&mut accept, &topic);
        let (first, order) = (accept.next, self.shared.next_order());
        let mut rest = records;
        while !rest.is_empty() {
            let count = fitting(rest, batch_max_bytes);
            let (batch, behind) = rest.split_at(count);
            rest = behind;
            let base_sequence = accept.producers.next_sequence(producer_id);
            accept.builder.push_all(batch);
            accept.builder.set_producer(Producer { id: producer_id, epoch: 0, base_sequence });
            accept.builder.set_transactional();
            let base = Offset(accept.next);
            let sealed = accept.builder.seal(base, self.shared.epoch, topic.config.compression);
            let sealed = self.timed(sealed, &topic);
            self.observe(&mut accept, &sealed);
            self.push_sealed(&mut accept, sealed, order);
            accept.next += count as u64;
        }
        accept.open_from = accept.next;
        self.accepted(accept, &topic, first, size_bytes, level, Done::ignore());
        Ok(())
    }
}

/// The number of records that fit one batch; at least one.
fn fitting(records: &[Record<'_>], batch_max_bytes: usize) -> usize {
    let sizes = records.iter().scan(0, |total, record| {
        *total += record_bytes(record);
        Some(*total)
    });
    sizes.take_while(|total| *total <= batch_max_bytes).count().max(1)
}
