//! Reads a Parquet file of points: finds an entity's rows by the page bounds, and reads no other page.

use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use millstream_log::Files;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::{ChunkReader, Length, RowGroupReader};
use parquet::file::serialized_reader::SerializedRowGroupReader;

use crate::Error;
use crate::block_checksums::VerifiedFile;
use crate::catalog_record::FileRecord;
use crate::columns::{
    ATTRIBUTE, ID, KIND, METADATA, MODIFIED, NUMBER, OBSERVED, OFFSET, PAGE_ROWS, PATH, PointColumns, SCHEMA_TYPE,
    STEP_PAGES, VALUE,
};
use crate::top_n::TimeEnd;

pub(crate) struct OpenFile {
    path: PathBuf,
    file: Arc<ParquetChunks>,
    meta: ParquetMetaData,
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenFile({})", self.path.display())
    }
}

/// Consecutive rows of a row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowRange {
    pub(crate) group: usize,
    pub(crate) rows: Range<usize>,
}

/// The rows of one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeriesRun {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) attribute: String,
    pub(crate) rows: RowRange,
}

impl SeriesRun {
    fn continues_with(&self, next: &Self) -> bool {
        self.rows.group == next.rows.group
            && self.rows.rows.end == next.rows.rows.start
            && (&self.id, &self.path, &self.attribute) == (&next.id, &next.path, &next.attribute)
    }
}

/// The columns to read beside times and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Projection {
    All,
    Numbers,
    Values,
}

