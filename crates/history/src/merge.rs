//! Several files of a directory made one, without what was deleted of them.

use std::sync::Arc;

use crate::Error;
use crate::catalog::{Catalog, KeptFile};
use crate::catalog_record::FileRecord;
use crate::columns::{Columns, Row};
use crate::file_reader::{OpenFile, Rows};
use crate::file_writer::FileWriter;

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
    for file in siblings {
        let times_smallest = file.record.bytes / SMALLEST_BYTES;
        by_size.entry(times_smallest.max(1).ilog(FAN_IN as u64)).or_default().push(file.clone());
    }
    by_size.into_values().find_map(|mut files| {
        files.truncate(FAN_IN);
        let bytes: u64 = files.iter().map(|file| file.record.bytes).sum();
        (files.len() == FAN_IN && bytes <= max_bytes).then_some(files)
    })
}

/// Writes what is left of `files`, which lie in one directory, to one new file; `None` if nothing is.
pub(crate) fn merge(catalog: &mut Catalog, files: &[Arc<KeptFile>]) -> Result<Option<FileRecord>, Error> {
    let Some(first) = files.first() else { return Ok(None) };
    let table = catalog.table.clone();
    let mut inputs = Vec::with_capacity(files.len());
    for file in files {
        let open = OpenFile::open(&*catalog.files, &file.path)?;
        let mut input =
            Input { open, file, table: &table, group: 0, next: 0, chunk: Columns::default(), at: 0, row: None };
        input.advance()?;
        inputs.push(input);
    }
    let (tenant, kind, day) = (first.record.tenant.clone(), first.record.kind.clone(), first.record.day);
    let number = catalog.number();
    let path = catalog.path_of(&tenant, &kind, day, number);
    let mut writer = None;
    while let Some(row) = least(&mut inputs)? {
        let writer = match &mut writer {
            Some(writer) => writer,
            none => none.insert(FileWriter::create(&catalog.files, &catalog.root, &path)?),
        };
        writer.push(row)?;
    }
    let Some(writer) = writer else { return Ok(None) };
    let kept_ms = files.iter().map(|file| file.record.kept_ms).max().unwrap_or_default();
    Ok(Some(FileRecord::new((tenant, kind, day), number, writer.finish()?, kept_ms)))
}

/// Takes the least row of all.
fn least(inputs: &mut [Input<'_>]) -> Result<Option<Row>, Error> {
    let with_row = inputs.iter_mut().filter(|input| input.row.is_some());
    let least = with_row.min_by(|a, b| a.row.as_ref().map(Row::order).cmp(&b.row.as_ref().map(Row::order)));
    let Some(input) = least else { return Ok(None) };
    let row = input.row.take();
    input.advance()?;
    Ok(row)
}

/// A file that is read from its beginning to its end.
struct Input<'m> {
    open: OpenFile,
    file: &'m Arc<KeptFile>,
    table: &'m crate::catalog::Table,
    group: usize,
    /// The next row of the group to be read.
    next: usize,
    chunk: Columns,
    at: usize,
    row: Option<Row>,
}

impl Input<'_> {
    /// Goes to the next row that was not deleted.
    fn advance(&mut self) -> Result<(), Error> {
        loop {
            if self.at < self.chunk.len() {
                let row = self.chunk.row(self.at);
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
        let [id, path, attribute] = [&row.id, &row.path, &row.attribute].map(|name| name.as_utf8().unwrap_or_default());
        self.table.erasures_of(&self.file.record).any(|erasure| erasure.takes(id, path, attribute))
    }
}
