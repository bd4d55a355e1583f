//! Looks through a request before it is decoded.
//!
//! The decoder sets memory aside for as many elements as a request announces, before it has seen one. A request of a few
//! bytes could so ask for more memory than there is, which would end the process. The probe lets the same decoder run
//! over a view of the request in which no number is larger than what is left of it: whatever passes announces nothing
//! that it does not bring.

use std::ops::Range;

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::Decodable;
use kafka_protocol::protocol::buf::ByteBuf;

/// Bytes of a variable-length number from which on it is looked at: two bytes announce 16,383 elements at most.
const LONG_VARINT_BYTES: u32 = 3;
/// Bytes after which the decoder takes such a number as complete, whatever its last one says.
const VARINT_MAX_BYTES: u32 = 5;

/// Decodes `body`, safely whatever it announces. What stands behind it is passed over, as Kafka's brokers do: librdkafka
/// leaves bytes there in some requests for metadata.
pub(crate) fn decode<R: Decodable>(body: Bytes, version: i16) -> Result<R, String> {
    let mut probe = Probe { rest: body.clone(), varint: 0, varint_bytes: 0 };
    drop(R::decode(&mut probe, version).map_err(|e| e.to_string())?);
    let mut body = body;
    R::decode(&mut body, version).map_err(|e| e.to_string())
}

/// A request in which no number is larger than what is left of it.
struct Probe {
    rest: Bytes,
    /// The variable-length number that may be under way, and how many bytes of it were read.
    varint: u64,
    varint_bytes: u32,
}

impl Buf for Probe {
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
        // One more than there can be: an array or a string of that length is found to be cut short.
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
            // A length is written as one more than it is.
            if length >= LONG_VARINT_BYTES && number > available as u64 + 1 {
                return Err(TryGetError { requested: number as usize, available });
            }
        }
        Ok(byte)
    }
}

impl ByteBuf for Probe {
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
    fn what_announces_more_than_it_brings_is_refused_and_large_plain_numbers_pass() {
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
