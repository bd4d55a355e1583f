//! A topic with the queries that read it, of type `Q`: its partitions, and the queries once for all threads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use millstream_log::{Partition, Topic};
use millstream_types::TopicId;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::catalogue::Catalogue;

/// The stream that a query reads.
pub(crate) struct Stream<Q> {
    pub(crate) topic: Arc<Topic>,
    pub(crate) partitions: Vec<Arc<dyn Partition>>,
    /// Locked while a thread matches a batch.
    catalogue: Arc<RwLock<Catalogue<Q>>>,
}

/// The streams that have queries: all of one have the same.
pub(crate) struct StreamTable<Q>(Mutex<HashMap<TopicId, Weak<Stream<Q>>>>);

impl<Q> Default for StreamTable<Q> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Q> StreamTable<Q> {
    /// The stream of a topic with these partitions.
    pub(crate) fn of(&self, topic: Arc<Topic>, partitions: Vec<Arc<dyn Partition>>) -> Arc<Stream<Q>> {
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

impl<Q> Stream<Q> {
    pub(crate) fn new(topic: Arc<Topic>, partitions: Vec<Arc<dyn Partition>>) -> Self {
        Self { topic, partitions, catalogue: Arc::default() }
    }

    /// The catalogue for matching; it does not change while the guard exists.
    pub(crate) fn catalogue(&self) -> RwLockReadGuard<'_, Catalogue<Q>> {
        let catalogue = self.catalogue.read();
        if catalogue.is_fresh() {
            return catalogue;
        }
        drop(catalogue);
        let mut catalogue = self.catalogue.write();
        catalogue.refresh();
        RwLockWriteGuard::downgrade(catalogue)
    }

    /// The catalogue for adding and removing queries; no thread matches meanwhile.
    pub(crate) fn catalogue_mut(&self) -> RwLockWriteGuard<'_, Catalogue<Q>> {
        self.catalogue.write()
    }
}
