//! Appends records to a file, so that it holds whole records only.
//!
//! A group of batches is written at once and synced. In a compressed file each group is a gzip member or a zstd frame of
//! its own, which any decompressor reads as one file. A file whose last line, member or frame was torn by a crash is cut
//! behind the last whole one before anything is appended.

use std::borrow::Cow;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use super::lines::{Line, LineReader};
use super::location::Location;
use super::reader::decompressed;
use super::{Compression, FileFormat, FileSpace};
use crate::batch::Batch;
use crate::object::{self, Members};

const ZSTD_LEVEL: i32 = 3;
/// Bytes that are read at once in search of the last line.
const TAIL_BYTES: u64 = 64 << 10;

/// The rule by which a sink writes its file.
#[derive(Clone)]
pub(super) struct WritePlan {
    pub(super) location: Location,
    /// The room that is asked for before each write; `None` in tests of the writer.
    pub(super) space: Option<Arc<FileSpace>>,
    pub(super) format: FileFormat,
    pub(super) compression: Compression,
    /// The columns of a CSV file; empty for other formats.
    pub(super) columns: Vec<String>,
}

/// An open file, locked against other writers.
pub(super) struct RecordWriter {
    plan: WritePlan,
    file: File,
    has_header: bool,
    lines: Vec<u8>,
}

impl RecordWriter {
    /// Opens or creates the file, and empties it if `truncates`; `None` as long as another sink has it.
    pub(super) fn open(plan: WritePlan, truncates: bool) -> Result<Option<Self>, String> {
        let failed = |verb: &str, error: &io::Error| plan.location.failed(verb, error);
        let path = plan.location.to_write()?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(|error| failed("be opened", &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed("be locked", &error)),
        }
        let prepared = prepare(&mut file, &path, plan.compression, truncates);
        let size_bytes = prepared.map_err(|error| failed("be prepared", &error))?;
        if size_bytes > 0 && plan.format == FileFormat::Csv {
            check_header(&plan, &path)?;
        }
        Ok(Some(Self { plan, file, has_header: size_bytes > 0, lines: Vec::new() }))
    }

    /// Appends the records of the batches, and returns once they are synced.
    pub(super) fn append(&mut self, batches: &[Batch]) -> Result<(), String> {
        self.lines.clear();
        if self.plan.format == FileFormat::Csv && !self.has_header {
            self.lines.extend_from_slice(&header(&self.plan.columns));
            self.has_header = true;
        }
        for batch in batches {
            for row in 0..batch.len() {
                let record = batch.payload(row).unwrap_or_default();
                match self.plan.format {
                    FileFormat::JsonLines => write_line(record, &mut self.lines),
                    FileFormat::Csv => write_csv(record, &self.plan.columns, &mut self.lines),
                }
            }
        }
        let failed = |error: io::Error| self.plan.location.failed("be written", &error);
        let bytes = self.encoded().map_err(failed)?;
        if let Some(space) = &self.plan.space {
            space.take(self.plan.location.folder(), bytes.len() as u64)?;
        }
        let written = (&self.file).write_all(&bytes).and_then(|()| self.file.sync_data());
        written.map_err(failed)
    }

    /// The lines as the file has them.
    fn encoded(&self) -> io::Result<Cow<'_, [u8]>> {
        Ok(match self.plan.compression {
            Compression::None => Cow::Borrowed(&self.lines),
            Compression::Gzip => {
                let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                member.write_all(&self.lines)?;
                member.finish()?.into()
            }
            Compression::Zstd => zstd::stream::encode_all(&self.lines[..], ZSTD_LEVEL)?.into(),
        })
    }
}

