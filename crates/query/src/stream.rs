//! A topic as live queries read it: its partitions, and the queries themselves, once for all threads.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use millstream_log::{Partition, Topic};
use millstream_types::TopicId;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::catalogue::{Catalogue, EntryId};
use crate::live::Live;

/// The stream that a query reads.
pub(crate) struct Stream {
    pub(crate) topic: Arc<Topic>,
    pub(crate) partitions: Vec<Arc<dyn Partition>>,
    /// Shut for as long as a thread matches what it has just read.
    catalogue: Arc<RwLock<Catalogue<Arc<Live>>>>,
}

/// The streams that have queries: all of one have the same.
#[derive(Default)]
pub(crate) struct Streams(Mutex<HashMap<TopicId, Weak<Stream>>>);

impl Streams {
    /// The stream of a topic with these partitions.
    pub(crate) fn of(&self, topic: Arc<Topic>, partitions: Vec<Arc<dyn Partition>>) -> Arc<Stream> {
        let mut streams = self.0.lock();
        let stream = match streams.get(&topic.id).and_then(Weak::upgrade) {
            Some(known) if Arc::ptr_eq(&known.topic, &topic) => return known,
            // It has been altered since.
            Some(known) => Stream { topic, partitions, catalogue: known.catalogue.clone() },
            None => Stream::new(topic, partitions),
        };
        let stream = Arc::new(stream);
        streams.retain(|_, stream| stream.strong_count() > 0);
        streams.insert(stream.topic.id, Arc::downgrade(&stream));
        stream
    }
}

impl Stream {
    pub(crate) fn new(topic: Arc<Topic>, partitions: Vec<Arc<dyn Partition>>) -> Self {
        Self { topic, partitions, catalogue: Arc::default() }
    }

    /// Takes a query in that none of the threads has taken in yet, unless it has ended.
    pub(crate) fn insert(&self, query: &Arc<Live>) {
        if query.entry.load(Ordering::Acquire) != 0 {
            return;
        }
        let mut catalogue = self.catalogue.write();
        // Whoever takes it out does so after its end.
        if query.entry.load(Ordering::Relaxed) == 0 && !query.outbox.has_ended() {
            let entry = catalogue.insert(query.compiled.clone(), query.clone());
            query.entry.store(entry.to_number(), Ordering::Release);
        }
    }

    /// Takes a query out that has ended.
    pub(crate) fn remove(&self, query: &Live) {
        if query.entry.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut catalogue = self.catalogue.write();
        if let Some(entry) = EntryId::of_number(query.entry.swap(0, Ordering::Relaxed)) {
            catalogue.remove(entry);
        }
    }

    /// The queries, ready for matching; nobody comes or goes meanwhile.
    pub(crate) fn catalogue(&self) -> RwLockReadGuard<'_, Catalogue<Arc<Live>>> {
        let catalogue = self.catalogue.read();
        if catalogue.is_fresh() {
            return catalogue;
        }
        drop(catalogue);
        let mut catalogue = self.catalogue.write();
        catalogue.refresh();
        RwLockWriteGuard::downgrade(catalogue)
    }
}
