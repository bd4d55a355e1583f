//! Moves a partition's first offset up on request.
//!
//! The trim enters the journal behind all records that it removes; retention removes the segment files later. A start
//! after a crash finds the old records and the frame that removes them.

use millstream_types::Offset;

use crate::partition::PartitionLog;
use crate::{Error, retention};

impl PartitionLog {
    pub(crate) fn trim_below(&self, before: u64) -> Result<u64, Error> {
        let topic = self.topic.current();
        if !topic.config.cleanup.expires() {
            return Err(Error::NotTrimmable { partition: self.id.clone() });
        }
        let mut accept = self.lock();
        self.shared.check_open()?;
        self.topic.check_exists()?;
        let stable = self.stable();
        if before > stable {
            let (wanted, stable) = (Offset(before), Offset(stable));
            return Err(Error::BeyondStable { partition: self.id.clone(), wanted, stable });
        }
        let first = retention::unheld(self, &accept.segments, before, topic.config.hold_max_bytes);
        debug_assert!(first <= stable, "{}: what is not stable is not removed", self.id);
        if self.topic.is_memory {
            accept.tail_cache.drop_below(first);
            self.set_first(first);
            return Ok(self.first());
        }
        // Seal first: removed records must precede the trim in the journal.
        self.seal(&mut accept, &topic);
        let receiver = self.queues.push_trim(self, first);
        drop(accept);
        self.queues.urge_appender();
        self.shared.answer(&receiver)?;
        self.queues.wake_writeback();
        Ok(self.first())
    }
}