/// Cuts the file behind its last whole record and goes there; the size in bytes.
fn prepare(file: &mut File, path: &Path, compression: Compression, truncates: bool) -> io::Result<u64> {
    let whole_bytes = match compression {
        _ if truncates => 0,
        Compression::None => end_of_lines(file)?,
        Compression::Gzip => {
            end_of_parts(file, |reader| io::copy(&mut flate2::bufread::GzDecoder::new(reader), &mut io::sink()))?
        }
        Compression::Zstd => end_of_parts(file, |reader| {
            io::copy(&mut zstd::stream::read::Decoder::with_buffer(reader)?.single_frame(), &mut io::sink())
        })?,
    };
    if file.metadata()?.len() != whole_bytes {
        file.set_len(whole_bytes)?;
    }
    file.sync_all()?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    file.seek(SeekFrom::Start(whole_bytes))?;
    Ok(whole_bytes)
}

/// The end of the last line that ends.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = end.saturating_sub(TAIL_BYTES);
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        Read::by_ref(file).take(end - start).read_to_end(&mut tail)?;
        if let Some(at) = tail.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// The end of the last part that `decode` can read.
fn end_of_parts(file: &mut File, decode: impl Fn(&mut CountingReader) -> io::Result<u64>) -> io::Result<u64> {
    let size_bytes = file.metadata()?.len();
    let mut reader = CountingReader { reader: BufReader::new(file.try_clone()?), used_bytes: 0 };
    reader.reader.seek(SeekFrom::Start(0))?;
    let mut whole_bytes = 0;
    while whole_bytes < size_bytes && decode(&mut reader).is_ok() && reader.used_bytes > whole_bytes {
        whole_bytes = reader.used_bytes;
    }
    Ok(whole_bytes)
}

/// A reader that counts the bytes that were used.
struct CountingReader {
    reader: BufReader<File>,
    used_bytes: u64,
}

impl Read for CountingReader {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read_bytes = self.reader.read(room)?;
        self.used_bytes += read_bytes as u64;
        Ok(read_bytes)
    }
}

impl BufRead for CountingReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, used_bytes: usize) {
        self.reader.consume(used_bytes);
        self.used_bytes += used_bytes as u64;
    }
}

fn header(columns: &[String]) -> Vec<u8> {
    let mut line = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            line.push(b',');
        }
        write_field(column, &mut line);
    }
    line.push(b'\n');
    line
}

fn check_header(plan: &WritePlan, path: &Path) -> Result<(), String> {
    let failed = |error: &io::Error| plan.location.failed("be read", error);
    let reader = File::open(path).and_then(|file| decompressed(file, plan.compression));
    let (mut lines, mut found) = (LineReader::new(reader.map_err(|error| failed(&error))?), Vec::new());
    let line = lines.next(&mut found).map_err(|error| failed(&error))?;
    let wanted = header(&plan.columns);
    if line == Line::Whole && wanted.trim_ascii_end() == found {
        return Ok(());
    }
    Err(format!(
        "file '{}' has the header '{}', and the sink '{}'; write to another file, or name the same columns",
        plan.location.name(),
        String::from_utf8_lossy(&found),
        String::from_utf8_lossy(&wanted).trim_end()
    ))
}

/// Appends a JSON object as one line. Its line ends stand between values, since texts have them escaped.
fn write_line(record: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(record);
    out[start..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    out.push(b'\n');
}

/// Appends the fields of a JSON object that have a column; a missing one and null are empty.
fn write_csv(record: &[u8], columns: &[String], out: &mut Vec<u8>) {
    let mut fields: Vec<Option<&[u8]>> = vec![None; columns.len()];
    for (name, value) in Members::of(record) {
        let name = serde_json::from_slice::<String>(name).unwrap_or_default();
        if let Some(at) = columns.iter().position(|column| *column == name) {
            fields[at] = Some(value).filter(|value| *value != b"null");
        }
    }
    for (index, field) in fields.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match field {
            None => {}
            Some(text @ [b'"', ..]) => write_field(&serde_json::from_slice::<String>(text).unwrap_or_default(), out),
            Some(other) => write_field(&String::from_utf8_lossy(other), out),
        }
    }
    out.push(b'\n');
}

