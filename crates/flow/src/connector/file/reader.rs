//! Reads a file record by record: bad ones are told by file and line, and the next ones are read.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use super::csv::{ColumnType, CsvRecord, CsvState};
use super::lines::{Line, LineReader};
use super::location::Location;
use super::{Compression, FileFormat, LINE_MAX_BYTES};
use crate::batch::{Batch, SourceBatch};
use crate::expression::RecordError;
use crate::object;

/// Bytes of one chunk, and the record that goes beyond.
const CHUNK_MAX_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;

/// The rule by which a source reads its file.
#[derive(Debug, Clone)]
pub(crate) struct ReadPlan {
    pub(crate) location: Location,
    pub(crate) format: FileFormat,
    pub(crate) compression: Compression,
    /// CSV: the types of columns by name.
    pub(crate) types: BTreeMap<String, ColumnType>,
    /// CSV: the type of the other columns.
    pub(crate) other_type: ColumnType,
}

/// Records that were read at once.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Good and bad records, whose payloads are the lines of the file.
    pub(crate) batch: Batch,
    /// The bad ones, by ascending row.
    pub(crate) failed: Vec<RecordError>,
    /// The number of records of the file up to here.
    pub(crate) records_read: u64,
    pub(crate) is_last: bool,
}

pub(crate) struct RecordReader {
    plan: ReadPlan,
    lines: LineReader,
    columns: Vec<(String, ColumnType)>,
    records_read: u64,
    line: Vec<u8>,
    record: CsvRecord,
}

/// A record that was read, or its error.
enum Read {
    Good,
    Bad(&'static str, String),
    End,
}

impl RecordReader {
    /// Opens the file and passes over the first `skipped` records.
    pub(crate) fn open(plan: ReadPlan, skipped: u64) -> Result<Self, String> {
        let path = plan.location.existing()?;
        let file = File::open(path).map_err(|error| plan.location.failed("be opened", &error))?;
        let reader = decompressed(file, plan.compression).map_err(|error| plan.location.failed("be read", &error))?;
        let mut reader = Self {
            lines: LineReader::new(reader),
            columns: Vec::new(),
            records_read: 0,
            line: Vec::new(),
            record: CsvRecord::new(),
            plan,
        };
        if reader.plan.format == FileFormat::Csv {
            reader.read_header()?;
        }
        let mut unused = Vec::new();
        for _ in 0..skipped {
            unused.clear();
            if matches!(reader.next(&mut unused)?, Read::End) {
                break;
            }
        }
        Ok(reader)
    }

    /// The next records, at most `max_records`.
    pub(crate) fn read(&mut self, max_records: usize, now_ms: i64) -> Result<Chunk, String> {
        let mut batch = SourceBatch::default();
        let (mut failed, mut size_bytes, mut is_last) = (Vec::new(), 0, false);
        let mut payload = Vec::new();
        while batch.len() < max_records && size_bytes < CHUNK_MAX_BYTES {
            payload.clear();
            let number = self.records_read;
            match self.next(&mut payload)? {
                Read::End => {
                    is_last = true;
                    break;
                }
                Read::Good => batch.push(number, None, now_ms, |out| out.extend_from_slice(&payload)),
                Read::Bad(code, message) => {
                    failed.push(RecordError { row: batch.len() as u32, code, message });
                    batch.push(number, None, now_ms, |out| out.extend_from_slice(&self.line));
                    size_bytes += self.line.len();
                }
            }
            size_bytes += payload.len();
        }
        let batch = if failed.is_empty() { batch.finish() } else { batch.finish_unchecked() };
        Ok(Chunk { batch, failed, records_read: self.records_read, is_last })
    }

    /// Appends the next record to `payload`; the lines of a bad one are in `self.line`.
    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Read, String> {
        let first = loop {
            self.line.clear();
            match self.next_line()? {
                Line::End => return Ok(Read::End),
                Line::Whole if self.line.iter().all(u8::is_ascii_whitespace) => {}
                line => break line,
            }
        };
        self.records_read += 1;
        let number = self.lines.number;
        let bad = |code, message: String| Read::Bad(code, message);
        if first == Line::TooLong {
            return Ok(bad("line_too_long", self.at(number, &too_long())));
        }
        match self.plan.format {
            FileFormat::JsonLines if std::str::from_utf8(&self.line).is_ok() && object::is_object(&self.line) => {
                payload.extend_from_slice(self.line.trim_ascii());
                Ok(Read::Good)
            }
            FileFormat::JsonLines => {
                Ok(bad("invalid_json", self.at(number, "the line is not a JSON object; write one a line")))
            }
            FileFormat::Csv => match self.csv_record(payload)? {
                Ok(()) => Ok(Read::Good),
                Err(fault) => {
                    payload.clear();
                    Ok(bad("invalid_csv", self.at(number, &fault)))
                }
            },
        }
    }

