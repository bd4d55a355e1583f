//! The read buffer of one socket: bytes arrive in it and are taken from its front.

use bytes::{Buf, Bytes, BytesMut};
use millstream_net::TransportReadHalf;
use millstream_types::Grant;
use tokio::io::AsyncReadExt;

use crate::error::ConnectionError;

/// The size of one read at first. It grows once a client sends so much that it fills this.
const READ_MIN_BYTES: usize = 16 << 10;
const READ_MAX_BYTES: usize = 128 << 10;

/// The socket's read half and the bytes that arrived from it.
pub(crate) struct ReadBuffer {
    socket: TransportReadHalf,
    /// Bytes that nobody has taken yet. The memory is reused once the requests in it are dropped.
    bytes: BytesMut,
    read_bytes: usize,
    /// The connection's share of the memory budget, including this buffer.
    memory: Grant,
}

impl ReadBuffer {
    pub(crate) fn new(socket: TransportReadHalf, memory: Grant) -> Self {
        Self { socket, bytes: BytesMut::new(), read_bytes: READ_MIN_BYTES, memory }
    }

    /// The bytes that have arrived.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops the first `count` bytes, which have arrived.
    pub(crate) fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    /// Takes the first `count` bytes, which have arrived.
    pub(crate) fn split_to(&mut self, count: usize) -> Bytes {
        self.bytes.split_to(count).freeze()
    }

    /// Waits for the next `count` bytes, at most a few KiB, and takes them; `None` at the end of the stream.
    pub(crate) async fn take(&mut self, count: usize) -> Result<Option<Bytes>, ConnectionError> {
        Ok(self.fill_to(count).await?.then(|| self.split_to(count)))
    }

    /// Drops the next `count` bytes as they arrive; false at the end of the stream.
    pub(crate) async fn skip(&mut self, mut count: usize) -> Result<bool, ConnectionError> {
        loop {
            let here = count.min(self.bytes.len());
            self.bytes.advance(here);
            count -= here;
            if count == 0 {
                return Ok(true);
            }
            if !self.fill(1).await? {
                return Ok(false);
            }
        }
    }

    /// Reads until `size` bytes have arrived; false at the end of the stream.
    pub(crate) async fn fill_to(&mut self, size: usize) -> Result<bool, ConnectionError> {
        while self.bytes.len() < size {
            if !self.fill(size - self.bytes.len()).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads once, with capacity for at least `wanted` bytes; false at the end of the stream.
    pub(crate) async fn fill(&mut self, wanted: usize) -> Result<bool, ConnectionError> {
        let capacity = self.bytes.capacity() - self.bytes.len();
        if capacity < wanted || self.bytes.is_empty() && capacity < self.read_bytes {
            self.bytes.reserve(wanted.max(self.read_bytes));
        }
        let read = self.socket.read_buf(&mut self.bytes).await?;
        let is_full = self.bytes.len() == self.bytes.capacity();
        if is_full && self.read_bytes < READ_MAX_BYTES && self.memory.grow(self.read_bytes as u64) {
            self.read_bytes *= 2;
        }
        Ok(read > 0)
    }
}
