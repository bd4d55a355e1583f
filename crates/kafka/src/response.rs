//! Encodes a response into one frame: its length, its header and its body.

use bytes::{BufMut, BytesMut};
use kafka_protocol::protocol::{Encodable, HeaderVersion};

use crate::error::ConnectionError;
use crate::network_send::{NetworkSend, SendBuffer};

/// Size in bytes of the length field at the start of a frame.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The response to one request.
pub(crate) enum Response {
    /// One complete frame of bytes.
    Frame(NetworkSend),
    /// The request asked for no response (`acks = 0`).
    Nothing,
}

/// Encodes `response` into one frame.
pub(crate) fn encode<T: Encodable + HeaderVersion>(
    response: &T,
    key: i16,
    version: i16,
    id: i32,
) -> Result<Response, ConnectionError> {
    let unwritable = |why: String| ConnectionError::Unwritable { key, version, why };
    let size = response.compute_size(version).map_err(|e| unwritable(e.to_string()))?;
    let mut frame = start::<T>(version, id, size);
    response.encode(&mut frame, version).map_err(|e| unwritable(e.to_string()))?;
    let length = frame.len() - LENGTH_BYTES;
    put_length(&mut frame, length).map_err(unwritable)?;
    let mut parts = NetworkSend::default();
    parts.push(SendBuffer::Bytes(frame.freeze()));
    Ok(Response::Frame(parts))
}

/// Writes the response header, with room for a body of `size` bytes. [`put_length`] sets the length afterwards.
pub(crate) fn start<T: HeaderVersion>(version: i16, id: i32, size: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(size + 16);
    frame.put_i32(0);
    frame.put_i32(id);
    if T::header_version(version) > 0 {
        // No tagged fields.
        frame.put_u8(0);
    }
    frame
}

/// Sets the length field of a frame that begins with [`start`].
pub(crate) fn put_length(frame: &mut [u8], length: usize) -> Result<(), String> {
    let length = i32::try_from(length).map_err(|e| e.to_string())?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
