//! The way into the log for what concerns several partitions, or the catalog.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use crate::Error;
use crate::ack::{AckLevel, AckReply, AckWaiter};
use crate::catalog::{CatalogChange, TopicCatalog};
use crate::frame::FramePart;
use crate::group_commit::{ControlEntry, JournalEntry, JournalItem};
use crate::queues::Queues;
use crate::shared::EngineShared;

/// Accepts appends to several partitions, ends of transactions and changes of the catalog. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) shared: Arc<EngineShared>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) catalog: Arc<TopicCatalog>,
}

impl Acceptor {
    /// Writes a part to the journal; returns once it and everything before it is durable.
    pub(crate) fn control(&self, part: Option<&FramePart>, effects: Vec<CatalogChange>) -> Result<(), Error> {
        let mut encoded = Vec::new();
        part.iter().for_each(|part| part.put(&mut encoded));
        let (sender, receiver) = sync_channel(1);
        let item = JournalItem::Parts { encoded, count: u32::from(part.is_some()), effects };
        self.queues.work.push_control(ControlEntry {
            entry: JournalEntry { order: self.shared.next_order(), item },
            waiter: Some(AckWaiter { level: AckLevel::Synced, answer: AckReply::Thread(sender) }),
            pending_bytes: 0,
        });
        self.queues.work.urge();
        self.shared.answer(&receiver)
    }
}
