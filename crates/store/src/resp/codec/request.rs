//! Requests from a byte stream: arrays of bulk strings, and lines.
//!
//! The parser keeps how far it has come in a request that is not whole yet, so no byte is looked at twice. Arguments of
//! an array are slices of the receive buffer: copy a small one to keep it for long.

use std::ops::Range;

use bytes::{Buf as _, Bytes, BytesMut};

use super::foreign::ForeignProtocol;
use super::inline;
use crate::resp::number::integer;

/// Longest line: a request typed as a line, or the head of an array or bulk string.
const LINE_MAX_BYTES: usize = 64 << 10;
/// Most arguments of a request.
const ARGUMENTS_MAX: i64 = 1 << 20;
/// Most arguments of a request before the client has logged in.
const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
/// Longest argument before the client has logged in.
const UNAUTHENTICATED_BULK_MAX_BYTES: i64 = 16 << 10;
/// Arguments that an announced count reserves memory for; more only once they have come.
const RESERVED_ARGUMENTS_MAX: usize = 1_024;
/// Bytes that an announced length reserves memory for; more only once they have come.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// A request that breaks the protocol. The connection cannot go on: nobody knows where the next request begins.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message says it")]
pub enum ProtocolError {
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    #[error("Protocol error: too big mbulk count string")]
    CountTooLong,
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedCount,
    #[error("Protocol error: too big bulk count string")]
    LengthTooLong,
    #[error("Protocol error: expected '$', got '{0}'")]
    ExpectedBulk(char),
    #[error("Protocol error: invalid bulk length")]
    InvalidLength,
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedLength,
    #[error("the client speaks {0}")]
    Foreign(ForeignProtocol),
}

/// The limits of a client's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Longest argument in bytes (`proto-max-bulk-len`).
    pub bulk_max_bytes: u64,
    /// `true` if the client has logged in, or need not. Others may send 10 arguments of 16 KiB.
    pub authenticated: bool,
}

/// Reads requests from a receive buffer.
#[derive(Debug, Default)]
pub struct RequestParser {
    /// Arguments that are still to come; 0 between requests.
    missing: usize,
    /// Length of the argument that has begun.
    bulk_length: Option<usize>,
    /// Bytes of the request that have been understood.
    position: usize,
    /// Bytes behind `position` in which no line end was found.
    searched: usize,
    /// The arguments so far, as places in the buffer.
    arguments: Vec<Range<usize>>,
}

