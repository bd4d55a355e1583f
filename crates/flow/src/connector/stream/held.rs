//! The records of a sink that are appended with the commit of their epoch.

use std::ops::Range;

use millstream_log::{Error as LogError, Writer};
use millstream_types::{Header, Record, TopicPartition};

use crate::batch::Batch;
use crate::connector::Prepared;

/// Bytes of one append, and the record that goes beyond.
const APPEND_MAX_BYTES: usize = 512 << 10;

/// Headers that a sink gives all its records; those of the source record if `None`.
pub(super) type FixedHeaders = Option<Vec<(&'static str, String)>>;

/// The headers of records that are made of rows of a batch.
pub(super) struct RecordHeaders<'a> {
    fixed: Option<Vec<Header<'a>>>,
    /// Those of each row; empty without any.
    of_rows: Vec<Vec<Header<'a>>>,
}

impl<'a> RecordHeaders<'a> {
    pub(super) fn new(fixed: &'a FixedHeaders, batch: &'a Batch, rows: impl Iterator<Item = usize>) -> Self {
        let header = |(key, value): &'a (&'static str, String)| Header { key, value: Some(value.as_bytes()) };
        let fixed = fixed.as_ref().map(|headers| headers.iter().map(header).collect());
        let of_rows = match fixed.is_some() || batch.is_without_headers() {
            true => Vec::new(),
            false => rows.map(|row| batch.headers(row).collect()).collect(),
        };
        Self { fixed, of_rows }
    }

    /// The headers of the record that is made of a row, by its number among the rows.
    pub(super) fn of(&self, index: usize) -> &[Header<'a>] {
        self.fixed.as_deref().unwrap_or_else(|| self.of_rows.get(index).map_or(&[], |headers| headers))
    }
}

/// Records for one partition, rows of one batch.
#[derive(Debug)]
struct HeldAppend {
    partition: TopicPartition,
    batch: Batch,
    rows: Vec<HeldRow>,
    /// The keys that the sink has made.
    keys: String,
    size_bytes: usize,
}

#[derive(Debug)]
struct HeldRow {
    row: u32,
    key: RowKey,
}

/// The key of a record.
#[derive(Debug, Clone)]
pub(super) enum RowKey {
    /// That of the source record.
    OfSource,
    None,
    /// A part of the keys that the sink has made.
    Made(Range<usize>),
}

/// Records in the order in which the sink has taken them.
#[derive(Debug, Default)]
pub(super) struct HeldRecords {
    appends: Vec<HeldAppend>,
    headers: FixedHeaders,
    size_bytes: usize,
}

impl HeldRecords {
    pub(super) fn new(headers: FixedHeaders) -> Self {
        Self { headers, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.appends.is_empty()
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Begins the records of a further batch.
    pub(super) fn begin(&mut self) -> HeldBatch<'_> {
        HeldBatch { first: self.appends.len(), held: self }
    }
}

/// The records of one batch.
pub(super) struct HeldBatch<'h> {
    held: &'h mut HeldRecords,
    /// The first append of the batch.
    first: usize,
}

impl HeldBatch<'_> {
    /// Adds a record of `size_bytes`: a row of the batch, with `made` as its key if that is `Some`.
    pub(super) fn push(
        &mut self,
        batch: &Batch,
        row: u32,
        made: Option<Option<&str>>,
        partition: &TopicPartition,
        size_bytes: usize,
    ) {
        let is_open = |append: &&mut HeldAppend| append.partition == *partition && append.size_bytes < APPEND_MAX_BYTES;
        let place = self.held.appends[self.first..].iter_mut().rev().find(is_open);
        let append = match place {
            Some(append) => append,
            None => {
                let append = HeldAppend {
                    partition: partition.clone(),
                    batch: batch.clone(),
                    rows: Vec::new(),
                    keys: String::new(),
                    size_bytes: 0,
                };
                self.held.appends.push(append);
                let last = self.held.appends.len() - 1;
                &mut self.held.appends[last]
            }
        };
        let key = match made {
            None => RowKey::OfSource,
            Some(None) => RowKey::None,
            Some(Some(key)) => {
                let start = append.keys.len();
                append.keys.push_str(key);
                RowKey::Made(start..append.keys.len())
            }
        };
        append.rows.push(HeldRow { row, key });
        append.size_bytes += size_bytes;
        self.held.size_bytes += size_bytes;
    }
}

impl Prepared for HeldRecords {
    fn appends(&self) -> usize {
        self.appends.len()
    }

    fn append(&self, number: usize, writer: &dyn Writer) -> Result<(), LogError> {
        let HeldAppend { partition, batch, rows, keys, .. } = &self.appends[number];
        let headers = RecordHeaders::new(&self.headers, batch, rows.iter().map(|held| held.row as usize));
        let record = |(index, HeldRow { row, key }): (usize, &HeldRow)| Record {
            timestamp_ms: batch.timestamp_ms(*row as usize),
            key: match key {
                RowKey::OfSource => batch.key(*row as usize),
                RowKey::None => None,
                RowKey::Made(span) => Some(&keys.as_bytes()[span.clone()]),
            },
            value: batch.payload(*row as usize),
            headers: headers.of(index),
        };
        let records: Vec<Record<'_>> = rows.iter().enumerate().map(record).collect();
        writer.append(partition, &records)
    }
}