impl OpenFile {
    /// Opens the file that `record` describes, and reads its index.
    pub(crate) fn open(files: &dyn Files, path: &Path, record: &FileRecord) -> Result<Self, Error> {
        let file = Arc::new(ParquetChunks(Arc::new(VerifiedFile::open(files, path, record)?)));
        let meta = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Required)
            .parse_and_finish(&*file)
            .map_err(|error| Error::file(path, &error))?;
        if meta.file_metadata().schema() != &**SCHEMA_TYPE {
            return Err(Error::file(path, &"its columns are not those of history; remove it"));
        }
        Ok(Self { path: path.to_owned(), file, meta })
    }

    /// Verifies all blocks, or reads all rows of a file without checksums.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        self.file.0.verify_all().map_err(|error| Error::file(&self.path, &error))?;
        if self.file.0.has_checksums() {
            return Ok(());
        }
        (0..self.groups()).try_for_each(|group| {
            let mut rest = 0..self.group_rows(group);
            while !rest.is_empty() {
                let rows = rest.start..rest.end.min(rest.start + PAGE_ROWS);
                let rows = self.step(RowRange { group, rows }, TimeEnd::First)?;
                self.read(&rows)?;
                rest.start = rows.rows.end;
            }
            Ok(())
        })
    }

    /// Returns the memory that the index takes.
    pub(crate) fn index_bytes(&self) -> usize {
        self.meta.memory_size()
    }

    pub(crate) fn groups(&self) -> usize {
        self.meta.num_row_groups()
    }

    pub(crate) fn group_rows(&self, group: usize) -> usize {
        usize::try_from(self.meta.row_group(group).num_rows()).unwrap_or_default()
    }

    /// Iterates the series with ids from `from` to `to`; reads pages on demand.
    pub(crate) fn runs(self: &Arc<Self>, from: &str, to: Option<&str>) -> SeriesRuns {
        let (from, to) = (from.to_owned(), to.map(str::to_owned));
        let (blocks, found) = (Vec::new().into_iter(), Vec::new().into_iter());
        SeriesRuns { file: self.clone(), from, to, group: 0, blocks, found, ahead: None }
    }

    /// Narrows `rows`, the rows of one series in order of observation, to the pages that
    /// may contain times in `from..to`.
    pub(crate) fn observed_between(&self, rows: &RowRange, from: i64, to: i64) -> Result<Range<usize>, Error> {
        let bounds = self.integer_bounds(rows.group, OBSERVED)?;
        let starts = self.page_starts(rows.group, OBSERVED)?;
        let mut between = rows.rows.end..rows.rows.start;
        for (page, (min, max)) in bounds.iter().enumerate() {
            let end = starts.get(page + 1).copied().unwrap_or_else(|| self.group_rows(rows.group));
            let within = starts[page].max(rows.rows.start)..end.min(rows.rows.end);
            // The first and last page may contain other series, and thus other times.
            if !within.is_empty() && *max >= from && *min < to {
                between = between.start.min(within.start)..between.end.max(within.end);
            }
        }
        Ok(if between.is_empty() { rows.rows.start..rows.rows.start } else { between })
    }

    /// Tells if the rows, those of one series, have a time of observation in `from..to`.
    pub(crate) fn has_observed(&self, rows: &RowRange, from: i64, to: i64) -> Result<bool, Error> {
        let mut rest = self.observed_between(rows, from, to)?;
        while !rest.is_empty() {
            let end = rest.end.min((rest.start / PAGE_ROWS + 1) * PAGE_ROWS);
            let page = RowRange { group: rows.group, rows: rest.start..end };
            if self.column::<Int64Type>(&page, OBSERVED)?.values.iter().any(|ms| (from..to).contains(ms)) {
                return Ok(true);
            }
            rest.start = end;
        }
        Ok(false)
    }

    /// Narrows `rows` to those nearest to `end` that can be read at once: [`STEP_PAGES`] pages of values and of metadata.
    pub(crate) fn step(&self, rows: RowRange, end: TimeEnd) -> Result<RowRange, Error> {
        let RowRange { group, mut rows } = rows;
        for column in [VALUE, METADATA] {
            let pages = self.page_starts(group, column)?;
            let page_of = |row: usize| pages.partition_point(|first| *first <= row).saturating_sub(1);
            match end {
                TimeEnd::First => {
                    let next = pages.get(page_of(rows.start) + STEP_PAGES);
                    rows.end = next.map_or(rows.end, |next| rows.end.min(*next));
                }
                TimeEnd::Last => {
                    let first = (page_of(rows.end.saturating_sub(1)) + 1).saturating_sub(STEP_PAGES);
                    rows.start = pages.get(first).map_or(rows.start, |first| rows.start.max(*first));
                }
            }
        }
        Ok(RowRange { group, rows })
    }

    /// Reads all columns of the rows.
    pub(crate) fn read(&self, rows: &RowRange) -> Result<PointColumns, Error> {
        let mut columns = self.read_points(rows, Projection::All)?;
        columns.id = self.bytes(rows, ID)?;
        columns.path = self.bytes(rows, PATH)?;
        columns.attribute = self.bytes(rows, ATTRIBUTE)?;
        Ok(columns)
    }

    /// Reads rows without id, path and attribute.
    pub(crate) fn read_points(&self, rows: &RowRange, projection: Projection) -> Result<PointColumns, Error> {
        let mut columns = PointColumns {
            observed: self.column::<Int64Type>(rows, OBSERVED)?.values,
            modified: self.column::<Int64Type>(rows, MODIFIED)?.values,
            number: self.column::<DoubleType>(rows, NUMBER)?.spread(),
            offset: self.column::<Int64Type>(rows, OFFSET)?.values,
            ..PointColumns::default()
        };
        if projection != Projection::Numbers {
            columns.value = self.bytes(rows, VALUE)?;
        }
        if projection == Projection::All {
            columns.kind = self.bytes(rows, KIND)?;
            columns.metadata = self.column::<ByteArrayType>(rows, METADATA)?.spread();
        }
        Ok(columns)
    }

    fn bytes(&self, rows: &RowRange, column: usize) -> Result<Vec<ByteArray>, Error> {
        Ok(self.column::<ByteArrayType>(rows, column)?.values)
    }

    /// Returns the present values, and a definition level per row (none for a required column).
    fn column<T: DataType>(&self, rows: &RowRange, column: usize) -> Result<ColumnValues<T::T>, Error> {
        let read = || {
            let index = self.meta.page_index_for_row_group(rows.group);
            let properties = Arc::new(ReaderProperties::builder().build());
            let group = self.meta.row_group(rows.group);
            let group = SerializedRowGroupReader::new(self.file.clone(), group, index, properties)?;
            let mut reader = get_typed_column_reader::<T>(group.get_column_reader(column)?);
            reader.skip_records(rows.rows.start)?;
            let (mut values, mut levels) = (Vec::with_capacity(rows.rows.len()), Vec::new());
            let mut read = 0;
            while read < rows.rows.len() {
                let (records, _, _) =
                    reader.read_records(rows.rows.len() - read, Some(&mut levels), None, &mut values)?;
                if records == 0 {
                    return Err(ParquetError::EOF(format!("column {column} ends before its {} rows", rows.rows.end)));
                }
                read += records;
            }
            Ok(ColumnValues { values, levels })
        };
        read().map_err(|error| Error::file(&self.path, &error))
    }

    fn no_index(&self) -> Error {
        Error::file(&self.path, &"it has no page index; remove it")
    }

    /// Returns the first row of each page.
    fn page_starts(&self, group: usize, column: usize) -> Result<Vec<usize>, Error> {
        let index = self.meta.page_index_for_row_group(group);
        let pages = index.page_locations(column).ok_or_else(|| self.no_index())?;
        Ok(pages.iter().map(|page| page.first_row_index as usize).collect())
    }

    /// Returns the least and greatest value of each page.
    fn integer_bounds(&self, group: usize, column: usize) -> Result<Vec<(i64, i64)>, Error> {
        let index = self.meta.page_index_for_row_group(group);
        let Some(ColumnIndexMetaData::INT64(bounds)) = index.column_index(column) else { return Err(self.no_index()) };
        Ok(bounds.min_values().iter().copied().zip(bounds.max_values().iter().copied()).collect())
    }

    /// Splits a row group at all page ends of the id, path and attribute columns.
    fn blocks(&self, group: usize) -> Result<Vec<Block>, Error> {
        let index = self.meta.page_index_for_row_group(group);
        let mut starts = Vec::new();
        let mut columns = Vec::new();
        for column in [ID, PATH, ATTRIBUTE] {
            let Some(ColumnIndexMetaData::BYTE_ARRAY(bounds)) = index.column_index(column) else {
                return Err(self.no_index());
            };
            let pages = self.page_starts(group, column)?;
            starts.extend_from_slice(&pages);
            columns.push((bounds, pages));
        }
        starts.sort_unstable();
        starts.dedup();
        let ends = starts.iter().skip(1).copied().chain([self.group_rows(group)]);
        let block = |(start, end): (&usize, usize)| {
            let bounds =
                |(bounds, pages): &(&parquet::file::page_index::column_index::ByteArrayColumnIndex, Vec<usize>)| {
                    let page = pages.partition_point(|first| first <= start).saturating_sub(1);
                    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
                    (text(bounds.min_value(page)), text(bounds.max_value(page)))
                };
            let mut names = columns.iter().map(bounds);
            let mut next = || names.next().unwrap_or_default();
            Block { rows: RowRange { group, rows: *start..end }, id: next(), path: next(), attribute: next() }
        };
        Ok(starts.iter().zip(ends).map(block).collect())
    }

    /// Returns the series of a block; reads the columns if the bounds are not enough.
    fn runs_of(&self, block: Block) -> Result<Vec<SeriesRun>, Error> {
        if block.is_of_one_series() {
            let Block { rows, id, path, attribute } = block;
            return Ok(vec![SeriesRun { id: id.0, path: path.0, attribute: attribute.0, rows }]);
        }
        let [ids, paths, attributes] = [ID, PATH, ATTRIBUTE].map(|column| self.bytes(&block.rows, column));
        let (ids, paths, attributes) = (ids?, paths?, attributes?);
        let names = |at: usize| (ids[at].data(), paths[at].data(), attributes[at].data());
        let mut runs: Vec<SeriesRun> = Vec::new();
        let mut start = 0;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for end in 1..=ids.len() {
            if end == ids.len() || names(end) != names(start) {
                let (id, path, attribute) = names(start);
                let first = block.rows.rows.start;
                let rows = RowRange { group: block.rows.group, rows: first + start..first + end };
                runs.push(SeriesRun { id: text(id), path: text(path), attribute: text(attribute), rows });
                start = end;
            }
        }
        Ok(runs)
    }
}