impl RequestParser {
    /// Takes the next request out of `buffer`, appends its arguments to `arguments` and returns its length in bytes;
    /// `None` until it is whole. A request has at least one argument: empty lines and arrays are skipped.
    ///
    /// # Errors
    /// [`ProtocolError`], after which the stream cannot be read on.
    pub fn next(
        &mut self,
        buffer: &mut BytesMut,
        limits: RequestLimits,
        arguments: &mut Vec<Bytes>,
    ) -> Result<Option<usize>, ProtocolError> {
        loop {
            if self.missing == 0 {
                match buffer.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        if !self.begin_array(buffer, limits)? {
                            return Ok(None);
                        }
                        if self.missing == 0 {
                            continue;
                        }
                    }
                    Some(first) => match self.line(*first, buffer, arguments)? {
                        Some(0) => continue,
                        found => return Ok(found),
                    },
                }
            }
            return self.arguments(buffer, limits, arguments);
        }
    }

    /// Reads the head of an array. Returns `false` if it is not whole.
    fn begin_array(&mut self, buffer: &mut BytesMut, limits: RequestLimits) -> Result<bool, ProtocolError> {
        let Some(head) = self.head(buffer, ProtocolError::CountTooLong)? else { return Ok(false) };
        let count = integer(&buffer[1..head]).filter(|count| *count <= ARGUMENTS_MAX);
        let count = count.ok_or(ProtocolError::InvalidCount)?;
        if count > UNAUTHENTICATED_ARGUMENTS_MAX && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        self.missing = usize::try_from(count).unwrap_or(0);
        if self.missing == 0 {
            buffer.advance(head + 2);
            self.position = 0;
        } else {
            self.position = head + 2;
            self.arguments.reserve(self.missing.min(RESERVED_ARGUMENTS_MAX));
        }
        Ok(true)
    }

    fn arguments(
        &mut self,
        buffer: &mut BytesMut,
        limits: RequestLimits,
        arguments: &mut Vec<Bytes>,
    ) -> Result<Option<usize>, ProtocolError> {
        while self.missing > 0 {
            let length = match self.bulk_length {
                Some(length) => length,
                None => match self.begin_bulk(buffer, limits)? {
                    Some(length) => length,
                    None => return Ok(None),
                },
            };
            let end = self.position + length;
            if buffer.len() < end + 2 {
                self.bulk_length = Some(length);
                buffer.reserve((end + 2 - buffer.len()).min(RESERVED_BYTES_MAX));
                return Ok(None);
            }
            // As in Redis, the two bytes behind an argument are skipped, whatever they are.
            self.arguments.push(self.position..end);
            self.position = end + 2;
            self.bulk_length = None;
            self.missing -= 1;
        }
        let length = std::mem::take(&mut self.position);
        let mut request = buffer.split_to(length).freeze();
        let last = self.arguments.pop();
        arguments.extend(self.arguments.drain(..).map(|place| request.slice(place)));
        if let Some(last) = last {
            // The last argument takes over the request, which costs no count of references.
            request.truncate(last.end);
            request.advance(last.start);
            arguments.push(request);
        }
        // A rare request with very many arguments shall not hold memory for the life of the connection.
        self.arguments.shrink_to(RESERVED_ARGUMENTS_MAX);
        Ok(Some(length))
    }

    /// Reads the head of an argument and returns its length; `None` if the head is not whole.
    fn begin_bulk(&mut self, buffer: &BytesMut, limits: RequestLimits) -> Result<Option<usize>, ProtocolError> {
        let start = self.position;
        let Some(head) = self.head(buffer, ProtocolError::LengthTooLong)? else { return Ok(None) };
        if buffer[start] != b'$' {
            return Err(ProtocolError::ExpectedBulk(char::from(buffer[start])));
        }
        let most = i64::try_from(limits.bulk_max_bytes).unwrap_or(i64::MAX);
        let length = integer(&buffer[start + 1..head]).filter(|length| (0..=most).contains(length));
        let length = length.ok_or(ProtocolError::InvalidLength)?;
        if length > UNAUTHENTICATED_BULK_MAX_BYTES && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedLength);
        }
        self.position = head + 2;
        Ok(usize::try_from(length).ok())
    }

    /// The place of the line end behind `position`, once the line feed is there too.
    fn head(&mut self, buffer: &BytesMut, too_long: ProtocolError) -> Result<Option<usize>, ProtocolError> {
        let unread = &buffer[self.position..];
        match memchr::memchr(b'\r', &unread[self.searched..]) {
            Some(found) => {
                let end = self.searched + found;
                if end + 1 >= unread.len() {
                    self.searched = end;
                    return Ok(None);
                }
                self.searched = 0;
                // An empty head has no first byte to look at.
                if end == 0 {
                    return Err(ProtocolError::ExpectedBulk('\r'));
                }
                Ok(Some(self.position + end))
            }
            None if unread.len() > LINE_MAX_BYTES => Err(too_long),
            None => {
                self.searched = unread.len();
                Ok(None)
            }
        }
    }

    /// Reads a request that is a line. `Some(0)` if the line was empty.
    fn line(
        &mut self,
        first: u8,
        buffer: &mut BytesMut,
        arguments: &mut Vec<Bytes>,
    ) -> Result<Option<usize>, ProtocolError> {
        if let Some(foreign) = ForeignProtocol::of_first_byte(first) {
            return Err(ProtocolError::Foreign(foreign));
        }
        let Some(found) = memchr::memchr(b'\n', &buffer[self.searched..]) else {
            if buffer.len() > LINE_MAX_BYTES {
                return Err(ProtocolError::InlineTooLong);
            }
            self.searched = buffer.len();
            return Ok(None);
        };
        let end = self.searched + found;
        self.searched = 0;
        // It also bounds a line that came with its end in one piece.
        if end > LINE_MAX_BYTES {
            return Err(ProtocolError::InlineTooLong);
        }
        let line = buffer.split_to(end + 1);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(foreign) = ForeignProtocol::of_line(line) {
            return Err(ProtocolError::Foreign(foreign));
        }
        let before = arguments.len();
        inline::split(line, arguments).map_err(|_| ProtocolError::UnbalancedQuotes)?;
        Ok(Some(if arguments.len() == before { 0 } else { end + 1 }))
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
