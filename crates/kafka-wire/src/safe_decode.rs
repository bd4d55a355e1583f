//! Checks a request, or an answer, before it is decoded.
//!
//! The decoder reserves memory for as many elements as a message announces, before it has seen one. A message of a few bytes
//! could demand more memory than exists and end the process. So the same decoder first runs over a view of the message in
//! which no number exceeds the bytes that are left. A message that passes brings every element that it announces.

use std::ops::Range;

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::Decodable;
use kafka_protocol::protocol::buf::ByteBuf;

/// Length from which a variable-length number is checked: two bytes announce 16,383 elements at most.
const LONG_VARINT_BYTES: u32 = 3;
/// Length at which the decoder takes such a number as complete, whatever its last byte says.
const VARINT_MAX_BYTES: u32 = 5;

/// Decodes `body` without trusting the lengths in it. Bytes behind the message are ignored, as Kafka's brokers do:
/// librdkafka leaves bytes there in some metadata requests.
///
/// # Errors
/// The body is no message of this kind and version.
pub fn decode<R: Decodable>(body: Bytes, version: i16) -> Result<R, String> {
    let mut probe = BoundedView { rest: body.clone(), varint: 0, varint_bytes: 0 };
    drop(R::decode(&mut probe, version).map_err(|e| e.to_string())?);
    let mut body = body;
    R::decode(&mut body, version).map_err(|e| e.to_string())
}

/// A view of a message in which no number exceeds the bytes that are left.
struct BoundedView {
    rest: Bytes,
    /// The current variable-length number, and the number of its bytes that were read.
    varint: u64,
    varint_bytes: u32,
}

impl Buf for BoundedView {
    fn remaining(&self) -> usize {
        self.rest.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.rest.chunk()
    }

    fn advance(&mut self, count: usize) {
        (self.varint, self.varint_bytes) = (0, 0);
        self.rest.advance(count);
    }

    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        (self.varint, self.varint_bytes) = (0, 0);
        let number = self.rest.try_get_i32()?;
        // One more than there can be, so that the decoder finds such an array or string too short.
        Ok(number.min(i32::try_from(self.rest.remaining() + 1).unwrap_or(i32::MAX)))
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        let byte = self.rest.try_get_u8()?;
        self.varint |= u64::from(byte & 0x7f) << (7 * self.varint_bytes);
        self.varint_bytes += 1;
        if byte & 0x80 == 0 || self.varint_bytes == VARINT_MAX_BYTES {
            let (number, length) = (self.varint, self.varint_bytes);
            (self.varint, self.varint_bytes) = (0, 0);
            let available = self.rest.remaining();
            // A length is encoded as length plus one.
            if length >= LONG_VARINT_BYTES && number > available as u64 + 1 {
                return Err(TryGetError { requested: number as usize, available });
            }
        }
        Ok(byte)
    }
}

impl ByteBuf for BoundedView {
    fn peek_bytes(&mut self, range: Range<usize>) -> Bytes {
        self.rest.slice(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        (self.varint, self.varint_bytes) = (0, 0);
        self.rest.split_to(size)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::messages::{FetchRequest, MetadataRequest};
    use kafka_protocol::protocol::Encodable;

    use super::*;

    #[test]
    fn a_count_beyond_the_bytes_of_its_request_is_refused_and_large_plain_numbers_pass() {
        let counts: [(i16, &[u8]); 5] = [
            (8, &[0x7f, 0xff, 0xff, 0xff]),
            (8, &[0, 0, 0, 9, 0, 1, b'a']),
            (12, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            (12, &[0x80, 0x80, 0x80, 0x01, 0]),
            (12, &[0xff, 0xff, 0xff, 0xff, 0xff]),
        ];
        for (version, bytes) in counts {
            assert!(decode::<MetadataRequest>(Bytes::from_static(bytes), version).is_err(), "{bytes:?}");
        }
        for version in [4, 11, 12] {
            let request = FetchRequest::default().with_max_wait_ms(i32::MAX).with_max_bytes(i32::MAX);
            let mut bytes = BytesMut::new();
            request.encode(&mut bytes, version).unwrap();
            assert_eq!(decode::<FetchRequest>(bytes.freeze(), version).unwrap().max_bytes, i32::MAX);
        }
    }
}