/// The values of a column in some rows, without those that are missing.
struct ColumnValues<T> {
    values: Vec<T>,
    /// The definition level of each row, if values may be missing; 0 where one is.
    levels: Vec<i16>,
}

impl<T> ColumnValues<T> {
    /// Returns an optional value per row.
    fn spread(self) -> Vec<Option<T>> {
        let mut values = self.values.into_iter();
        self.levels.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect()
    }
}

/// Rows within one page of each of the id, path and attribute columns, with the bounds of these pages.
struct Block {
    rows: RowRange,
    id: (String, String),
    path: (String, String),
    attribute: (String, String),
}

impl Block {
    fn is_of_one_series(&self) -> bool {
        [&self.id, &self.path, &self.attribute].iter().all(|(least, greatest)| least == greatest)
    }
}

/// Iterates the series of a file in order; returns a series again if it continues in the next row group.
pub(crate) struct SeriesRuns {
    file: Arc<OpenFile>,
    from: String,
    to: Option<String>,
    group: usize,
    blocks: std::vec::IntoIter<Block>,
    found: std::vec::IntoIter<SeriesRun>,
    /// The series read last; the next run may continue it.
    ahead: Option<SeriesRun>,
}

impl SeriesRuns {
    fn concerns(&self, block: &Block) -> bool {
        block.id.1 >= self.from && self.to.as_ref().is_none_or(|to| block.id.0 <= *to)
    }

