//! Sources and sinks: how records enter a job and leave it.
//!
//! A connector is one file or folder: a [`NodeType`] that describes its keys, and a source or a sink. Neither may wait:
//! what cannot be done now is answered "not yet", and the connector wakes its task once it can be.
//!
//! Not here: when sources are read (`runtime`), when their positions move (`delivery`).

mod bells;
mod blackhole;
mod blocking;
mod collect;
mod entities;
mod file;
mod generator;
mod http;
mod list;
mod stdout;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{Error as LogError, Log, PositionCommit, RenewedWriter, Writer};
use millstream_types::{MonotonicClock, TenantId, WallClock};

pub(crate) use self::bells::{Bells, HungBell};
pub(crate) use self::blocking::Blocking;
pub(crate) use self::collect::Collected;
pub(crate) use self::entities::check_service_path;
pub(crate) use self::file::{Chunk, ColumnType, FILES_DIR, FileSpace, Location, ReadPlan, RecordReader, check_path};
pub(crate) use self::http::{HttpAccess, HttpThread};
pub(crate) use self::list::TICK_MS;
pub(crate) use self::stream::{PartitionReader, StreamProgress, group_of, groups_of, position_commit, topic_name};
use crate::Error;
use crate::batch::Batch;
use crate::delivery::SourcePosition;
use crate::document::{Node, NodeType};
use crate::entities::EntityReader;
use crate::expression::RecordError;
use crate::memory::InFlightMemory;
use crate::state::StateBudget;

/// The types of sources and sinks, in the order of the reference page.
pub(crate) fn catalogue() -> [NodeType; 11] {
    [
        stream::SOURCE,
        file::SOURCE,
        list::SOURCE,
        generator::SOURCE,
        stream::SINK,
        entities::SINK,
        file::SINK,
        http::SINK,
        collect::SINK,
        stdout::SINK,
        blackhole::SINK,
    ]
}

/// Wakes the task that a connector belongs to.
pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

/// Takes the reason why a node does not go on; `None` once it does.
pub(crate) type TellPause = Arc<dyn Fn(Option<String>) + Send + Sync>;

/// The services of the process that connectors use.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) log: Arc<dyn Log>,
    /// The writer of all jobs.
    pub(crate) writer: Arc<RenewedWriter>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) clock: Arc<dyn MonotonicClock>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) blocking: Arc<Blocking>,
    pub(crate) http: Arc<HttpThread>,
    /// Threads that read the state of jobs which begin.
    pub(crate) restoring: Arc<Blocking>,
    pub(crate) memory: InFlightMemory,
    pub(crate) state: StateBudget,
    /// `None` if jobs may use no files.
    pub(crate) files: Option<Arc<FileSpace>>,
    /// `None` in a process without entities.
    pub(crate) entities: Option<Arc<dyn EntityReader>>,
}

/// The surroundings of one instance of a source or sink.
pub(crate) struct ConnectorContext<'a> {
    /// `None` in a test, whose connectors are lists.
    pub(crate) services: Option<&'a Services>,
    pub(crate) wall: &'a Arc<dyn WallClock>,
    pub(crate) tenant: &'a TenantId,
    /// The name of the job.
    pub(crate) job: &'a str,
    /// The id of the job.
    pub(crate) job_id: &'a str,
    pub(crate) node: &'a Node,
    /// The number of this instance among `instances`.
    pub(crate) instance: u32,
    pub(crate) instances: u32,
    pub(crate) waker: Waker,
    pub(crate) tell_pause: TellPause,
    /// The node has error routes, so that a sink may go on behind records that it cannot write.
    pub(crate) routes_errors: bool,
    pub(crate) collected: &'a Arc<Collected>,
    pub(crate) places: Option<Arc<dyn Places>>,
    /// Epochs store the positions of sources: these store none themselves.
    pub(crate) stores_by_epoch: bool,
    /// Asks for the end of the epoch; `Some` if the records of sinks are appended with its commit.
    pub(crate) ends_epoch: Option<Waker>,
}

/// Keeps the places of sources that have no log, for as long as their job is stored as running.
pub(crate) trait Places: Send + Sync {
    /// The number of records of the node that are finished.
    fn records_read(&self, node: &str) -> u64;
    /// Stores the number. Waits until it is durable; `false` if that failed.
    fn store(&self, node: &str, records_read: u64) -> bool;
}

impl<'a> ConnectorContext<'a> {
    /// The services of the process.
    ///
    /// # Errors
    /// [`Error::Connector`] in a test, which has no services.
    pub(crate) fn services(&self) -> Result<&'a Services, Error> {
        let Node { name, kind, .. } = self.node;
        self.services.ok_or_else(|| Error::connector(name, format!("'{kind}' needs a server, and a test has none")))
    }
}

/// The answer of a source that is asked for records.
#[derive(Debug)]
pub(crate) enum Polled {
    /// Records, and the place of the source after them.
    Batch(Batch, SourcePosition),
    /// Records, some of which cannot be read: their errors, by ascending row.
    WithErrors(Batch, Vec<RecordError>, SourcePosition),
    /// Nothing yet. The source wakes its task, at the latest after this time.
    NotYet(Option<Duration>),
    /// Nothing, for this reason. The source wakes its task once it is gone.
    Paused(String),
    /// There will be no more.
    End,
}

/// The answer of a connector that is asked to start.
#[derive(Debug)]
pub(crate) enum Started {
    Yes,
    /// Not yet, for this reason; ask again later.
    NotYet(String),
}

