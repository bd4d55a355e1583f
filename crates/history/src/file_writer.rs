//! Writes a Parquet file of points: row group by row group under a temporary name, which is replaced
//! once the file is durable.

use std::collections::BTreeSet;
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_log::{File, Files};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use crate::Error;
use crate::block_checksums::BlockChecksums;
use crate::columns::{GROUP_BYTES, GROUP_ROWS, PROPERTIES, PointColumns, PointRow, SCHEMA_TYPE};
use crate::layout::part_path;

/// Most names of a column that the catalog keeps for a file, and their bytes.
const NAMES_MAX: usize = 24;
const NAMES_MAX_BYTES: usize = 384;

pub(crate) struct FileWriter {
    files: Arc<dyn Files>,
    path: PathBuf,
    part: PathBuf,
    file: Arc<dyn File>,
    parquet: SerializedFileWriter<AppendWriter>,
    group: PointColumns,
    group_bytes: usize,
    written: FileSummary,
    paths: NameSet,
    attributes: NameSet,
    is_finished: bool,
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // The next start removes leftovers.
            let _ = self.files.remove(&self.part);
        }
    }
}

/// Size and bounds of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSummary {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) observed_ms: (i64, i64),
    pub(crate) modified_ms: (i64, i64),
    pub(crate) ids: (String, String),
    /// Empty if there are many.
    pub(crate) paths: Vec<String>,
    /// Empty if there are many.
    pub(crate) attributes: Vec<String>,
    pub(crate) checksums: Vec<u32>,
}

impl FileWriter {
    /// Creates the file `path` and its directories.
    pub(crate) fn create(files: &Arc<dyn Files>, root: &Path, path: &Path) -> Result<Self, Error> {
        make_directory(&**files, root, path.parent().unwrap_or(root))?;
        let part = part_path(path);
        let file = files.create(&part).map_err(|error| Error::io("create", &part, error))?;
        let appending = AppendWriter { file: file.clone(), at: 0, checksums: BlockChecksums::default() };
        let parquet = SerializedFileWriter::new(appending, SCHEMA_TYPE.clone(), PROPERTIES.clone())
            .map_err(|error| Error::file(&part, &error))?;
        let written = FileSummary {
            rows: 0,
            bytes: 0,
            observed_ms: (i64::MAX, i64::MIN),
            modified_ms: (i64::MAX, i64::MIN),
            ids: Default::default(),
            paths: Vec::new(),
            attributes: Vec::new(),
            checksums: Vec::new(),
        };
        let group = PointColumns::default();
        Ok(Self {
            files: files.clone(),
            path: path.to_owned(),
            part,
            file,
            parquet,
            group,
            group_bytes: 0,
            written,
            paths: NameSet::default(),
            attributes: NameSet::default(),
            is_finished: false,
        })
    }

