//! AMQP's frames as those of a socket.

use std::time::Duration;

use millstream_amqp::{Framed, HEADER_BYTES, frame, protocol_header};

use super::fault::Fault;
use crate::framed_io::{FramedIo, Framing, Measured};

/// The frames of AMQP, and the headers of its protocols.
pub(super) struct AmqpFraming;

/// A client's socket with its read and write buffers.
pub(super) type AmqpIo<S> = FramedIo<S, AmqpFraming>;

impl Framing for AmqpFraming {
    type Fault = Fault;
    /// Nothing is sent from where it lies.
    type Message = ();

    fn payload(&(): &()) -> &[u8] {
        &[]
    }

    fn measure(bytes: &[u8], limit_bytes: usize) -> Result<Measured, Fault> {
        // A frame that begins so would have more than a gigabyte.
        if bytes.first() == Some(&b'A') {
            return Ok(match protocol_header(bytes) {
                Ok(None) => Measured::Partial { size_bytes: Some(HEADER_BYTES) },
                Ok(Some(_)) | Err(_) => Measured::Whole,
            });
        }
        Ok(match frame(bytes, limit_bytes)? {
            Framed::Whole(_) => Measured::Whole,
            Framed::Partial { size } => Measured::Partial { size_bytes: size },
        })
    }

    fn no_memory(size_bytes: usize) -> Fault {
        Fault::NoMemory { size_bytes }
    }

    fn slow_reader(limit: Duration) -> Fault {
        Fault::SlowReader { limit }
    }
}
