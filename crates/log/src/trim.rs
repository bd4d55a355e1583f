//! Moving a partition's first offset up when somebody asks for it.
//!
//! The journal says so first, behind everything that goes; the segments' files follow by retention. Until then a start
//! after a crash finds the records, and the frame that says that they are gone.

use std::sync::mpsc::sync_channel;

use millstream_types::Offset;

use crate::catalog::Effect;
use crate::frame::Part;
use crate::partition::PartitionLog;
use crate::round::{Answer, Control, Entry, Item, Waiter};
use crate::{AckLevel, Error, retention};

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
        if self.topic.is_memory {
            accept.recent.drop_below(first);
            self.set_first(first);
            return Ok(self.first());
        }
        // What is accepted and goes must not come after this in the journal.
        self.seal(&mut accept, &topic);
        let (id, partition) = (self.topic.id, self.id.partition);
        let mut encoded = Vec::new();
        Part::Trimmed { topic: id, partition, first: Offset(first) }.put(&mut encoded);
        let effects = vec![Effect::Trimmed { topic: id, partition, first: Offset(first) }];
        let (sender, receiver) = sync_channel(1);
        self.shared.work.push_control(Control {
            entry: Entry { order: self.shared.next_order(), item: Item::Parts { encoded, count: 1, effects } },
            waiter: Some(Waiter { level: AckLevel::Synced, answer: Answer::Thread(sender) }),
            pending_bytes: 0,
        });
        drop(accept);
        self.shared.work.urge();
        receiver.recv().unwrap_or(Err(Error::Stopped))?;
        self.shared.flush.wake();
        Ok(self.first())
    }
}
