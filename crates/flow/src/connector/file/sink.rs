//! The sink `file`: appends records to a file.
//!
//! Invariant: a batch's claim is dropped once its records are synced; a failed write fails it.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::location::{Location, check_path};
use super::no_files::NoFiles;
use super::writer::{RecordWriter, WritePlan, is_writable};
use super::{COMPRESSION, FORMAT, file_form};
use crate::Error;
use crate::batch::Batch;
use crate::connector::{Blocking, ConnectorContext, Places, Preparation, Sink, Started, Waker, Written, refused};
use crate::document::{Key, KeyType, NodeType, Role};

pub(in crate::connector) const SINK: NodeType = NodeType {
    name: "file",
    role: Role::Sink,
    summary: "Appends records to a file of JSON lines or CSV; they count as written once they are synced. It has one instance.",
    keys: &[
        Key {
            name: "path",
            value: KeyType::Checked(check_path),
            is_required: true,
            default: None,
            doc: "The file, below the tenant's folder in `flow.files_dir`; missing folders are created.",
        },
        FORMAT,
        COMPRESSION,
        Key {
            name: "columns",
            value: KeyType::Texts,
            is_required: false,
            default: None,
            doc: "CSV, and required there: the fields that are written, in order; a field that a record lacks is empty.",
        },
        Key {
            name: "mode",
            value: KeyType::OneOf(&["append", "truncate"]),
            is_required: false,
            default: Some("append"),
            doc: "`truncate` empties the file when the job is submitted, and not when it starts again.",
        },
    ],
    can_end: false,
    keeps_state: false,
};

/// Bytes that may wait for the file.
const WAITING_MAX_BYTES: usize = 8 << 20;

struct FileSink {
    node: String,
    plan: WritePlan,
    truncates: bool,
    places: Option<Arc<dyn Places>>,
    queue: Arc<WriteQueue>,
}

/// Batches on their way to the file. One call at a time works on them.
struct WriteQueue {
    state: Mutex<QueueState>,
    blocking: Arc<Blocking>,
    waker: Waker,
}

#[derive(Default)]
struct QueueState {
    waiting: Vec<Batch>,
    waiting_bytes: usize,
    /// The file, unless a call works on it.
    writer: Option<RecordWriter>,
    is_opening: bool,
    /// Another sink had the file when it was last tried to open it.
    is_taken: bool,
    is_open: bool,
    failure: Option<String>,
}

pub(in crate::connector) fn sink(context: &ConnectorContext<'_>) -> Result<Box<dyn Sink>, Error> {
    let config = &context.node.config;
    let text = |key: &str| config.get(key).and_then(Value::as_str);
    let refuse = |key: &str, fault: String| Error::plan(&context.node.name, &format!("config.{key}"), fault);
    let path = text("path").unwrap_or_default();
    let columns = config.get("columns").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let columns: Vec<String> = columns.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let form = file_form(path, text("format"), text("compression"), Some(!columns.is_empty()));
    let (format, compression) = form.map_err(|(key, fault)| refuse(key, fault))?;
    if context.instances > 1 {
        let fault =
            format!("a file has one writer, and the node {} instances; leave parallelism out", context.instances);
        return Err(refuse("path", fault));
    }
    let Some(files) = &context.services()?.files else {
        return Ok(Box::new(NoFiles { path: path.to_owned() }));
    };
    let location = Location::new(files.dir(), context.tenant, path);
    Ok(Box::new(FileSink {
        node: context.node.name.clone(),
        plan: WritePlan {
            location: location.map_err(|fault| refuse("path", fault))?,
            space: Some(Arc::clone(files)),
            format,
            compression,
            columns,
        },
        truncates: text("mode") == Some("truncate"),
        places: context.places.clone(),
        queue: Arc::new(WriteQueue {
            state: Mutex::default(),
            blocking: Arc::clone(&context.services()?.blocking),
            waker: Arc::clone(&context.waker),
        }),
    }))
}

