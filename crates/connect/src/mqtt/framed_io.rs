//! A socket with what has arrived of a packet and what waits to be sent. While nothing happens it holds no buffers.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use millstream_mqtt::{Framed, frame};
use millstream_types::{Grant, MemoryBudget, TenantId};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use super::broker::message::Message;
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
    grant: Option<(Grant, usize)>,
    buffers: MemoryBudget,
    /// The tenant of the client, once it is logged in.
    tenant: TenantId,
    packet_max_bytes: usize,
    /// The bytes to send.
    pub(super) out: Vec<u8>,
    /// A message whose payload is sent behind them, from where it lies. Until then nothing is added to them.
    pub(super) behind: Option<Arc<Message>>,
    /// The number of bytes that are sent, of both.
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
        Self { socket, held, begun: None, grant: None, buffers, tenant, packet_max_bytes, out, behind: None, sent: 0 }
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
                self.extend_held(arrived);
                self.take_held(take)?;
            }
            Poll::Ready(Ok(Read::Some))
        })
    }

    /// Holds more bytes. Room for them grows as that of any vector, but to no more than the packet that was announced.
    fn extend_held(&mut self, arrived: &[u8]) {
        let (held_bytes, capacity) = (self.held.len(), self.held.capacity());
        let needed_bytes = held_bytes + arrived.len();
        if needed_bytes > capacity {
            let announced_bytes = self.grant.as_ref().map_or(0, |(_, size_bytes)| *size_bytes);
            self.held.reserve_exact(needed_bytes.max(announced_bytes.min(2 * capacity)) - held_bytes);
        }
        self.held.extend_from_slice(arrived);
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
        let Self { socket, out, behind, sent, .. } = self;
        let payload = behind.as_ref().map_or(&[][..], |message| &message.payload);
        while *sent < out.len() + payload.len() {
            let rest =
                out.get(*sent..).filter(|rest| !rest.is_empty()).unwrap_or_else(|| &payload[*sent - out.len()..]);
            match ready!(Pin::new(&mut *socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                written => *sent += written,
            }
        }
        ready!(Pin::new(socket).poll_flush(cx))?;
        (*behind, *sent) = (None, 0);
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
    use millstream_mqtt::Qos;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
    async fn room_for_the_beginning_of_a_packet_grows_to_no_more_than_the_packet() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut io = FramedIo::new(near, MemoryBudget::new("memory.budget_bytes", 1 << 20), 1 << 20);
        // The head of a PUBLISH with 100 KiB behind it.
        let packet = [&[0x30, 0x80, 0xA0, 0x06, 0x00][..], &[0; 90 << 10]].concat();
        for part in packet.chunks(1_000) {
            far.write_all(part).await.unwrap();
            io.read(|_: &[u8], _: &mut Vec<u8>| Ok(0)).await.unwrap();
        }
        assert_eq!(io.held.len(), packet.len());
        assert!(io.held.capacity() <= (100 << 10) + 4, "{}", io.held.capacity());
    }

    #[tokio::test]
    async fn a_large_payload_is_sent_behind_the_buffered_bytes_and_before_later_ones() {
        let (near, mut far) = tokio::io::duplex(100);
        let mut io = FramedIo::new(near, MemoryBudget::new("memory.budget_bytes", 1 << 20), 1_024);
        let message = Message {
            topic: "a".into(),
            payload: vec![b'x'; 10_000].into(),
            qos: Qos::AtMostOnce,
            properties: Box::default(),
            expires_ms: None,
            _room: None,
        };
        let sent = async {
            for (bytes, behind) in [(&b"head"[..], Some(Arc::new(message))), (b"later", None)] {
                (io.out, io.behind) = (bytes.to_vec(), behind);
                io.flush(Duration::from_secs(60)).await.unwrap();
                assert!(io.out.is_empty() && io.behind.is_none());
            }
            io.close().await;
        };
        let mut arrived = Vec::new();
        let (_, read) = tokio::join!(sent, far.read_to_end(&mut arrived));
        assert_eq!(read.unwrap(), 10_009);
        assert!(arrived == [b"head", &[b'x'; 10_000][..], b"later"].concat());
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
