//! Several files of a directory made one, without what was deleted of them.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_log::Files;

use crate::Error;
use crate::catalog::{Catalog, KeptFile};
use crate::catalog_record::{Erasure, FileRecord};
use crate::columns::{Columns, Row};
use crate::file_reader::{OpenFile, Rows};
use crate::file_writer::FileWriter;
use crate::thinning::Plan;

/// Rows of each file that are in memory.
const READ_ROWS: usize = 8 << 10;
/// Files that are merged at once; so many of about one size make one of the next.
pub(crate) const FAN_IN: usize = 8;
/// Files up to this size count as of one size.
const SMALLEST_BYTES: u64 = 64 << 10;

/// Which files of a directory are to be merged: the first [`FAN_IN`] of one size, if there are so many and they make no
/// file that is too large.
pub(crate) fn choose(siblings: &[Arc<KeptFile>], max_bytes: u64) -> Option<Vec<Arc<KeptFile>>> {
    let mut by_size: std::collections::BTreeMap<u32, Vec<Arc<KeptFile>>> = Default::default();
    // What was sampled is made one with others by sampling: here their points would be taken for sampled ones, or its for whole.
    for file in siblings.iter().filter(|file| file.record.sampled.is_empty()) {
        let times_smallest = file.record.bytes / SMALLEST_BYTES;
        by_size.entry(times_smallest.max(1).ilog(FAN_IN as u64)).or_default().push(file.clone());
    }
    by_size.into_values().find_map(|mut files| {
        files.truncate(FAN_IN);
        let bytes: u64 = files.iter().map(|file| file.record.bytes).sum();
        (files.len() == FAN_IN && bytes <= max_bytes).then_some(files)
    })
}

/// Writes what is left of `files`, which lie in one directory and were sampled alike, to one new file; `None` if nothing is.
pub(crate) fn merge(catalog: &mut Catalog, files: &[Arc<KeptFile>]) -> Result<Option<FileRecord>, Error> {
    let Some(first) = files.first() else { return Ok(None) };
    let mut rows = Merging::open(catalog, files)?;
    let mut merged = Merged::begin(catalog, files, first.record.sampled.clone());
    while let Some(row) = rows.next_row()? {
        merged.push(row)?;
    }
    merged.finish()
}

/// What several files of a directory become. There is a file once there is a row for it.
pub(crate) struct Merged {
    files: Arc<dyn Files>,
    root: PathBuf,
    path: PathBuf,
    place: (String, String, i32),
    number: u64,
    kept_ms: i64,
    sampled: Plan,
    writer: Option<FileWriter>,
}

impl Merged {
    pub(crate) fn begin(catalog: &mut Catalog, files: &[Arc<KeptFile>], sampled: Plan) -> Self {
        let place = files.first().map(|file| &file.record);
        let place = place.map_or_else(Default::default, |of| (of.tenant.clone(), of.kind.clone(), of.day));
        let number = catalog.number();
        Self {
            files: catalog.files.clone(),
            root: catalog.root.clone(),
            path: catalog.path_of(&place.0, &place.1, place.2, number),
            place,
            number,
            kept_ms: files.iter().map(|file| file.record.kept_ms).max().unwrap_or_default(),
            sampled,
            writer: None,
        }
    }

    pub(crate) fn push(&mut self, row: Row) -> Result<(), Error> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(FileWriter::create(&self.files, &self.root, &self.path)?),
        };
        writer.push(row)
    }

    /// Makes the file durable; `None` if there was no row.
    pub(crate) fn finish(self) -> Result<Option<FileRecord>, Error> {
        let Some(writer) = self.writer else { return Ok(None) };
        let record = FileRecord::new(self.place, self.number, writer.finish()?, self.kept_ms);
        Ok(Some(FileRecord { sampled: self.sampled, ..record }))
    }
}

/// The rows of several files in their order, without those that were deleted.
pub(crate) struct Merging(Vec<Input>);

impl Merging {
    pub(crate) fn open(catalog: &Catalog, files: &[Arc<KeptFile>]) -> Result<Self, Error> {
        let mut inputs = Vec::with_capacity(files.len());
        for file in files {
            let mut input = Input {
                open: OpenFile::open(&*catalog.files, &file.path)?,
                erasures: catalog.table.erasures_of(&file.record).cloned().collect(),
                group: 0,
                next: 0,
                chunk: Columns::default(),
                at: 0,
                row: None,
            };
            input.advance()?;
            inputs.push(input);
        }
        Ok(Self(inputs))
    }

    /// Takes the least row of all.
    pub(crate) fn next_row(&mut self) -> Result<Option<Row>, Error> {
        let with_row = self.0.iter_mut().filter(|input| input.row.is_some());
        let least = with_row.min_by(|a, b| a.row.as_ref().map(Row::order).cmp(&b.row.as_ref().map(Row::order)));
        let Some(input) = least else { return Ok(None) };
        let row = input.row.take();
        input.advance()?;
        Ok(row)
    }
}

/// A file that is read from its beginning to its end.
struct Input {
    open: OpenFile,
    /// What was deleted of it.
    erasures: Vec<Erasure>,
    group: usize,
    /// The next row of the group to be read.
    next: usize,
    chunk: Columns,
    at: usize,
    row: Option<Row>,
}

impl Input {
    /// Goes to the next row that was not deleted.
    fn advance(&mut self) -> Result<(), Error> {
        loop {
            if self.at < self.chunk.len() {
                let row = self.chunk.take_row(self.at);
                self.at += 1;
                if !self.is_erased(&row) {
                    self.row = Some(row);
                    return Ok(());
                }
            } else if self.group < self.open.groups() {
                let end = (self.next + READ_ROWS).min(self.open.group_rows(self.group));
                self.chunk = self.open.read(&Rows { group: self.group, rows: self.next..end })?;
                self.at = 0;
                self.next = end;
                if end == self.open.group_rows(self.group) {
                    (self.group, self.next) = (self.group + 1, 0);
                }
            } else {
                return Ok(());
            }
        }
    }

    fn is_erased(&self, row: &Row) -> bool {
        if self.erasures.is_empty() {
            return false;
        }
        let [id, path, attribute] = [&row.id, &row.path, &row.attribute].map(|name| name.as_utf8().unwrap_or_default());
        self.erasures.iter().any(|erasure| erasure.takes(id, path, attribute))
    }
}