impl FileSink {
    /// Opens the file in the background.
    fn open(&self) {
        let (queue, plan, node) = (Arc::clone(&self.queue), self.plan.clone(), self.node.clone());
        let (truncates, places) = (self.truncates, self.places.clone());
        self.queue.blocking.run(move || {
            let is_first = places.as_ref().is_none_or(|places| places.records_read(&node) == 0);
            let mut opened = RecordWriter::open(plan, truncates && is_first);
            if let (true, true, Some(places)) = (truncates, is_first, &places)
                && matches!(opened, Ok(Some(_)))
                && !places.store(&node, 1)
            {
                opened = Err("it cannot be stored that the file was emptied".to_owned());
            }
            let mut state = queue.state.lock();
            match opened {
                Ok(Some(writer)) => (state.writer, state.is_open) = (Some(writer), true),
                // The next call of `start` tries again.
                Ok(None) => {
                    state.is_opening = false;
                    state.is_taken = true;
                    return;
                }
                Err(fault) => state.failure = Some(fault),
            }
            drop(state);
            (queue.waker)();
        });
    }
}

impl WriteQueue {
    /// Writes what waits, in the background, unless a call does so already.
    fn write(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            return;
        }
        let Some(mut writer) = state.writer.take() else { return };
        let batches = std::mem::take(&mut state.waiting);
        state.waiting_bytes = 0;
        drop(state);
        let queue = Arc::clone(self);
        self.blocking.run(move || {
            match writer.append(&batches) {
                Ok(()) => queue.state.lock().writer = Some(writer),
                Err(fault) => queue.fail(&batches, fault),
            }
            drop(batches);
            (queue.waker)();
            queue.write();
        });
    }

    /// Holds back the positions of all batches that are not written.
    fn fail(&self, batches: &[Batch], fault: String) {
        let mut state = self.state.lock();
        batches.iter().chain(&state.waiting).filter_map(Batch::ack).for_each(|ack| ack.fail());
        state.failure = Some(fault);
    }
}

impl Sink for FileSink {
    fn start(&mut self) -> Result<Started, Error> {
        self.check()?;
        let mut state = self.queue.state.lock();
        if state.is_open {
            return Ok(Started::Yes);
        }
        let is_opening = std::mem::replace(&mut state.is_opening, true);
        let reason = if state.is_taken {
            "another sink writes it no more; each sink needs a file of its own"
        } else {
            "it is open"
        };
        drop(state);
        if !is_opening {
            self.open();
        }
        Ok(Started::NotYet(format!("waits for file '{}' until {reason}", self.plan.location.name())))
    }

    fn write(&mut self, batch: &Batch) -> Result<Written, Error> {
        if let Some(row) = (0..batch.len()).find(|row| !is_writable(batch.payload(*row))) {
            let message = "the payload is not a JSON object; a file has only such records".to_owned();
            return Err(refused(&self.node, batch, row, "invalid_json", message));
        }
        let mut state = self.queue.state.lock();
        if state.waiting_bytes >= WAITING_MAX_BYTES {
            return Ok(Written::NotYet(None));
        }
        state.waiting_bytes += (0..batch.len()).map(|row| batch.payload(row).map_or(0, <[u8]>::len)).sum::<usize>();
        state.waiting.push(batch.clone());
        drop(state);
        self.queue.write();
        Ok(Written::Taken)
    }

    fn prepare(&mut self) -> Result<Preparation, Error> {
        self.check()?;
        let state = self.queue.state.lock();
        let is_written = state.waiting.is_empty() && (state.writer.is_some() || !state.is_open);
        Ok(if is_written { Preparation::Done(None) } else { Preparation::NotYet(None) })
    }

    fn check(&mut self) -> Result<(), Error> {
        match self.queue.state.lock().failure.take() {
            Some(fault) => Err(Error::connector(&self.node, fault)),
            None => Ok(()),
        }
    }
}