fn write_field(field: &str, out: &mut Vec<u8>) {
    if field.contains([',', '"', '\n', '\r']) {
        out.push(b'"');
        out.extend_from_slice(field.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(field.as_bytes());
    }
}

/// `true` if the record can be written.
pub(super) fn is_writable(record: Option<&[u8]>) -> bool {
    record.is_some_and(object::is_object)
}

#[cfg(test)]
mod tests {
    use millstream_types::TenantId;

    use super::*;
    use crate::batch::SourceBatch;

    fn batch(records: &[&str]) -> Batch {
        let mut batch = SourceBatch::default();
        for record in records {
            batch.push(0, None, 0, |out| out.extend_from_slice(record.as_bytes()));
        }
        batch.finish()
    }

    fn plan(dir: &Path, path: &str, format: FileFormat, compression: Compression) -> WritePlan {
        let location = Location::new(dir, &TenantId::default(), path).unwrap();
        WritePlan { location, space: None, format, compression, columns: vec!["a".to_owned(), "b,c".to_owned()] }
    }

    fn content(dir: &Path, path: &str, compression: Compression) -> String {
        let mut text = String::new();
        let file = File::open(dir.join("default").join(path)).unwrap();
        decompressed(file, compression).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_torn_end_is_cut_off_before_more_is_appended() {
        let dir = tempfile::tempdir().unwrap();
        for (path, compression) in
            [("x.jsonl", Compression::None), ("x.gz", Compression::Gzip), ("x.zst", Compression::Zstd)]
        {
            let open = || {
                RecordWriter::open(plan(dir.path(), path, FileFormat::JsonLines, compression), false).unwrap().unwrap()
            };
            let mut writer = open();
            writer.append(&[batch(&["{\"n\":1}", "{\n\"n\":2}"]), batch(&["{\"n\":3}"])]).unwrap();
            writer.append(&[batch(&["{\"n\":4}"])]).unwrap();
            drop(writer);
            let whole = std::fs::read(dir.path().join("default").join(path)).unwrap();
            let mut writer = open();
            writer.append(&[batch(&["{\"n\":\"torn\"}"])]).unwrap();
            drop(writer);
            let longer = std::fs::metadata(dir.path().join("default").join(path)).unwrap().len();
            for torn in [whole.len() as u64 + 1, longer - 1, longer - 5] {
                let file = OpenOptions::new().write(true).open(dir.path().join("default").join(path)).unwrap();
                file.set_len(torn).unwrap();
                drop(file);
                let mut writer = open();
                writer.append(&[batch(&["{\"n\":5}"])]).unwrap();
                let expected = "{\"n\":1}\n{ \"n\":2}\n{\"n\":3}\n{\"n\":4}\n{\"n\":5}\n";
                assert_eq!(content(dir.path(), path, compression), expected, "{path} cut at {torn}");
                drop(writer);
                std::fs::write(dir.path().join("default").join(path), &whole).unwrap();
                let mut writer = open();
                writer.append(&[batch(&["{\"n\":\"torn\"}"])]).unwrap();
            }
        }
    }

    #[test]
    fn csv_has_one_header_and_a_field_for_each_column() {
        let dir = tempfile::tempdir().unwrap();
        let open = |columns: &[&str]| {
            let plan = plan(dir.path(), "x.csv", FileFormat::Csv, Compression::None);
            let columns = columns.iter().map(|column| (*column).to_owned()).collect();
            RecordWriter::open(WritePlan { columns, ..plan }, false)
        };
        let mut writer = open(&["a", "b,c"]).unwrap().unwrap();
        writer.append(&[batch(&[r#"{"b,c": "say \"x\"", "a": 1.50, "z": 0}"#])]).unwrap();
        drop(writer);
        let mut writer = open(&["a", "b,c"]).unwrap().unwrap();
        writer.append(&[batch(&[r#"{"a": null}"#, r#"{"a": [1, 2]}"#])]).unwrap();
        let expected = "a,\"b,c\"\n1.50,\"say \"\"x\"\"\"\n,\n\"[1, 2]\",\n";
        assert_eq!(content(dir.path(), "x.csv", Compression::None), expected);
        assert!(open(&["a", "b,c"]).unwrap().is_none(), "a file has one writer");
        drop(writer);
        let error = open(&["a"]).err().unwrap();
        assert!(error.contains("header"), "{error}");
    }
}
