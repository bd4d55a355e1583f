//! The connector `file`: JSON lines and CSV below `flow.files_dir`, plain or compressed.
//!
//! Files are opened, read and written by the threads of `Blocking`, one call for each file at a time.

mod csv;
mod lines;
mod location;
mod no_files;
mod reader;
mod sink;
mod source;
mod space;
mod writer;

pub(crate) use self::csv::ColumnType;
pub(crate) use self::location::{FILES_DIR, Location, check_path};
pub(crate) use self::reader::{Chunk, ReadPlan, RecordReader};
pub(super) use self::sink::{SINK, sink};
pub(super) use self::source::{SOURCE, source};
pub(crate) use self::space::FileSpace;
use crate::document::{Compression, FILE_FORMATS, FileFormat, Key, KeyType, file_form};

/// The longest line, and the longest CSV record.
const LINE_MAX_BYTES: usize = 1 << 20;

const FORMAT: Key = Key {
    name: "format",
    value: KeyType::OneOf(&FILE_FORMATS),
    is_required: false,
    default: None,
    doc: "`jsonl`: an object on each line; `csv`: a header line, then records. The file's name tells it if left out.",
};

const COMPRESSION: Key = Key {
    name: "compression",
    value: KeyType::OneOf(&["none", "gzip", "zstd"]),
    is_required: false,
    default: None,
    doc: "The file's name tells it if left out: `.gz` or `.zst`.",
};
