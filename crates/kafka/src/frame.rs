//! Frames: a length, and as many bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use millstream_types::Grant;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Fault;
use crate::node::{Node, ROOM_UNIT_BYTES};

/// The field that says how long a frame is.
const LENGTH_BYTES: usize = 4;
/// Key, version and correlation id: what every request begins with.
const HEADER_MIN_BYTES: i64 = 8;
/// How much room there is for what comes next: at first, and once a client sends so much that it fills this.
const READ_MIN_BYTES: usize = 16 << 10;
const READ_MAX_BYTES: usize = 128 << 10;

/// Requests that hold enough room to keep others out, many of them together.
const LARGE_BYTES: usize = 64 << 10;
/// How often within its limit the pace of a large request is looked at.
const PACE_PARTS: u32 = 6;

/// One request as it came, and the room that it takes until it is answered.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    pub(crate) room: OwnedSemaphorePermit,
}

/// The requests of one socket.
pub(crate) struct Frames {
    socket: OwnedReadHalf,
    /// What has come and was not asked for yet. Its memory is used again once the requests in it have let go of it.
    buffer: BytesMut,
    read_bytes: usize,
    /// What the connection takes of the memory budget, its read buffer included.
    memory: Grant,
    node: Arc<Node>,
}

impl Frames {
    pub(crate) fn new(socket: OwnedReadHalf, node: Arc<Node>, memory: Grant) -> Self {
        Self { socket, buffer: BytesMut::new(), read_bytes: READ_MIN_BYTES, memory, node }
    }

    /// The next request; `None` if the client has closed the connection. `busy` says whether any is being answered: such
    /// a connection does not rest.
    pub(crate) async fn next(&mut self, busy: impl Fn() -> bool) -> Result<Option<Frame>, Fault> {
        let idle_ms = self.node.config.idle_timeout_ms;
        while self.buffer.len() < LENGTH_BYTES {
            match timeout(Duration::from_millis(idle_ms), self.fill(LENGTH_BYTES)).await {
                Ok(filled) => {
                    if !filled? {
                        return Ok(None);
                    }
                }
                Err(_) if busy() => {}
                Err(_) => return Err(Fault::Idle { limit_ms: idle_ms }),
            }
        }
        let size = self.size()?;
        let units = u32::try_from(size.div_ceil(ROOM_UNIT_BYTES)).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.node.room).acquire_many_owned(units).await else { return Ok(None) };
        if !self.fill_in_time(LENGTH_BYTES + size).await? {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(Frame { bytes: self.buffer.split_to(size).freeze(), room }))
    }

    /// What the frame at hand says of its size.
    fn size(&self) -> Result<usize, Fault> {
        let limit_bytes = self.node.config.request_max_bytes;
        let size_bytes = i64::from((&self.buffer[..LENGTH_BYTES]).get_i32());
        if size_bytes < HEADER_MIN_BYTES {
            return Err(Fault::Undersized { size_bytes });
        }
        match usize::try_from(size_bytes) {
            Ok(size) if size <= limit_bytes => Ok(size),
            _ => Err(Fault::Oversized { size_bytes, limit_bytes }),
        }
    }

    /// Fills up to `size` within the limit. While there is little room left for others, a large request has to come at half the
    /// pace that the limit asks for: whoever announces much and sends nothing would keep them out.
    async fn fill_in_time(&mut self, size: usize) -> Result<bool, Fault> {
        let limit_ms = self.node.config.request_timeout_ms;
        let (begun, limit) = (Instant::now(), Duration::from_millis(limit_ms));
        for part in 1..=PACE_PARTS {
            let until = begun + limit * part / PACE_PARTS;
            if let Ok(filled) = timeout_at(until, self.fill_to(size)).await {
                return filled;
            }
            let due = size / (2 * PACE_PARTS as usize) * part as usize;
            if size >= LARGE_BYTES && self.buffer.len() < due && self.node.room_is_short() {
                break;
            }
        }
        Err(Fault::Slow { limit_ms })
    }

    async fn fill_to(&mut self, size: usize) -> Result<bool, Fault> {
        while self.buffer.len() < size {
            if !self.fill(size - self.buffer.len()).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads what is there, with room for at least `wanted`; false at the end.
    async fn fill(&mut self, wanted: usize) -> Result<bool, Fault> {
        let room = self.buffer.capacity() - self.buffer.len();
        if room < wanted || self.buffer.is_empty() && room < self.read_bytes {
            self.buffer.reserve(wanted.max(self.read_bytes));
        }
        let read = self.socket.read_buf(&mut self.buffer).await?;
        let is_full = self.buffer.len() == self.buffer.capacity();
        if is_full && self.read_bytes < READ_MAX_BYTES && self.memory.grow(self.read_bytes as u64) {
            self.read_bytes *= 2;
        }
        Ok(read > 0)
    }
}
