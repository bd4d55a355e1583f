//! The smallest parts of packets: numbers, texts, frames. Reading borrows from the bytes at hand and copies nothing.

use super::fault::Fault;

/// Largest number that four bytes of seven bits hold.
pub(super) const VARINT_MAX: u32 = 268_435_455;

/// Bytes that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Fault::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Fault::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }

    /// A packet identifier, which is never 0.
    pub(super) fn id(&mut self) -> Result<u16, Fault> {
        match self.u16()? {
            0 => Err(Fault::Protocol("packet identifier 0")),
            id => Ok(id),
        }
    }

    pub(super) fn varint(&mut self) -> Result<u32, Fault> {
        match varint(self.0)? {
            Some((value, size)) => {
                self.0 = &self.0[size..];
                Ok(value)
            }
            None => Err(Fault::Malformed("it ends too early")),
        }
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Fault> {
        let text = std::str::from_utf8(self.binary()?).map_err(|_| Fault::Malformed("a text that is not UTF-8"))?;
        if text.as_bytes().contains(&0) {
            return Err(Fault::Malformed("a text with a null character"));
        }
        Ok(text)
    }
}

/// A number of one to four bytes and its size; `None` if it ends too early.
fn varint(bytes: &[u8]) -> Result<Option<(u32, usize)>, Fault> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            if at > 0 && *byte == 0 {
                return Err(Fault::Malformed("a length in more bytes than it needs"));
            }
            return Ok(Some((value, at + 1)));
        }
    }
    if bytes.len() >= 4 { Err(Fault::Malformed("a length of more than four bytes")) } else { Ok(None) }
}

/// One whole packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) first_byte: u8,
    pub(super) body: &'a [u8],
    /// With its head.
    pub(super) size: usize,
}

/// What lies at the beginning of some bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Framed<'a> {
    /// A packet.
    Whole(Frame<'a>),
    /// The beginning of one, and how many bytes it has in all if that is known.
    Partial { size: Option<usize> },
}

/// Finds the packet at the beginning of `bytes`. One over the limit is refused by its head.
pub(super) fn frame(bytes: &[u8], limit_bytes: usize) -> Result<Framed<'_>, Fault> {
    let Some((&first_byte, rest)) = bytes.split_first() else { return Ok(Framed::Partial { size: None }) };
    let Some((length, length_size)) = varint(rest)? else { return Ok(Framed::Partial { size: None }) };
    let head = 1 + length_size;
    let size = head + length as usize;
    if size > limit_bytes {
        return Err(Fault::TooLarge { size_bytes: size, limit_bytes });
    }
    Ok(match bytes.get(head..size) {
        Some(body) => Framed::Whole(Frame { first_byte, body, size }),
        None => Framed::Partial { size: Some(size) },
    })
}

/// Writes a number in one to four bytes.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    debug_assert!(value <= VARINT_MAX, "callers bound it by the packet's limit");
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put_varint`] writes.
pub(super) fn varint_size(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Writes a text or binary data, cut at what its length field can say.
pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text);
}
