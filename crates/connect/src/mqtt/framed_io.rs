//! A socket with what has arrived of a packet and what waits to be sent. While nothing happens it holds no buffers.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use millstream_mqtt::{Framed, frame};
use millstream_types::{MemoryBudget, TenantGrant, TenantId};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use super::disconnect::DisconnectCause;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// Largest capacity of the send buffer that is kept once all of it is sent.
const KEPT_BYTES: usize = 1 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// Takes bytes, appends the answers to the buffer, and returns the number of bytes that it has taken.
pub(super) trait Take: FnMut(&[u8], &mut Vec<u8>) -> Result<usize, DisconnectCause> {}

impl<T: FnMut(&[u8], &mut Vec<u8>) -> Result<usize, DisconnectCause>> Take for T {}

/// A client's socket with its read and write buffers.
pub(super) struct FramedIo<S> {
    socket: S,
    /// Bytes that have arrived and are not taken yet: the beginning of a packet, or packets that there was no room for.
    held: Vec<u8>,
    /// The time at which the beginning of a packet came.
    begun: Option<Instant>,
    /// Room in the budget for the held bytes, and its size.
    grant: Option<(TenantGrant, usize)>,
    buffers: MemoryBudget,
    /// The tenant of the client, once it is logged in.
    tenant: TenantId,
    packet_max_bytes: usize,
    /// The bytes to send, and how many of them are sent.
    pub(super) out: Vec<u8>,
    sent: usize,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// Bytes have arrived and are taken.
    Some,
    /// The client has closed its side.
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> FramedIo<S> {
    pub(super) fn new(socket: S, buffers: MemoryBudget, packet_max_bytes: usize) -> Self {
        let (held, out) = (Vec::new(), Vec::new());
        let tenant = TenantId::default();
        Self { socket, held, begun: None, grant: None, buffers, tenant, packet_max_bytes, out, sent: 0 }
    }

    /// Takes packets up to this size from now on, which count for `tenant`.
    pub(super) fn allow(&mut self, tenant: &TenantId, packet_max_bytes: usize) {
        (self.tenant, self.packet_max_bytes) = (tenant.clone(), packet_max_bytes);
    }

    /// Waits for bytes and hands them to `take`, which answers how many it has taken.
    pub(super) async fn read(&mut self, mut take: impl Take) -> Result<Read, DisconnectCause> {
        poll_fn(|cx| self.poll_read(cx, &mut take)).await
    }

    /// The poll form of [`FramedIo::read`].
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut impl Take,
    ) -> Poll<Result<Read, DisconnectCause>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
            let arrived = buffer.filled();
            if arrived.is_empty() {
                return Poll::Ready(Ok(Read::End));
            }
            if self.held.is_empty() {
                let taken = take(arrived, &mut self.out)?;
                if taken < arrived.len() {
                    self.hold(&arrived[taken..])?;
                }
            } else {
                self.held.extend_from_slice(arrived);
                self.take_held(take)?;
            }
            Poll::Ready(Ok(Read::Some))
        })
    }

    /// Hands the held bytes to `take` again.
    pub(super) fn take_held(&mut self, take: &mut impl Take) -> Result<(), DisconnectCause> {
        if self.held.is_empty() {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        let taken = take(&held, &mut self.out)?;
        if taken == 0 {
            self.held = held;
            return self.bound();
        }
        self.begun = None;
        self.hold(&held[taken..])
    }

    fn hold(&mut self, rest: &[u8]) -> Result<(), DisconnectCause> {
        self.held.extend_from_slice(rest);
        self.bound()
    }

    /// Counts the held bytes against the budget; a packet in part counts with its whole size.
    fn bound(&mut self) -> Result<(), DisconnectCause> {
        if self.held.is_empty() {
            (self.held, self.grant, self.begun) = (Vec::new(), None, None);
            return Ok(());
        }
        let size_bytes = match frame(&self.held, self.packet_max_bytes)? {
            Framed::Partial { size } => {
                self.begun.get_or_insert_with(Instant::now);
                size.unwrap_or(self.held.len())
            }
            Framed::Whole(_) => {
                self.begun = None;
                self.held.len()
            }
        };
        let size_bytes = size_bytes.max(self.held.len());
        if self.grant.as_ref().is_none_or(|(_, granted)| *granted < size_bytes) {
            self.grant = None;
            let grant = self
                .buffers
                .take_for(&self.tenant, size_bytes as u64)
                .ok_or(DisconnectCause::NoMemory { size_bytes })?;
            self.grant = Some((grant, size_bytes));
        }
        Ok(())
    }

    /// True if there is something that could be taken without reading.
    pub(super) fn has_held(&self) -> bool {
        !self.held.is_empty() && self.begun.is_none()
    }

    /// The time since which the rest of a packet is awaited.
    pub(super) fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// It was not listened to: the rest of a packet may take as long again.
    pub(super) fn excuse(&mut self) {
        self.begun = self.begun.map(|_| Instant::now());
    }

    /// Sends the buffered bytes within `limit`.
    pub(super) async fn flush(&mut self, limit: Duration) -> Result<(), DisconnectCause> {
        if self.out.is_empty() {
            return Ok(());
        }
        // Mostly there is room in the socket, and nothing to wait for.
        if let Poll::Ready(sent) = poll_fn(|cx| Poll::Ready(self.poll_send(cx))).await {
            return Ok(sent?);
        }
        let sent = timeout(limit, poll_fn(|cx| self.poll_send(cx)));
        Ok(sent.await.map_err(|_| DisconnectCause::SlowReader { limit })??)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.sent < self.out.len() {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, &self.out[self.sent..]))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.sent = 0;
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Shuts down the sending side of the socket.
    pub(super) async fn close(&mut self) {
        // A client that is gone already has nothing to be told.
        let _ = timeout(Duration::from_secs(1), self.socket.shutdown()).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_whole_packet_that_is_not_consumed_yet_is_held_and_not_awaited() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut io = FramedIo::new(near, MemoryBudget::new("memory.budget_bytes", 1 << 20), 1_024);
        for (byte, is_whole) in [(0xC0, false), (0x00, true)] {
            far.write_all(&[byte]).await.unwrap();
            io.read(|_: &[u8], _: &mut Vec<u8>| Ok(0)).await.unwrap();
            assert_eq!((io.has_held(), io.begun().is_none()), (is_whole, is_whole));
        }
    }

    #[tokio::test]
    async fn a_fragmented_packet_returns_its_memory_once_it_is_consumed() {
        let (near, mut far) = tokio::io::duplex(64);
        let budget = MemoryBudget::new("memory.budget_bytes", 1 << 20);
        let mut io = FramedIo::new(near, budget.clone(), 1_024);
        far.write_all(&[0xC0]).await.unwrap();
        io.read(|_: &[u8], _: &mut Vec<u8>| Ok(0)).await.unwrap();
        assert!(budget.used_bytes() > 0);
        far.write_all(&[0x00]).await.unwrap();
        io.read(|bytes: &[u8], _: &mut Vec<u8>| Ok(bytes.len())).await.unwrap();
        assert_eq!((io.has_held(), budget.used_bytes()), (false, 0));
    }

    #[tokio::test]
    async fn what_one_tenant_announces_leaves_memory_for_the_packets_of_another() {
        const PACKET_BYTES: usize = 100 << 10;
        let budget = MemoryBudget::new("memory.budget_bytes", 10 * PACKET_BYTES as u64);
        // The head of a PUBLISH with 100 KiB behind it.
        let head = [0x30, 0x80, 0xA0, 0x06, 0x00];
        let announce = async |tenant: &str| {
            let (near, mut far) = tokio::io::duplex(64);
            let mut io = FramedIo::new(near, budget.clone(), 64);
            io.allow(&TenantId::new(tenant).unwrap(), 2 * PACKET_BYTES);
            far.write_all(&head).await.unwrap();
            let read = io.read(|_: &[u8], _: &mut Vec<u8>| Ok(0)).await;
            read.map(|_| io).ok()
        };
        let mut standing = Vec::new();
        for _ in 0..20 {
            standing.extend(announce("greedy").await);
        }
        assert_eq!(standing.len(), 4);
        for _ in 0..2 {
            standing.push(announce("other").await.unwrap());
        }
    }
}
