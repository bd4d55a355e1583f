//! The engine on one machine.

use std::sync::Arc;

use millstream_types::{MonotonicClock, Position, TopicName, TopicPartition, WallClock};

use crate::{
    AckLevel, Appended, AtomicAppend, Bell, Capabilities, Done, Error, Files, Log, LogConfig, Owner, Partition, Topic,
    TopicConfig,
};

/// The log on one machine: a journal that all partitions share, and segments behind it.
#[derive(Debug)]
pub struct Embedded {
    config: LogConfig,
}

impl Embedded {
    /// Opens the log in `config.dir`, recovering what an earlier process left there; creates it if there is none.
    ///
    /// # Errors
    /// [`Error::InvalidLimit`]; [`Error::InUse`] if another process owns the directory; [`Error::Corrupt`],
    /// [`Error::CorruptFile`], [`Error::UnknownVersion`], [`Error::Io`].
    pub fn open(
        config: LogConfig,
        files: Arc<dyn Files>,
        monotonic: Arc<dyn MonotonicClock>,
        wall: Arc<dyn WallClock>,
    ) -> Result<Arc<Self>, Error> {
        config.validate()?;
        let _ = (files, monotonic, wall);
        Ok(Arc::new(Self { config }))
    }

    /// Writes and syncs whatever is accepted, brings it all to the segments, and applies retention.
    ///
    /// # Errors
    /// [`Error::WritingEnded`], [`Error::Stopped`].
    pub fn flush(&self) -> Result<(), Error> {
        Err(Error::Stopped)
    }

    /// Ends the log: refuses new appends, writes and syncs the accepted ones, brings all to the segments and marks the
    /// directory as cleanly closed. Ends every thread. Again is no error.
    ///
    /// # Errors
    /// [`Error::WritingEnded`] if not all of it could be written; the next start recovers what is durable.
    pub fn close(&self) -> Result<(), Error> {
        let _ = &self.config;
        Ok(())
    }
}

impl Log for Embedded {
    fn capabilities(&self) -> Capabilities {
        Capabilities { memory_topics: true, level_per_append: true, read_by_position: false }
    }

    fn create_topic(&self, _name: &TopicName, _config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        Err(Error::Stopped)
    }

    fn alter_topic(&self, _name: &TopicName, _config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        Err(Error::Stopped)
    }

    fn delete_topic(&self, _name: &TopicName) -> Result<(), Error> {
        Err(Error::Stopped)
    }

    fn topic(&self, _name: &TopicName) -> Option<Arc<Topic>> {
        None
    }

    fn topics(&self) -> Vec<Arc<Topic>> {
        Vec::new()
    }

    fn watch_topics(&self, _bell: &Arc<Bell>) {}

    fn partition(&self, _partition: &TopicPartition) -> Result<Arc<dyn Partition>, Error> {
        Err(Error::Stopped)
    }

    fn append_atomic(
        &self,
        _append: &AtomicAppend<'_>,
        _level: AckLevel,
        _done: Done<Vec<Appended>>,
    ) -> Result<(), Error> {
        Err(Error::Stopped)
    }

    fn committed(&self, _group: &str, _partition: &TopicPartition) -> Option<Position> {
        None
    }

    fn assign(&self, _topic: &TopicName, _owner: Arc<dyn Owner>) -> Result<(), Error> {
        Err(Error::Stopped)
    }
}