    fn next_run(&mut self) -> Result<Option<SeriesRun>, Error> {
        loop {
            if let Some(run) = self.found.next() {
                if run.id >= self.from && self.to.as_ref().is_none_or(|to| run.id <= *to) {
                    return Ok(Some(run));
                }
                continue;
            }
            if let Some(block) = self.blocks.next() {
                if self.concerns(&block) {
                    self.found = self.file.runs_of(block)?.into_iter();
                }
                continue;
            }
            if self.group >= self.file.groups() {
                return Ok(None);
            }
            self.blocks = self.file.blocks(self.group)?.into_iter();
            self.group += 1;
        }
    }
}

impl Iterator for SeriesRuns {
    type Item = Result<SeriesRun, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_run() {
                Err(error) => return Some(Err(error)),
                Ok(None) => return self.ahead.take().map(Ok),
                Ok(Some(run)) => match &mut self.ahead {
                    Some(ahead) if ahead.continues_with(&run) => ahead.rows.rows.end = run.rows.rows.end,
                    ahead => {
                        if let Some(whole) = ahead.replace(run) {
                            return Some(Ok(whole));
                        }
                    }
                },
            }
        }
    }
}

/// Adapts a file to the Parquet reader.
struct ParquetChunks(Arc<VerifiedFile>);

impl Length for ParquetChunks {
    fn len(&self) -> u64 {
        self.0.bytes
    }
}

impl ChunkReader for ParquetChunks {
    type T = BufReader<RangeReader>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::new(RangeReader { file: self.0.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.0.bytes) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are beyond the end")));
        }
        let mut bytes = vec![0; length];
        let read = self.0.read_at(&mut bytes, start)?;
        if read < length {
            return Err(ParquetError::EOF(format!("{read} of {length} bytes at {start} are there")));
        }
        Ok(bytes.into())
    }
}

/// Reads a file from a position.
struct RangeReader {
    file: Arc<VerifiedFile>,
    at: u64,
}

