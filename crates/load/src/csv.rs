//! Reads comma-separated files like those of our examples: a head line, no quotes, plain or gzip.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

use crate::Error;

/// Largest decompressed file that is read.
const FILE_MAX_BYTES: u64 = 64 << 20;

/// Reads a whole file and hands each row's chosen columns to `row`, with the row's line number.
///
/// # Errors
/// [`Error::Read`], or [`Error::Data`] for a missing column, a quoted field, a row of another length or an error of `row`.
pub(crate) fn read<const N: usize>(
    path: &Path,
    columns: [&str; N],
    mut row: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<(), Error> {
    let text = read_text(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let wrong = |line: usize, what: String| Error::Data { path: path.to_owned(), line, what };
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        let found = head.iter().position(|name| *name == column);
        *place = found.ok_or_else(|| wrong(1, format!("there is no column {column:?} among {head:?}")))?;
    }
    let mut fields = Vec::with_capacity(head.len());
    for (line, text) in lines.enumerate().map(|(index, text)| (index + 2, text)) {
        if text.contains('"') {
            return Err(wrong(line, "quoted fields are not understood".to_owned()));
        }
        fields.clear();
        fields.extend(text.split(','));
        if fields.len() != head.len() {
            return Err(wrong(line, format!("{} fields; the head line has {}", fields.len(), head.len())));
        }
        row(places.map(|place| fields[place])).map_err(|what| wrong(line, what))?;
    }
    Ok(())
}

fn read_text(path: &Path) -> std::io::Result<String> {
    let file = File::open(path)?;
    let zipped = path.extension().is_some_and(|extension| extension == "gz");
    let source: Box<dyn Read> = if zipped { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let mut text = String::new();
    if source.take(FILE_MAX_BYTES).read_to_string(&mut text)? as u64 == FILE_MAX_BYTES {
        return Err(std::io::Error::other(format!("the text reaches the limit of {FILE_MAX_BYTES} bytes")));
    }
    Ok(text)
}
