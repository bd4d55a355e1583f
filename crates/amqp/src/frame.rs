//! Frames, and the header with which each layer begins (AMQP 1.0, sections 2.2 and 2.3).

use crate::Error;
use crate::performative::Performative;
use crate::sasl::Sasl;
use crate::value::Reader;
use crate::value::Value;
use crate::write;

/// Bytes of the header of a frame and of a protocol.
pub const HEADER_BYTES: usize = 8;
/// The least that a peer's largest frame may be, and the largest frame before both have opened (section 2.8.17).
pub const FRAME_MIN_MAX_BYTES: usize = 512;

const AMQP: u8 = 0;
const SASL: u8 = 1;

/// The protocol of the frames that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolHeader {
    /// AMQP itself.
    Amqp,
    /// TLS inside of the connection.
    Tls,
    /// The login.
    Sasl,
}

impl ProtocolHeader {
    /// Its bytes.
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let id = match self {
            Self::Amqp => 0,
            Self::Tls => 2,
            Self::Sasl => 3,
        };
        [b'A', b'M', b'Q', b'P', id, 1, 0, 0]
    }
}

/// Reads the header of a protocol; `None` until all its bytes are there.
///
/// # Errors
/// [`Error::Malformed`] as soon as the bytes are those of none.
pub fn protocol_header(bytes: &[u8]) -> Result<Option<ProtocolHeader>, Error> {
    let known = [ProtocolHeader::Amqp, ProtocolHeader::Tls, ProtocolHeader::Sasl];
    let begun = &bytes[..bytes.len().min(HEADER_BYTES)];
    let header = known.into_iter().find(|header| header.bytes().starts_with(begun));
    let header = header.ok_or(Error::Malformed("bytes that are no header of AMQP 1.0"))?;
    Ok((bytes.len() >= HEADER_BYTES).then_some(header))
}

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its size in bytes, with its header.
    pub size: usize,
    kind: u8,
    channel: u16,
    content: &'a [u8],
}

/// The frame at the beginning of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framed<'a> {
    /// All of it is there.
    Whole(Frame<'a>),
    /// A part of it is there.
    Partial {
        /// Its size in bytes, if that has come.
        size: Option<usize>,
    },
}

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "it is read on the stack, once a frame, and not kept")]
pub enum Body<'a> {
    /// An empty frame, which says that the peer is there.
    Empty,
    /// A performative.
    Amqp {
        /// The channel of its session.
        channel: u16,
        /// The performative.
        performative: Performative<'a>,
        /// The bytes behind it: of a message, behind a transfer.
        payload: &'a [u8],
    },
    /// A step of a login.
    Sasl(Sasl<'a>),
}

/// Finds the frame at the beginning of `bytes`.
///
/// # Errors
/// [`Error::TooLarge`] if it announces more than `limit_bytes`; [`Error::Malformed`] if its header breaks a rule.
pub fn frame(bytes: &[u8], limit_bytes: usize) -> Result<Framed<'_>, Error> {
    let Some((head, _)) = bytes.split_first_chunk::<4>() else { return Ok(Framed::Partial { size: None }) };
    let size = u32::from_be_bytes(*head) as usize;
    if size < HEADER_BYTES {
        return Err(Error::Malformed("a frame that is smaller than its header"));
    }
    if size > limit_bytes {
        return Err(Error::TooLarge { size_bytes: size, limit_bytes });
    }
    let Some(whole) = bytes.get(..size) else { return Ok(Framed::Partial { size: Some(size) }) };
    let content_at = usize::from(whole[4]) * 4;
    if content_at < HEADER_BYTES || content_at > size {
        return Err(Error::Malformed("a frame whose content begins outside of it"));
    }
    let kind = whole[5];
    if kind != AMQP && kind != SASL {
        return Err(Error::Malformed("a frame of an unknown type"));
    }
    let channel = u16::from_be_bytes([whole[6], whole[7]]);
    Ok(Framed::Whole(Frame { size, kind, channel, content: &whole[content_at..] }))
}

impl<'a> Frame<'a> {
    /// Reads the content.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::TooLarge`] if it breaks a rule.
    pub fn body(&self) -> Result<Body<'a>, Error> {
        if self.content.is_empty() {
            return Ok(Body::Empty);
        }
        let mut reader = Reader::new(self.content);
        let Value::Described(described) = reader.value()? else {
            return Err(Error::Malformed("a frame that does not begin with a performative"));
        };
        if self.kind == SASL {
            return Sasl::read(described).map(Body::Sasl);
        }
        let performative = Performative::read(described)?;
        Ok(Body::Amqp { channel: self.channel, performative, payload: reader.rest() })
    }
}

/// Appends a frame with a performative and the bytes behind it.
pub fn write_frame(out: &mut Vec<u8>, channel: u16, performative: &Performative<'_>, payload: &[u8]) {
    let start = begin(out, AMQP, channel);
    performative.write(out);
    out.extend_from_slice(payload);
    end(out, start);
}

/// Appends a frame of a login.
pub fn write_sasl(out: &mut Vec<u8>, step: &Sasl<'_>) {
    let start = begin(out, SASL, 0);
    step.write(out);
    end(out, start);
}

/// Appends an empty frame.
pub fn heartbeat(out: &mut Vec<u8>) {
    let start = begin(out, AMQP, 0);
    end(out, start);
}

fn begin(out: &mut Vec<u8>, kind: u8, channel: u16) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, 2, kind]);
    out.extend_from_slice(&channel.to_be_bytes());
    start
}

fn end(out: &mut [u8], start: usize) {
    let size = write::size(out.len() - start);
    out[start..start + size.len()].copy_from_slice(&size);
}