    /// Appends a row; the caller passes rows in sort order.
    pub(crate) fn push(&mut self, row: PointRow) -> Result<(), Error> {
        let written = &mut self.written;
        written.rows += 1;
        written.observed_ms = (written.observed_ms.0.min(row.observed), written.observed_ms.1.max(row.observed));
        written.modified_ms = (written.modified_ms.0.min(row.modified), written.modified_ms.1.max(row.modified));
        if written.rows == 1 {
            written.ids.0 = text(&row.id);
        }
        self.paths.add(&row.path);
        self.attributes.add(&row.attribute);
        self.group_bytes += row.text_bytes();
        self.group.push(row);
        let is_full = self.group.len() >= GROUP_ROWS || self.group_bytes >= GROUP_BYTES;
        if is_full { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> Result<(), Error> {
        self.group_bytes = 0;
        let group = std::mem::take(&mut self.group);
        if let Some(last) = group.id.last() {
            self.written.ids.1 = text(last);
            write_group(&mut self.parquet, &group).map_err(|error| Error::file(&self.part, &error))?;
        }
        Ok(())
    }

    /// Makes the file durable and renames it.
    pub(crate) fn finish(mut self) -> Result<FileSummary, Error> {
        self.end_group()?;
        self.parquet.finish().map_err(|error| Error::file(&self.part, &error))?;
        self.file.sync().map_err(|error| Error::io("sync", &self.part, error))?;
        self.written.bytes = self.file.size().map_err(|error| Error::io("look at", &self.part, error))?;
        self.written.paths = std::mem::take(&mut self.paths).into_few();
        self.written.attributes = std::mem::take(&mut self.attributes).into_few();
        self.written.checksums = self.parquet.inner().checksums.all();
        self.files.rename(&self.part, &self.path).map_err(|error| Error::io("rename", &self.part, error))?;
        self.is_finished = true;
        let directory = self.path.parent().unwrap_or(&self.path);
        self.files.sync_dir(directory).map_err(|error| Error::io("sync", directory, error))?;
        Ok(self.written.clone())
    }
}

/// The distinct names of a column, while they are few.
#[derive(Debug, Default)]
struct NameSet {
    last: ByteArray,
    names: BTreeSet<String>,
    bytes: usize,
}

impl NameSet {
    fn add(&mut self, name: &ByteArray) {
        let is_last = self.last != ByteArray::default() && self.last.data() == name.data();
        if !is_last && self.is_small() {
            self.last = name.clone();
            let name = text(name);
            let name_bytes = name.len();
            if self.names.insert(name) {
                self.bytes += name_bytes;
            }
        }
    }

    fn is_small(&self) -> bool {
        self.names.len() <= NAMES_MAX && self.bytes <= NAMES_MAX_BYTES
    }

    /// Returns the names, or none if there are too many for a record of the catalog.
    fn into_few(self) -> Vec<String> {
        if self.is_small() { self.names.into_iter().collect() } else { Vec::new() }
    }
}

fn text(bytes: &ByteArray) -> String {
    String::from_utf8_lossy(bytes.data()).into_owned()
}

/// Creates `directory` and makes all directory entries up to `root` durable.
pub(crate) fn make_directory(files: &dyn Files, root: &Path, directory: &Path) -> Result<(), Error> {
    files.create_dir_all(directory).map_err(|error| Error::io("create", directory, error))?;
    let above = directory.ancestors().skip(1).take_while(|above| above.starts_with(root));
    for above in above {
        files.sync_dir(above).map_err(|error| Error::io("sync", above, error))?;
    }
    Ok(())
}

type RowGroupWriter<'g> = SerializedRowGroupWriter<'g, AppendWriter>;

fn write_group(parquet: &mut SerializedFileWriter<AppendWriter>, rows: &PointColumns) -> Result<(), ParquetError> {
    let mut group = parquet.next_row_group()?;
    write_bytes(&mut group, &rows.id, None)?;
    write_bytes(&mut group, &rows.path, None)?;
    write_bytes(&mut group, &rows.attribute, None)?;
    write_bytes(&mut group, &rows.kind, None)?;
    write_integers(&mut group, &rows.observed)?;
    write_integers(&mut group, &rows.modified)?;
    write_bytes(&mut group, &rows.value, None)?;
    let (numbers, there) = packed(&rows.number);
    let mut column = group.next_column()?.ok_or_else(no_column)?;
    column.typed::<DoubleType>().write_batch(&numbers, Some(&there), None)?;
    column.close()?;
    let (metadata, there) = packed(&rows.metadata);
    write_bytes(&mut group, &metadata, Some(&there))?;
    write_integers(&mut group, &rows.offset)?;
    group.close()?;
    Ok(())
}

fn write_bytes(
    group: &mut RowGroupWriter<'_>,
    values: &[ByteArray],
    there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(no_column)?;
    column.typed::<ByteArrayType>().write_batch(values, there, None)?;
    column.close()
}

fn write_integers(group: &mut RowGroupWriter<'_>, values: &[i64]) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(no_column)?;
    column.typed::<Int64Type>().write_batch(values, None, None)?;
    column.close()
}

fn no_column() -> ParquetError {
    ParquetError::General("the schema has no such column".to_owned())
}

/// Returns the present values, and a definition level per row.
fn packed<T: Clone>(values: &[Option<T>]) -> (Vec<T>, Vec<i16>) {
    (values.iter().flatten().cloned().collect(), values.iter().map(|value| i16::from(value.is_some())).collect())
}

struct AppendWriter {
    file: Arc<dyn File>,
    at: u64,
    checksums: BlockChecksums,
}

impl Write for AppendWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(&[IoSlice::new(bytes)], self.at)?;
        self.at += bytes.len() as u64;
        self.checksums.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
