//! The columns of a file, and rows in column form.

use std::sync::{Arc, LazyLock};

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::ByteArray;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};

/// Most rows per row group, and their texts in bytes; a writer buffers one group.
pub(crate) const GROUP_ROWS: usize = 128 << 10;
pub(crate) const GROUP_BYTES: usize = 32 << 20;
/// Most rows per page, which is the unit of reading.
pub(crate) const PAGE_ROWS: usize = 4 << 10;
/// Most pages of values and of metadata that are read at once. A page ends with the value by which it exceeds 1 MiB, so these
/// take a few megabytes whatever a value weighs.
pub(crate) const STEP_PAGES: usize = 4;

/// The columns. Rows are sorted by entity, path, attribute, time of observation and source offset.
const SCHEMA: &str = "
message point {
  required binary entity_id (STRING);
  required binary service_path (STRING);
  required binary attribute (STRING);
  required binary attribute_type (STRING);
  required int64 observed_at (TIMESTAMP(MILLIS,true));
  required int64 modified_at (TIMESTAMP(MILLIS,true));
  required binary value (STRING);
  optional double number;
  optional binary metadata (STRING);
  required int64 source_offset;
}";

pub(crate) const ID: usize = 0;
pub(crate) const PATH: usize = 1;
pub(crate) const ATTRIBUTE: usize = 2;
pub(crate) const KIND: usize = 3;
pub(crate) const OBSERVED: usize = 4;
pub(crate) const MODIFIED: usize = 5;
pub(crate) const VALUE: usize = 6;
pub(crate) const NUMBER: usize = 7;
pub(crate) const METADATA: usize = 8;
pub(crate) const OFFSET: usize = 9;
const SORTED_BY: [usize; 5] = [ID, PATH, ATTRIBUTE, OBSERVED, OFFSET];

pub(crate) static SCHEMA_TYPE: LazyLock<TypePtr> =
    LazyLock::new(|| Arc::new(parse_message_type(SCHEMA).expect("the schema is a legal one")));

/// Writer settings: dictionaries for names, delta encoding for times, full page bounds.
pub(crate) static PROPERTIES: LazyLock<WriterPropertiesPtr> = LazyLock::new(|| {
    let sorting =
        SORTED_BY.map(|column| SortingColumn { column_idx: column as i32, descending: false, nulls_first: false });
    let mut properties = WriterProperties::builder()
        .set_created_by("millstream".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(true)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_statistics_truncate_length(None)
        .set_column_index_truncate_length(None)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_sorting_columns(Some(sorting.to_vec()));
    for name in ["observed_at", "modified_at", "source_offset"] {
        let path = ColumnPath::from(name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    for name in ["value", "number"] {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), false);
    }
    for name in ["value", "metadata"] {
        properties = properties.set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::None);
    }
    Arc::new(properties.build())
});

#[derive(Debug, Default)]
pub(crate) struct PointColumns {
    pub(crate) id: Vec<ByteArray>,
    pub(crate) path: Vec<ByteArray>,
    pub(crate) attribute: Vec<ByteArray>,
    pub(crate) kind: Vec<ByteArray>,
    pub(crate) observed: Vec<i64>,
    pub(crate) modified: Vec<i64>,
    pub(crate) value: Vec<ByteArray>,
    pub(crate) number: Vec<Option<f64>>,
    pub(crate) metadata: Vec<Option<ByteArray>>,
    pub(crate) offset: Vec<i64>,
}

#[derive(Debug, Clone)]
pub(crate) struct PointRow {
    pub(crate) id: ByteArray,
    pub(crate) path: ByteArray,
    pub(crate) attribute: ByteArray,
    pub(crate) kind: ByteArray,
    pub(crate) observed: i64,
    pub(crate) modified: i64,
    pub(crate) value: ByteArray,
    pub(crate) number: Option<f64>,
    pub(crate) metadata: Option<ByteArray>,
    pub(crate) offset: i64,
}

impl PointRow {
    /// Returns the bytes of its texts that differ from row to row.
    pub(crate) fn text_bytes(&self) -> usize {
        self.value.len() + self.metadata.as_ref().map_or(0, ByteArray::len)
    }

    pub(crate) fn order(&self) -> (&[u8], &[u8], &[u8], i64, i64) {
        (self.id.data(), self.path.data(), self.attribute.data(), self.observed, self.offset)
    }
}

impl PointColumns {
    pub(crate) fn len(&self) -> usize {
        self.observed.len()
    }

    pub(crate) fn push(&mut self, row: PointRow) {
        self.id.push(row.id);
        self.path.push(row.path);
        self.attribute.push(row.attribute);
        self.kind.push(row.kind);
        self.observed.push(row.observed);
        self.modified.push(row.modified);
        self.value.push(row.value);
        self.number.push(row.number);
        self.metadata.push(row.metadata);
        self.offset.push(row.offset);
    }

    /// Takes a row out and leaves its texts empty.
    pub(crate) fn take_row(&mut self, at: usize) -> PointRow {
        let take = std::mem::take::<ByteArray>;
        PointRow {
            id: take(&mut self.id[at]),
            path: take(&mut self.path[at]),
            attribute: take(&mut self.attribute[at]),
            kind: take(&mut self.kind[at]),
            observed: self.observed[at],
            modified: self.modified[at],
            value: take(&mut self.value[at]),
            number: self.number[at],
            metadata: self.metadata[at].take(),
            offset: self.offset[at],
        }
    }
}
