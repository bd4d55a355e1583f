//! The copies of files in the log, for a process on another machine: files are kept on a disk, and a log on other machines
//! outlives that.
//!
//! The topic `_history_files` has each file that the catalog names, in pieces. A file is appended in the transaction that names
//! it, and its pieces are replaced by tombstones in the one that removes it, so the topic has exactly the named files. The
//! log is the replica; the file on the disk serves reads.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_log::{Error as LogError, File, Files, Log, Partition, UpTo, Writer};
use millstream_types::{BatchError, BatchLimits, Compression, Offset, Record, StateTopic, TopicPartition};

use crate::Error;
use crate::catalog_record::FileRecord;
use crate::file_writer::make_directory;
use crate::layout::part_path;
use crate::topics::open_topic;

/// Bytes of a piece. Pieces of the last size have been stored, and keys count them.
const PIECE_BYTES: usize = 512 << 10;
/// Bytes of records per read, at least one batch.
const READ_BYTES: usize = 2 << 20;
/// The wait before the log is asked again that has no room for a piece.
const ROOM_WAIT: Duration = Duration::from_millis(10);

/// The topic of copies.
pub(crate) struct FileCopies {
    log: Arc<dyn Log>,
    partition: Arc<dyn Partition>,
    files: Arc<dyn Files>,
    /// The directory of the files.
    root: PathBuf,
}

impl FileCopies {
    /// Opens the topic, which is created if it is missing; `None` if the log is on this machine, as the files are.
    pub(crate) fn open(log: &Arc<dyn Log>, files: &Arc<dyn Files>, root: &Path) -> Result<Option<Arc<Self>>, Error> {
        if log.capabilities().local {
            return Ok(None);
        }
        // Parquet is compressed already.
        let partition = open_topic(&**log, StateTopic::HistoryFiles, Compression::None)?;
        let (log, files, root) = (Arc::clone(log), Arc::clone(files), root.to_owned());
        Ok(Some(Arc::new(Self { log, partition, files, root })))
    }

    /// `false` for an offset that the topic has not reached: it was created anew, without the copies that it had.
    pub(crate) fn may_have(&self, copy: u64) -> bool {
        copy < self.partition.offsets().high.0
    }

    pub(crate) fn partition(&self) -> &TopicPartition {
        self.partition.id()
    }

    /// Appends a copy of the file at `path` to the open transaction of `writer`; returns the offset from which it is found. Waits
    /// for room in the log until `is_stopping`.
    pub(crate) fn append(
        &self,
        writer: &dyn Writer,
        record: &FileRecord,
        path: &Path,
        is_stopping: &AtomicBool,
    ) -> Result<Offset, Error> {
        // This writer is the only one, so its records come behind all that are there.
        let from = self.partition.offsets().high;
        let file = self.files.open(path).map_err(|error| Error::io("open", path, error))?;
        let mut buffer = vec![0; PIECE_BYTES];
        for piece in 0..pieces(record) {
            let at = piece * PIECE_BYTES as u64;
            let bytes = usize::try_from(record.bytes - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let read = file.read_at(&mut buffer[..bytes], at).map_err(|error| Error::io("read", path, error))?;
            if read < bytes {
                return Err(Error::file(path, &"it is shorter than the catalog says"));
            }
            let key = key(record.number, piece);
            let record = Record { key: Some(key.as_bytes()), value: Some(&buffer[..bytes]), ..Record::default() };
            self.append_piece(writer, &[record], is_stopping)?;
        }
        Ok(from)
    }

    fn append_piece(&self, writer: &dyn Writer, records: &[Record<'_>], is_stopping: &AtomicBool) -> Result<(), Error> {
        loop {
            if let Some(room) = self.log.backpressure() {
                room.wait()?;
            }
            match writer.append(self.partition.id(), records) {
                Err(LogError::Overloaded { .. }) if !is_stopping.load(Ordering::Acquire) => {
                    std::thread::sleep(ROOM_WAIT);
                }
                appended => return Ok(appended?),
            }
        }
    }

    /// The keys of a copy's pieces, to be replaced by tombstones.
    pub(crate) fn keys(record: &FileRecord) -> impl Iterator<Item = String> + use<> {
        let (number, pieces) = (record.number, record.copy.map_or(0, |_| pieces(record)));
        (0..pieces).map(move |piece| key(number, piece))
    }

    /// Writes a file to `path` as its copy has it. Nothing is there before all of it is.
    ///
    /// # Errors
    /// [`Error::File`] if the log has not all of it.
    pub(crate) fn fetch(&self, record: &FileRecord, path: &Path) -> Result<(), Error> {
        let directory = path.parent().unwrap_or(path);
        make_directory(&*self.files, &self.root, directory)?;
        let part = part_path(path);
        let file = self.files.create(&part).map_err(|error| Error::io("create", &part, error))?;
        if let Err(error) = self.read(record, path, &*file) {
            // The next start removes leftovers.
            let _ = self.files.remove(&part);
            return Err(error);
        }
        file.sync().map_err(|error| Error::io("sync", &part, error))?;
        self.files.rename(&part, path).map_err(|error| Error::io("rename", &part, error))?;
        self.files.sync_dir(directory).map_err(|error| Error::io("sync", directory, error))
    }

    fn read(&self, record: &FileRecord, path: &Path, into: &dyn File) -> Result<(), Error> {
        let mut next = Offset(record.copy.unwrap_or_default()).max(self.partition.offsets().first);
        let mut piece = 0;
        while piece < pieces(record) {
            let batches = self.partition.read(next, READ_BYTES, UpTo::Stable)?;
            let Some(last) = batches.last() else {
                return Err(Error::file(path, &"it is missing, and the log has not all of its copy"));
            };
            next = last.next_offset();
            for batch in &batches {
                let unreadable = |error: BatchError| Error::file(path, &format!("its copy in the log: {error}"));
                let batch = batch.inflated(&BatchLimits::default()).map_err(unreadable)?;
                for stored in batch.records() {
                    let stored = stored.map_err(unreadable)?;
                    let is_next = stored.key == Some(key(record.number, piece).as_bytes());
                    let Some(value) = stored.value.filter(|_| is_next) else { continue };
                    into.write_at(&[IoSlice::new(value)], piece * PIECE_BYTES as u64)
                        .map_err(|error| Error::io("write", path, error))?;
                    piece += 1;
                }
            }
        }
        Ok(())
    }
}

fn pieces(record: &FileRecord) -> u64 {
    record.bytes.div_ceil(PIECE_BYTES as u64)
}

fn key(number: u64, piece: u64) -> String {
    format!("{number}/{piece}")
}
