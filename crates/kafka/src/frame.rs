//! Request frames: a length, and that many bytes.
//!
//! The beginning of a request comes into the read buffer, which counts with the connection. For what is longer,
//! and before it is answered, a request takes room for all of it: from its connection's share, and from the room of all
//! connections, of which each tenant leaves some to the others. Who announces much and sends nothing takes none.
//! Before a login a request must fit the read buffer, and takes no room of all connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use millstream_net::{RoomPermit, TransportReadHalf};
use millstream_types::Grant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::broker::Broker;
use crate::error::ConnectionError;
use crate::oversized_produce::OversizedProduce;
use crate::read_buffer::ReadBuffer;
use crate::request_context::ClientConnection;
use crate::response::LENGTH_BYTES;

/// Size of key, version and correlation id, with which every request begins.
const HEADER_MIN_BYTES: i64 = 8;

/// The unit in which a connection's share is counted.
const SHARE_UNIT_BYTES: usize = 1024;
/// Bytes of a request that arrive before it takes room.
const UNRESERVED_BYTES: usize = 16 << 10;
/// Largest request before a login; a login takes a few hundred bytes.
const LOGIN_MAX_BYTES: usize = 8 << 10;
/// One connection takes at most this fraction of the room for all requests, or one request of the largest size.
const SHARE_PARTS: usize = 8;

/// Size from which requests can keep others out if there are many of them.
const LARGE_BYTES: usize = 64 << 10;
/// Number of times that the pace of a large request is checked within its time limit.
const PACE_PARTS: u32 = 6;

/// One request, and its share of the request memory until it is answered.
#[derive(Debug)]
pub(crate) struct RequestFrame {
    pub(crate) bytes: Bytes,
    pub(crate) room: RequestPermit,
    /// The original size of a request that exceeded the limit and whose records were dropped.
    pub(crate) oversized_bytes: Option<usize>,
}

/// A request's share of the request memory, released on drop.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    _of_connection: OwnedSemaphorePermit,
    /// `None` before a login.
    _of_all: Option<RoomPermit>,
}

/// The requests of one socket.
pub(crate) struct FrameReader {
    buffer: ReadBuffer,
    broker: Arc<Broker>,
    connection: Arc<ClientConnection>,
    /// The room for requests of this connection, in units of [`SHARE_UNIT_BYTES`]; small before a login.
    share: Arc<Semaphore>,
    has_whole_share: bool,
}

impl FrameReader {
    pub(crate) fn new(
        socket: TransportReadHalf,
        broker: Arc<Broker>,
        connection: Arc<ClientConnection>,
        memory: Grant,
    ) -> Self {
        let share = Arc::new(Semaphore::new(LOGIN_MAX_BYTES / SHARE_UNIT_BYTES));
        Self { buffer: ReadBuffer::new(socket, memory), broker, connection, share, has_whole_share: false }
    }

    /// The next request; `None` if the client has closed the connection. `busy` says if a request is being answered: then
    /// the connection is not idle.
    pub(crate) async fn next(&mut self, busy: impl Fn() -> bool) -> Result<Option<RequestFrame>, ConnectionError> {
        let idle_ms = self.broker.config.idle_timeout_ms;
        while self.buffer.bytes().len() < LENGTH_BYTES {
            match timeout(Duration::from_millis(idle_ms), self.buffer.fill(LENGTH_BYTES)).await {
                Ok(filled) => {
                    if !filled? {
                        return Ok(None);
                    }
                }
                Err(_) if busy() => {}
                Err(_) => return Err(ConnectionError::Idle { limit_ms: idle_ms }),
            }
        }
        let is_logged_in = self.connection.is_logged_in();
        let size = match self.size(is_logged_in) {
            Err(ConnectionError::Oversized { size_bytes, limit_bytes }) => {
                return self.read_oversized(size_bytes, limit_bytes).await;
            }
            size => size?,
        };
        if !self.fill_beginning(LENGTH_BYTES + size).await? {
            return Ok(None);
        }
        let Some(room) = self.room(size, is_logged_in).await else { return Ok(None) };
        if !self.fill_in_time(LENGTH_BYTES + size).await? {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(RequestFrame { bytes: self.buffer.split_to(size), room, oversized_bytes: None }))
    }