impl Read for RangeReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use millstream_log::SystemFiles;
    use proptest::prelude::*;

    use super::*;
    use crate::columns::{GROUP_BYTES, PointRow};
    use crate::file_period::FilePeriod;
    use crate::file_writer::FileWriter;

    /// Writes one series whose values and metadata have these sizes in KiB.
    fn written(directory: &Path, sizes_kib: &[(usize, usize)]) -> OpenFile {
        let (files, path): (Arc<dyn Files>, _) = (Arc::new(SystemFiles), directory.join("day/1.parquet"));
        let mut writer = FileWriter::create(&files, directory, &path).unwrap();
        for (at, (value, metadata)) in sizes_kib.iter().enumerate() {
            let text = |kib: usize| ByteArray::from(format!("{at}{}", "x".repeat(kib << 10)).into_bytes());
            let row = PointRow {
                id: "e".into(),
                path: "/".into(),
                attribute: "a".into(),
                kind: "Text".into(),
                observed: at as i64,
                modified: at as i64,
                value: text(*value),
                number: None,
                metadata: (*metadata > 0).then(|| text(*metadata)),
                offset: at as i64,
            };
            writer.push(row).unwrap();
        }
        let place = ("acme".to_owned(), "Room".to_owned(), FilePeriod::of(crate::file_period::Span::Day, 0));
        let record = FileRecord::new(place, 1, writer.finish().unwrap(), 0);
        OpenFile::open(&SystemFiles, &path, &record).unwrap()
    }

    /// Returns the offsets of all rows of a group and the most text bytes that one step read.
    fn stepped(open: &OpenFile, group: usize, end: TimeEnd) -> (VecDeque<i64>, usize) {
        let (mut rest, mut offsets, mut most) = (0..open.group_rows(group), VecDeque::new(), 0);
        while !rest.is_empty() {
            let step = open.step(RowRange { group, rows: rest.clone() }, end).unwrap();
            let columns = open.read_points(&step, Projection::All).unwrap();
            let metadata = columns.metadata.iter().flatten().map(ByteArray::len).sum::<usize>();
            most = most.max(columns.value.iter().map(ByteArray::len).sum::<usize>() + metadata);
            match end {
                TimeEnd::First => {
                    assert_eq!(step.rows.start, rest.start);
                    offsets.extend(columns.offset);
                    rest.start = step.rows.end;
                }
                TimeEnd::Last => {
                    assert_eq!(step.rows.end, rest.end);
                    columns.offset.iter().rev().for_each(|offset| offsets.push_front(*offset));
                    rest.end = step.rows.start;
                }
            }
        }
        (offsets, most)
    }

    #[test]
    fn large_values_are_written_and_read_in_steps_of_a_few_megabytes() {
        let directory = tempfile::tempdir().unwrap();
        let sizes: Vec<(usize, usize)> = (0..150).map(|at| if at % 2 == 0 { (1024, 0) } else { (1, 700) }).collect();
        let open = written(directory.path(), &sizes);
        let written_bytes: usize = sizes.iter().map(|(value, metadata)| (value + metadata) << 10).sum();
        assert!(open.groups() >= written_bytes / (GROUP_BYTES + (1 << 20)), "{} row groups", open.groups());
        for end in [TimeEnd::First, TimeEnd::Last] {
            let (offsets, bytes): (Vec<_>, Vec<_>) = (0..open.groups()).map(|group| stepped(&open, group, end)).unzip();
            assert_eq!(offsets.into_iter().flatten().collect::<Vec<_>>(), (0..150).collect::<Vec<_>>());
            let most = bytes.into_iter().max().unwrap();
            assert!((4 << 20..12 << 20).contains(&most), "{most} bytes");
        }
        open.verify().unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn steps_read_every_row_once(sizes in prop::collection::vec((0..900_usize, 0..900_usize), 1..60)) {
            let directory = tempfile::tempdir().unwrap();
            let open = written(directory.path(), &sizes);
            for end in [TimeEnd::First, TimeEnd::Last] {
                let all = (0..open.groups()).flat_map(|group| stepped(&open, group, end).0);
                prop_assert_eq!(all.collect::<Vec<_>>(), (0..sizes.len() as i64).collect::<Vec<_>>());
            }
        }
    }
}