/// One instance of a source.
pub(crate) trait Source: Send {
    /// Prepares to read; asked again until it has started.
    fn start(&mut self) -> Result<Started, Error>;
    /// The records that [`Source::poll`] could return now, as far as a full batch is worth a short wait; `max_records` if
    /// nothing is gained by waiting.
    fn records_ready(&mut self, max_records: usize) -> usize {
        max_records
    }
    /// The next records, at most `max_records`. Does not wait.
    fn poll(&mut self, max_records: usize) -> Result<Polled, Error>;
    /// Everything before these places is finished. `Some` asks for another call, also without news, after this time.
    fn finished(&mut self, up_to: &[SourcePosition]) -> Option<Duration>;
    /// `true` once the places of all calls of [`Source::finished`] are stored.
    fn is_settled(&self) -> bool;
    /// Tells the partitions that the source reads, each of which keeps its records in order, and if each has records that can
    /// be read.
    fn partitions(&self, tell: &mut dyn FnMut(u32, bool)) {
        tell(0, false);
    }
    /// The commit that stores a place; `None` for sources without a log.
    fn commit_of(&self, _at: &SourcePosition) -> Option<PositionCommit> {
        None
    }
    /// The progress of the source, for any thread; `None` for sources without a log.
    fn progress(&self) -> Option<Arc<dyn SourceProgress>> {
        None
    }
}

/// The progress of one instance of a source with a log.
pub(crate) trait SourceProgress: Send + Sync {
    fn read_up_to(&self) -> ReadUpTo;
}

/// The finished part of a source's topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReadUpTo {
    /// The next offsets of all partitions, summed.
    pub(crate) offset: u64,
    /// Records that are not finished, up to the ends of the partitions or the source's own end.
    pub(crate) lag: u64,
    /// Records that retention has removed before they were read, since the job's start.
    pub(crate) trimmed: u64,
}

impl ReadUpTo {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { offset: self.offset + other.offset, lag: self.lag + other.lag, trimmed: self.trimmed + other.trimmed }
    }
}

/// The answer of a sink that is given a batch.
#[derive(Debug)]
pub(crate) enum Written {
    /// Taken over: the sink drops the batch's claim once it is written for good.
    Taken,
    /// Not yet. The sink wakes its task, at the latest after this time.
    NotYet(Option<Duration>),
}

/// The answer of a sink at the end of an epoch.
pub(crate) enum Preparation {
    /// Everything that it was given is written, but for the records that are appended with the commit.
    Done(Option<Box<dyn Prepared>>),
    /// Not yet. The sink wakes its task, at the latest after this time.
    NotYet(Option<Duration>),
}

/// Records that a sink has taken, and that become visible with the commit of their epoch.
pub(crate) trait Prepared: Send + Sync {
    /// The number of appends.
    fn appends(&self) -> usize;
    /// Makes one of the appends.
    ///
    /// # Errors
    /// Nothing of it is appended: those of [`Writer::append`].
    fn append(&self, number: usize, writer: &dyn Writer) -> Result<(), LogError>;
}

/// One instance of a sink.
pub(crate) trait Sink: Send {
    /// Prepares to write; asked again until it has started.
    fn start(&mut self) -> Result<Started, Error> {
        Ok(Started::Yes)
    }
    /// Writes a batch, or asks for it again. Does not wait. After [`Error::Record`] it may be asked to write the batch
    /// without that row.
    fn write(&mut self, batch: &Batch) -> Result<Written, Error>;
    /// Reports a write that failed after it was taken.
    fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }
    /// Ends an epoch: asks for what was taken so far to be written.
    ///
    /// # Errors
    /// A write has failed.
    fn prepare(&mut self) -> Result<Preparation, Error> {
        Ok(Preparation::Done(None))
    }
    /// The records that could not be written after their batch was taken, since the last call.
    fn take_refused(&mut self) -> Vec<RefusedRecords> {
        Vec::new()
    }
}

/// Records that a sink cannot write, for the error routes of its node. They hold the position of their source.
#[derive(Debug)]
pub(crate) struct RefusedRecords {
    pub(crate) batch: Batch,
    pub(crate) failed: Vec<RecordError>,
}

/// A source of the node's type.
///
/// # Errors
/// [`Error::Plan`] for a type or value that the document's checks should have refused.
pub(crate) fn source(context: &ConnectorContext<'_>) -> Result<Box<dyn Source>, Error> {
    match context.node.kind.as_str() {
        "stream" => stream::source(context),
        "file" => file::source(context),
        "list" => list::source(context),
        "generator" => generator::source(context),
        other => Err(Error::plan(&context.node.name, "type", format!("'{other}' is no source"))),
    }
}

/// The error of a row that the sink `node` cannot write, and never will.
pub(crate) fn refused(node: &str, batch: &Batch, row: usize, code: &'static str, message: String) -> Error {
    Error::Record { node: node.to_owned(), code, row: row as u32, record: batch.place(row), message }
}

/// A sink of the node's type.
///
/// # Errors
/// [`Error::Plan`] for a type or value that the document's checks should have refused.
pub(crate) fn sink(context: &ConnectorContext<'_>) -> Result<Box<dyn Sink>, Error> {
    match context.node.kind.as_str() {
        "stream" => stream::sink(context),
        "entities" => entities::sink(context),
        "file" => file::sink(context),
        "http" => http::sink(context),
        "collect" => Ok(collect::sink(context)),
        "stdout" => stdout::sink(context),
        "blackhole" => Ok(blackhole::sink()),
        other => Err(Error::plan(&context.node.name, "type", format!("'{other}' is no sink"))),
    }
}