    fn next_line(&mut self) -> Result<Line, String> {
        self.lines.next(&mut self.line).map_err(|error| {
            let at = format!("be read behind line {}", self.lines.number);
            self.plan.location.failed(&at, &error)
        })
    }

    fn at(&self, line: u64, fault: &str) -> String {
        format!("file '{}', line {line}: {fault}", self.plan.location.name())
    }

    /// Parses the record that begins with `self.line`, and reads further lines as long as quotes are open.
    fn parse_csv(&mut self) -> Result<Result<(), String>, String> {
        self.record.clear();
        let mut from = 0;
        loop {
            match self.record.take(&self.line[from..]) {
                CsvState::Whole => return Ok(Ok(())),
                CsvState::Fault(fault) => return Ok(Err(fault.to_owned())),
                CsvState::Open => {}
            }
            self.line.push(b'\n');
            from = self.line.len();
            match self.next_line()? {
                Line::End => return Ok(Err("a quote is opened and never closed".to_owned())),
                _ if self.line.len() > LINE_MAX_BYTES => {
                    self.line.truncate(LINE_MAX_BYTES);
                    return Ok(Err(format!("a quote is open, and {}", too_long())));
                }
                Line::Whole | Line::TooLong => {}
            }
        }
    }

    fn csv_record(&mut self, payload: &mut Vec<u8>) -> Result<Result<(), String>, String> {
        if let Err(fault) = self.parse_csv()? {
            return Ok(Err(fault));
        }
        let (found, expected) = (self.record.len(), self.columns.len());
        if found != expected {
            return Ok(Err(format!("the record has {found} fields, and the header {expected}; give each column one")));
        }
        payload.push(b'{');
        for (field, (name, kind)) in self.record.fields().zip(&self.columns) {
            object::begin_member(name, payload);
            if !kind.write(field, payload) {
                let kind = super::csv::TYPES.iter().find(|(_, known)| known == kind).map_or("", |(word, _)| word);
                return Ok(Err(format!("field '{name}' is '{}', and its type {kind}", shortened(field))));
            }
        }
        payload.push(b'}');
        Ok(Ok(()))
    }

    fn read_header(&mut self) -> Result<(), String> {
        if self.next_line()? == Line::End {
            return Ok(());
        }
        self.parse_csv()?.map_err(|fault| self.at(1, &fault))?;
        let (types, other) = (&self.plan.types, self.plan.other_type);
        let typed = |name: &str| (name.to_owned(), types.get(name).copied().unwrap_or(other));
        self.columns = self.record.fields().map(typed).collect();
        let names: HashSet<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        let header: Vec<&str> = self.record.fields().collect();
        if names.len() < self.columns.len() || names.contains("") {
            let fault =
                format!("the header '{}' has an empty name or a name twice; name each column", header.join(","));
            return Err(self.at(1, &shortened(&fault)));
        }
        if let Some(unknown) = types.keys().find(|name| !names.contains(name.as_str())) {
            let fault =
                format!("there is no column '{unknown}', which 'types' names; the header is {}", header.join(","));
            return Err(self.at(1, &shortened(&fault)));
        }
        Ok(())
    }
}

fn too_long() -> String {
    format!("the line is longer than {LINE_MAX_BYTES} bytes; split the record")
}

/// The first 200 characters of `text`, so that a message stays readable.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

pub(super) fn decompressed(file: File, compression: Compression) -> io::Result<Box<dyn BufRead + Send>> {
    Ok(match compression {
        Compression::None => Box::new(BufReader::with_capacity(READ_BYTES, file)),
        Compression::Gzip => {
            let file = flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, file));
            Box::new(BufReader::with_capacity(READ_BYTES, file))
        }
        Compression::Zstd => {
            let file = zstd::stream::read::Decoder::new(file)?;
            Box::new(BufReader::with_capacity(READ_BYTES, file))
        }
    })
}
