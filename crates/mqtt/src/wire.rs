//! The smallest parts of packets: numbers, texts, frames. Reading borrows from the bytes at hand and copies nothing.

use crate::error::Error;

/// Largest number that four bytes of seven bits hold.
pub(crate) const VARINT_MAX: u32 = 268_435_455;

/// Largest packet that its length can say: 256 MiB with its head.
pub const PACKET_MAX_BYTES: usize = VARINT_MAX as usize + 5;
/// Longest text or binary field; its length has 16 bits.
pub(crate) const TEXT_MAX_BYTES: usize = u16::MAX as usize;

/// Bytes that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Error::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Error::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    /// A packet identifier, which is never 0.
    #[inline]
    pub(crate) fn id(&mut self) -> Result<u16, Error> {
        match self.u16()? {
            0 => Err(Error::Protocol("packet identifier 0")),
            id => Ok(id),
        }
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u32, Error> {
        match varint(self.0)? {
            Some((value, size)) => {
                self.0 = &self.0[size..];
                Ok(value)
            }
            None => Err(Error::Malformed("it ends too early")),
        }
    }

    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], Error> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }

    #[inline]
    pub(crate) fn text(&mut self) -> Result<&'a str, Error> {
        let text = std::str::from_utf8(self.binary()?).map_err(|_| Error::Malformed("a text that is not UTF-8"))?;
        if text.as_bytes().contains(&0) {
            return Err(Error::Malformed("a text with a null character"));
        }
        Ok(text)
    }
}

/// A number of one to four bytes and its size; `None` if it ends too early.
#[inline]
fn varint(bytes: &[u8]) -> Result<Option<(u32, usize)>, Error> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            if at > 0 && *byte == 0 {
                return Err(Error::Malformed("a length in more bytes than it needs"));
            }
            return Ok(Some((value, at + 1)));
        }
    }
    if bytes.len() >= 4 { Err(Error::Malformed("a length of more than four bytes")) } else { Ok(None) }
}

/// A whole packet, still to be parsed.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The packet's kind in the upper four bits, its flags in the lower four.
    pub first_byte: u8,
    /// The bytes behind the head.
    pub body: &'a [u8],
    /// Size of the packet with its head.
    pub size: usize,
}

impl Frame<'_> {
    /// The kind of the packet and its flags, which only PUBLISH chooses freely.
    #[inline]
    pub(crate) fn kind_and_flags(self) -> Result<(u8, u8), Error> {
        let (kind, flags) = (self.first_byte >> 4, self.first_byte & 0x0F);
        let wanted_flags = match kind {
            3 => flags,
            6 | 8 | 10 => 0b0010,
            _ => 0,
        };
        if flags == wanted_flags {
            Ok((kind, flags))
        } else {
            Err(Error::Malformed("reserved flags in the first byte"))
        }
    }
}

/// The packet, whole or in part, at the beginning of some bytes.
#[derive(Debug, Clone, Copy)]
pub enum Framed<'a> {
    /// A packet that has arrived whole.
    Whole(Frame<'a>),
    /// The beginning of one, and how many bytes it has in all if that is known.
    Partial {
        /// Size of the whole packet, if its head has arrived.
        size: Option<usize>,
    },
}

/// Finds the packet at the beginning of `bytes`. One over the limit is refused by its head.
///
/// # Errors
/// The length is malformed or over `limit_bytes`.
#[inline]
pub fn frame(bytes: &[u8], limit_bytes: usize) -> Result<Framed<'_>, Error> {
    let Some((&first_byte, rest)) = bytes.split_first() else { return Ok(Framed::Partial { size: None }) };
    let Some((length, length_size)) = varint(rest)? else { return Ok(Framed::Partial { size: None }) };
    let head = 1 + length_size;
    let size = head + length as usize;
    if size > limit_bytes {
        return Err(Error::TooLarge { size_bytes: size, limit_bytes });
    }
    Ok(match bytes.get(head..size) {
        Some(body) => Framed::Whole(Frame { first_byte, body, size }),
        None => Framed::Partial { size: Some(size) },
    })
}

/// Writes a number in one to four bytes.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    debug_assert!(value <= VARINT_MAX, "callers bound it by the packet's limit");
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Number of bytes that [`put_varint`] writes.
#[inline]
pub(crate) fn varint_size(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Writes a text or binary data, cut at what its length field can say.
#[inline]
pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(TEXT_MAX_BYTES)];
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text);
}
