//! LineReader of a file, each of bounded length.

use std::io::{self, BufRead};

use super::LINE_MAX_BYTES;

/// The result of reading a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its end.
    Whole,
    /// The beginning of a line with more than [`LINE_MAX_BYTES`]; the rest is passed over.
    TooLong,
    End,
}

pub(super) struct LineReader {
    reader: Box<dyn BufRead + Send>,
    /// The number of the last line, from 1.
    pub(super) number: u64,
}

impl LineReader {
    pub(super) fn new(reader: Box<dyn BufRead + Send>) -> Self {
        Self { reader, number: 0 }
    }

    /// Appends the next line to `line`.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Line> {
        let start = line.len();
        let (mut is_too_long, mut has_bytes) = (false, false);
        loop {
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() && !has_bytes {
                return Ok(Line::End);
            }
            has_bytes = true;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = LINE_MAX_BYTES - (line.len() - start);
            line.extend_from_slice(&part[..part.len().min(room)]);
            is_too_long |= part.len() > room;
            let (is_over, used) = (end.is_some() || bytes.is_empty(), part.len() + usize::from(end.is_some()));
            self.reader.consume(used);
            if is_over {
                break;
            }
        }
        self.number += 1;
        if self.number == 1 && line[start..].starts_with(b"\xef\xbb\xbf") {
            line.drain(start..start + 3);
        }
        if line.len() > start && line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(if is_too_long { Line::TooLong } else { Line::Whole })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor};

    use super::*;

    fn lines(text: Vec<u8>) -> Vec<(Line, Vec<u8>)> {
        let mut lines = LineReader::new(Box::new(BufReader::with_capacity(7, Cursor::new(text))));
        let mut found = Vec::new();
        loop {
            let mut line = Vec::new();
            match lines.next(&mut line).unwrap() {
                Line::End => return found,
                kind => found.push((kind, line)),
            }
        }
    }

    #[test]
    fn lines_end_by_either_end_or_by_the_files() {
        let whole = |text: &str| (Line::Whole, text.as_bytes().to_vec());
        assert_eq!(
            lines(b"\xef\xbb\xbfone\r\n\ntwo words\nlast".to_vec()),
            ["one", "", "two words", "last"].map(whole)
        );
        assert_eq!(lines(Vec::new()), []);
        assert_eq!(lines(b"x\n".to_vec()), [whole("x")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_the_next_one_is_whole() {
        let mut text = vec![b'a'; LINE_MAX_BYTES];
        text.extend_from_slice(b"\n");
        text.extend(std::iter::repeat_n(b'b', LINE_MAX_BYTES + 1));
        text.extend_from_slice(b"\nc");
        let found: Vec<(Line, usize)> = lines(text).into_iter().map(|(kind, line)| (kind, line.len())).collect();
        assert_eq!(found, [(Line::Whole, LINE_MAX_BYTES), (Line::TooLong, LINE_MAX_BYTES), (Line::Whole, 1)]);
    }
}
