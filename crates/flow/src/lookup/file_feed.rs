//! A table of the records of a file, which is read once.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::feed::{FeedContext, FeedStep, TableFeed};
use super::table::LookupTable;
use crate::Error;
use crate::batch::Batch;
use crate::connector::{Chunk, ColumnType, FILES_DIR, Location, ReadPlan, RecordReader, Services, Waker};
use crate::document::file_form;
use crate::object;

/// Records that are read at a time.
const CHUNK_RECORDS: usize = 4096;

pub(super) struct FileFeed {
    node: String,
    path: String,
    /// The member of a record with its key.
    column: String,
    table: Arc<LookupTable>,
    services: Services,
    waker: Waker,
    state: ReadState,
}

enum ReadState {
    /// `None` for a server whose jobs may use no files.
    Closed(Option<ReadPlan>),
    Reading(Pending),
    Loaded,
}

/// The reader and what it has read, once it is back.
type Pending = Arc<Mutex<Option<Result<(RecordReader, Chunk), String>>>>;

impl FileFeed {
    pub(super) fn open(context: FeedContext<'_>) -> Result<Self, Error> {
        let FeedContext { services, tenant, node, table, memory, waker } = context;
        let text = |key: &str| node.config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (path, column) = (text("file"), text("column"));
        let refuse = |fault: String| Error::plan(&node.name, "config.file", fault);
        let (format, compression) = file_form(&path, None, None, None).map_err(|(_, fault)| refuse(fault))?;
        let plan = match &services.files {
            Some(files) => {
                let location = Location::new(files.dir(), tenant, &path).map_err(refuse)?;
                Some(ReadPlan { location, format, compression, types: [].into(), other_type: ColumnType::Text })
            }
            None => None,
        };
        let waits = match &plan {
            Some(_) => format!("loads the records of {path}"),
            None => format!(
                "waits: '{path}' is a file, and jobs of this server may use none; set {FILES_DIR} to the directory of their files"
            ),
        };
        table.begin(memory, waits);
        let (node, table, services) = (node.name.clone(), Arc::clone(table), services.clone());
        Ok(Self { node, path, column, table, services, waker, state: ReadState::Closed(plan) })
    }

    /// Reads the next records in the background.
    fn read(&mut self, reader: impl FnOnce() -> Result<RecordReader, String> + Send + 'static) {
        let pending = Pending::default();
        self.state = ReadState::Reading(Arc::clone(&pending));
        let (waker, wall) = (Arc::clone(&self.waker), Arc::clone(&self.services.wall));
        self.services.blocking.run(move || {
            let read = || {
                let mut reader = reader()?;
                let chunk = reader.read(CHUNK_RECORDS, wall.now_ms())?;
                Ok((reader, chunk))
            };
            *pending.lock() = Some(read());
            waker();
        });
    }

    fn failed(&self, message: String) -> Error {
        Error::connector(&self.node, message)
    }

    fn take(&self, records: &Batch) -> Result<(), Error> {
        let mut key = Vec::new();
        self.table.change(|table| {
            for row in 0..records.len() {
                let Some(record) = records.payload(row) else { continue };
                key.clear();
                if !write_key(object::find(record, &self.column), &mut key) {
                    let (number, column) = (records.offset(row).0 + 1, &self.column);
                    return Err(self.failed(format!(
                        "record {number} of '{}' has no '{column}', which 'column' names as its key",
                        self.path
                    )));
                }
                table.set(&key, record)?;
            }
            Ok(())
        })
    }
}

/// Appends a member as a key: a text as it is, any other value as its JSON; `false` if it is missing or null.
fn write_key(member: Option<&[u8]>, key: &mut Vec<u8>) -> bool {
    let Some(json) = member.filter(|json| *json != b"null") else { return false };
    match serde_json::from_slice::<String>(json) {
        Ok(text) => key.extend_from_slice(text.as_bytes()),
        Err(_) => key.extend_from_slice(json),
    }
    true
}

impl TableFeed for FileFeed {
    fn step(&mut self) -> Result<FeedStep, Error> {
        let pending = match &mut self.state {
            ReadState::Loaded => return Ok(FeedStep::Wait),
            ReadState::Closed(plan) => {
                if let Some(plan) = plan.take() {
                    self.read(move || RecordReader::open(plan, 0));
                }
                return Ok(FeedStep::Wait);
            }
            ReadState::Reading(pending) => Arc::clone(pending),
        };
        let Some(read) = pending.lock().take() else { return Ok(FeedStep::Wait) };
        let (reader, chunk) = read.map_err(|fault| self.failed(fault))?;
        if let Some(error) = chunk.failed.first() {
            return Err(self.failed(error.message.clone()));
        }
        self.take(&chunk.batch)?;
        if chunk.is_last {
            self.state = ReadState::Loaded;
            self.table.set_waits(None);
            return Ok(FeedStep::Loaded);
        }
        self.table.set_waits(Some(format!("loads the records of {}, {} so far", self.path, chunk.records_read)));
        self.read(move || Ok(reader));
        Ok(FeedStep::Wait)
    }
}
