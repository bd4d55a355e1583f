//! Numbers of variable length: zig-zag encoding, seven bits per byte, least significant first.

use super::RecordFault;

/// Longest encoding of an `i32`.
pub(super) const I32_MAX_BYTES: usize = 5;
/// Longest encoding of an `i64`.
pub(super) const I64_MAX_BYTES: usize = 10;

/// Maps small numbers of either sign to small numbers: 0, −1, 1, −2 … become 0, 1, 2, 3 …
#[inline]
pub(super) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

#[inline]
const fn unzigzag(raw: u64) -> i64 {
    (raw >> 1).cast_signed() ^ -((raw & 1).cast_signed())
}

/// Size of the encoded `value`.
#[inline]
pub(super) const fn len(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    // The same as ⌈bits / 7⌉ for up to 64 bits, without the division.
    (bits * 9 + 64) / 64
}

/// Encodes a record at the front of a slice that is known to be long enough.
pub(super) struct RecordWriter<'a> {
    pub(super) rest: &'a mut [u8],
}

impl RecordWriter<'_> {
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let (here, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        self.rest = rest;
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.bytes(&[byte]);
    }

    #[inline]
    pub(super) fn number(&mut self, value: i64) {
        let mut raw = zigzag(value);
        while raw >= 0x80 {
            self.byte(raw as u8 | 0x80);
            raw >>= 7;
        }
        self.byte(raw as u8);
    }

    /// Writes a length and the bytes; null is length −1.
    #[inline]
    pub(super) fn nullable(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => {
                self.number(bytes.len() as i64);
                self.bytes(bytes);
            }
            None => self.number(-1),
        }
    }
}

/// Decodes a record from the front of a slice.
pub(super) struct RecordReader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> RecordReader<'a> {
    #[inline]
    pub(super) fn byte(&mut self, field: &'static str) -> Result<u8, RecordFault> {
        let (&byte, rest) = self.rest.split_first().ok_or(RecordFault::CutShort { field })?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline]
    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, RecordFault> {
        // Nearly all lengths take one or two bytes.
        match *self.rest {
            [a, ref rest @ ..] if a < 0x80 => {
                self.rest = rest;
                Ok(unzigzag(u64::from(a)) as i32)
            }
            [a, b, ref rest @ ..] if b < 0x80 => {
                self.rest = rest;
                Ok(unzigzag(u64::from(a & 0x7f) | u64::from(b) << 7) as i32)
            }
            _ => Ok(self.long(field, u32::BITS)? as i32),
        }
    }

    #[inline]
    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, RecordFault> {
        match *self.rest {
            [a, ref rest @ ..] if a < 0x80 => {
                self.rest = rest;
                Ok(unzigzag(u64::from(a)))
            }
            _ => self.long(field, u64::BITS),
        }
    }

    /// Reads a number of up to `max_bits`.
    fn long(&mut self, field: &'static str, max_bits: u32) -> Result<i64, RecordFault> {
        let mut raw = 0_u64;
        let mut shift = 0;
        while shift < max_bits {
            let byte = self.byte(field)?;
            let bits = u64::from(byte & 0x7f);
            if max_bits - shift < 7 && bits >> (max_bits - shift) != 0 {
                break;
            }
            raw |= bits << shift;
            if byte < 0x80 {
                return Ok(unzigzag(raw));
            }
            shift += 7;
        }
        Err(RecordFault::VarintTooLong { field, max_bits })
    }

    /// Takes the next `length` bytes of the record.
    #[inline]
    pub(super) fn bytes(&mut self, length: i32, field: &'static str) -> Result<&'a [u8], RecordFault> {
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (bytes, rest) = split.ok_or(RecordFault::Length { field, value: length, left_bytes: self.rest.len() })?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a length and the bytes; length −1 is null.
    #[inline]
    pub(super) fn nullable(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, RecordFault> {
        let length = self.i32(field)?;
        if length == -1 {
            return Ok(None);
        }
        self.bytes(length, field).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: i64) -> Vec<u8> {
        let mut bytes = vec![0; len(value)];
        let mut writer = RecordWriter { rest: &mut bytes };
        writer.number(value);
        assert!(writer.rest.is_empty(), "{value}");
        bytes
    }

    #[test]
    fn numbers_read_back_and_take_the_bytes_that_were_foretold() {
        let edges = (0..63).flat_map(|bit| [1_i64 << bit, (1 << bit) - 1, -(1 << bit), -(1 << bit) - 1]);
        for value in edges.chain([i64::MIN, i64::MAX, i64::from(i32::MIN), i64::from(i32::MAX)]) {
            let bytes = encoded(value);
            let mut reader = RecordReader { rest: &bytes };
            assert_eq!(reader.i64("x"), Ok(value));
            assert!(reader.rest.is_empty());
            if let Ok(small) = i32::try_from(value) {
                assert_eq!(RecordReader { rest: &bytes }.i32("x"), Ok(small));
            }
        }
        assert_eq!((encoded(0), encoded(-1), encoded(1), encoded(150)), (vec![0], vec![1], vec![2], vec![0xac, 2]));
    }

    #[test]
    fn a_number_that_is_too_long_or_cut_short_is_an_error() {
        let i32_of = |bytes: &[u8]| RecordReader { rest: bytes }.i32("x");
        let i64_of = |bytes: &[u8]| RecordReader { rest: bytes }.i64("x");
        let too_long = |max_bits| RecordFault::VarintTooLong { field: "x", max_bits };
        assert_eq!(i32_of(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(i32::MIN));
        assert_eq!(i32_of(&[0xff, 0xff, 0xff, 0xff, 0x1f]), Err(too_long(32)));
        assert_eq!(i32_of(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), Err(too_long(32)));
        assert_eq!(i32_of(&[0x80, 0x80, 0]), Ok(0), "padding is legal up to the type's length");
        assert_eq!(i64_of(&[[0xff; 9].as_slice(), &[1]].concat()), Ok(i64::MIN));
        assert_eq!(i64_of(&[[0xff; 9].as_slice(), &[2]].concat()), Err(too_long(64)));
        for bytes in [&[][..], &[0x80], &[0xff, 0xff]] {
            assert_eq!(i32_of(bytes), Err(RecordFault::CutShort { field: "x" }));
            assert_eq!(i64_of(bytes), Err(RecordFault::CutShort { field: "x" }));
        }
    }
}
