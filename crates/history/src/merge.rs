//! Merges several files of a type into one, without erased points.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_log::Files;

use crate::Error;
use crate::catalog::FileCatalog;
use crate::catalog_record::{Erasure, FileRecord};
use crate::columns::{PointColumns, PointRow};
use crate::file_period::FilePeriod;
use crate::file_reader::{OpenFile, RowRange};
use crate::file_table::DataFile;
use crate::file_writer::FileWriter;
use crate::sampling_plan::SamplingPlan;
use crate::top_n::TimeEnd;

/// Most rows that are buffered per file.
const READ_ROWS: usize = 8 << 10;
/// Number of files per merge; a merge of one size class gives a file of the next.
pub(crate) const FAN_IN: usize = 8;
/// Smaller files belong to the smallest size class.
const SMALLEST_BYTES: u64 = 64 << 10;

/// Chooses `fan_in` files of one size class to merge, if there are enough and the result is not too large.
pub(crate) fn choose(siblings: &[Arc<DataFile>], fan_in: usize, max_bytes: u64) -> Option<Vec<Arc<DataFile>>> {
    let mut by_size: std::collections::BTreeMap<u32, Vec<Arc<DataFile>>> = Default::default();
    // Only sampling combines sampled files with others: a merged record could not describe both kinds of points.
    for file in siblings.iter().filter(|file| file.record.sampled.is_empty() && !file.is_damaged()) {
        let times_smallest = file.record.bytes / SMALLEST_BYTES;
        by_size.entry(times_smallest.max(1).ilog(FAN_IN as u64)).or_default().push(file.clone());
    }
    by_size.into_values().find_map(|mut files| {
        files.truncate(fan_in);
        let bytes: u64 = files.iter().map(|file| file.record.bytes).sum();
        (files.len() == fan_in && bytes <= max_bytes).then_some(files)
    })
}

/// Rewrites `files`, which have the same type and sampling and lie in `period`, to one new file without erased points;
/// `None` if no point is left.
pub(crate) fn merge(
    catalog: &mut FileCatalog,
    files: &[Arc<DataFile>],
    period: FilePeriod,
) -> Result<Option<FileRecord>, Error> {
    let Some(first) = files.first() else { return Ok(None) };
    let mut rows = MergeIterator::open(catalog, files)?;
    let mut merged = MergeWriter::begin(catalog, files, period, first.record.sampled.clone());
    while let Some(row) = rows.next_row()? {
        merged.push(row)?;
    }
    merged.finish()
}

/// Writes the merged file; creates it with the first row.
pub(crate) struct MergeWriter {
    files: Arc<dyn Files>,
    root: PathBuf,
    path: PathBuf,
    place: (String, String, FilePeriod),
    number: u64,
    kept_ms: i64,
    sampled: SamplingPlan,
    writer: Option<FileWriter>,
}

impl MergeWriter {
    pub(crate) fn begin(
        catalog: &mut FileCatalog,
        files: &[Arc<DataFile>],
        period: FilePeriod,
        sampled: SamplingPlan,
    ) -> Self {
        let place = files.first().map(|file| &file.record);
        let place = place.map_or_else(Default::default, |of| (of.tenant.clone(), of.kind.clone(), period));
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

    pub(crate) fn push(&mut self, row: PointRow) -> Result<(), Error> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(FileWriter::create(&self.files, &self.root, &self.path)?),
        };
        writer.push(row)
    }

    /// Makes the file durable; returns `None` if there were no rows.
    pub(crate) fn finish(self) -> Result<Option<FileRecord>, Error> {
        let Some(writer) = self.writer else { return Ok(None) };
        let record = FileRecord::new(self.place, self.number, writer.finish()?, self.kept_ms);
        Ok(Some(FileRecord { sampled: self.sampled, ..record }))
    }
}

/// Iterates the rows of several files in order, without erased ones.
pub(crate) struct MergeIterator(Vec<MergeInput>);

impl MergeIterator {
    pub(crate) fn open(catalog: &FileCatalog, files: &[Arc<DataFile>]) -> Result<Self, Error> {
        let mut inputs = Vec::with_capacity(files.len());
        for file in files {
            let mut input = MergeInput {
                open: file.read_index()?,
                erasures: catalog.table.erasures_of(&file.record).cloned().collect(),
                group: 0,
                next: 0,
                chunk: PointColumns::default(),
                at: 0,
                row: None,
            };
            input.advance()?;
            inputs.push(input);
        }
        Ok(Self(inputs))
    }

    /// Returns the least row of all inputs.
    pub(crate) fn next_row(&mut self) -> Result<Option<PointRow>, Error> {
        let with_row = self.0.iter_mut().filter(|input| input.row.is_some());
        let least =
            with_row.min_by(|a, b| a.row.as_ref().map(PointRow::order).cmp(&b.row.as_ref().map(PointRow::order)));
        let Some(input) = least else { return Ok(None) };
        let row = input.row.take();
        input.advance()?;
        Ok(row)
    }
}

/// A sequential reader of one file.
struct MergeInput {
    open: Arc<OpenFile>,
    /// The erasures that apply to the file.
    erasures: Vec<Erasure>,
    group: usize,
    /// The next row to read in the row group.
    next: usize,
    chunk: PointColumns,
    at: usize,
    row: Option<PointRow>,
}

impl MergeInput {
    /// Advances to the next row that is not erased.
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
                let rows = RowRange { group: self.group, rows: self.next..end };
                let rows = self.open.step(rows, TimeEnd::First)?;
                self.chunk = self.open.read(&rows)?;
                self.at = 0;
                self.next = rows.rows.end;
                if self.next == self.open.group_rows(self.group) {
                    (self.group, self.next) = (self.group + 1, 0);
                }
            } else {
                return Ok(());
            }
        }
    }

    fn is_erased(&self, row: &PointRow) -> bool {
        if self.erasures.is_empty() {
            return false;
        }
        let [id, path, attribute] = [&row.id, &row.path, &row.attribute].map(|name| name.as_utf8().unwrap_or_default());
        self.erasures.iter().any(|erasure| erasure.takes(id, path, attribute))
    }
}