    /// Reads a request over the limit without its records, so that it can be answered.
    async fn read_oversized(
        &mut self,
        size_bytes: i64,
        limit_bytes: usize,
    ) -> Result<Option<RequestFrame>, ConnectionError> {
        let limit_ms = self.broker.config.request_timeout_ms;
        self.buffer.advance(LENGTH_BYTES);
        let oversized_bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        let Some(oversized) = OversizedProduce::new(&mut self.buffer, oversized_bytes) else {
            return Err(ConnectionError::Oversized { size_bytes, limit_bytes });
        };
        let kept = timeout(Duration::from_millis(limit_ms), oversized.run(&self.broker.supported_apis)).await;
        let Some(bytes) = kept.map_err(|_| ConnectionError::Slow { limit_ms })?? else {
            return Err(ConnectionError::Oversized { size_bytes, limit_bytes });
        };
        let Some(room) = self.room(bytes.len().min(limit_bytes), true).await else { return Ok(None) };
        Ok(Some(RequestFrame { bytes, room, oversized_bytes: Some(oversized_bytes) }))
    }

    /// Waits for room for a request of `size` bytes; `None` if the listener is gone.
    async fn room(&mut self, size: usize, is_logged_in: bool) -> Option<RequestPermit> {
        if is_logged_in && !self.has_whole_share {
            self.has_whole_share = true;
            self.share.add_permits(self.share_bytes().saturating_sub(LOGIN_MAX_BYTES) / SHARE_UNIT_BYTES);
        }
        let units = u32::try_from(size.div_ceil(SHARE_UNIT_BYTES)).unwrap_or(u32::MAX);
        let of_connection = Arc::clone(&self.share).acquire_many_owned(units).await.ok()?;
        let of_all = match is_logged_in {
            true => Some(self.broker.room.acquire(&self.connection.tenant(), size).await),
            false => None,
        };
        Some(RequestPermit { _of_connection: of_connection, _of_all: of_all })
    }

    /// A multiple of the unit, so that the largest request fits.
    fn share_bytes(&self) -> usize {
        let config = &self.broker.config;
        config.request_max_bytes.next_multiple_of(SHARE_UNIT_BYTES).max(config.requests_max_bytes / SHARE_PARTS)
    }

    /// The size of the current frame, checked against the limits.
    fn size(&self, is_logged_in: bool) -> Result<usize, ConnectionError> {
        let limit_bytes = self.broker.config.request_max_bytes;
        let size_bytes = i64::from((&self.buffer.bytes()[..LENGTH_BYTES]).get_i32());
        if size_bytes < HEADER_MIN_BYTES {
            return Err(ConnectionError::Undersized { size_bytes });
        }
        let login_limit_bytes = limit_bytes.min(LOGIN_MAX_BYTES);
        match usize::try_from(size_bytes) {
            _ if !is_logged_in && size_bytes > login_limit_bytes as i64 => {
                Err(ConnectionError::OversizedBeforeLogin { size_bytes, limit_bytes: login_limit_bytes })
            }
            Ok(size) if size <= limit_bytes => Ok(size),
            _ => Err(ConnectionError::Oversized { size_bytes, limit_bytes }),
        }
    }

    /// Reads what comes into the buffer before a request of `size` bytes takes room; false at the end of the stream.
    async fn fill_beginning(&mut self, size: usize) -> Result<bool, ConnectionError> {
        let limit_ms = self.broker.config.request_timeout_ms;
        let filled = timeout(Duration::from_millis(limit_ms), self.buffer.fill_to(size.min(UNRESERVED_BYTES))).await;
        filled.unwrap_or(Err(ConnectionError::Slow { limit_ms }))
    }

    /// Reads up to `size` bytes within the time limit. While room is short, a large request must arrive at half the pace
    /// that the limit requires at least: a client that announces much and sends nothing would otherwise keep others out.
    async fn fill_in_time(&mut self, size: usize) -> Result<bool, ConnectionError> {
        let limit_ms = self.broker.config.request_timeout_ms;
        let (begun, limit) = (Instant::now(), Duration::from_millis(limit_ms));
        for part in 1..=PACE_PARTS {
            let until = begun + limit * part / PACE_PARTS;
            if let Ok(filled) = timeout_at(until, self.buffer.fill_to(size)).await {
                return filled;
            }
            let due = size / (2 * PACE_PARTS as usize) * part as usize;
            if size >= LARGE_BYTES && self.buffer.bytes().len() < due && self.broker.room.is_short() {
                break;
            }
        }
        Err(ConnectionError::Slow { limit_ms })
    }
}
