//! A socket with what has arrived of a frame and what waits to be sent, for every protocol of frames. While nothing happens it
//! holds no buffers.

use std::cell::RefCell;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use millstream_types::{Grant, MemoryBudget, TenantId};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// Largest capacity of the send buffer that is kept once all of it is sent.
const KEPT_BYTES: usize = 1 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// The frames of a protocol.
pub(crate) trait Framing {
    /// The cause for which a connection ends.
    type Fault: From<std::io::Error>;
    /// A message whose payload is sent from where it lies.
    type Message;

    fn payload(message: &Self::Message) -> &[u8];

    /// Measures the frame at the beginning of `bytes`, which may have `limit_bytes`.
    fn measure(bytes: &[u8], limit_bytes: usize) -> Result<Measured, Self::Fault>;

    /// The budget has no room for a frame.
    fn no_memory(size_bytes: usize) -> Self::Fault;

    /// The peer has not read what was sent to it within `limit`.
    fn slow_reader(limit: Duration) -> Self::Fault;
}

/// The size of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measured {
    /// All of it is there.
    Whole,
    /// A part is there, of so many bytes, if it says that already.
    Partial { size_bytes: Option<usize> },
}

/// Takes bytes, appends the answers to the buffer, and returns the number of bytes that it has taken.
pub(crate) trait Take<E>: FnMut(&[u8], &mut Vec<u8>) -> Result<usize, E> {}

impl<E, T: FnMut(&[u8], &mut Vec<u8>) -> Result<usize, E>> Take<E> for T {}

/// A client's socket with its read and write buffers.
pub(crate) struct FramedIo<S, F: Framing> {
    socket: S,
    /// Bytes that have arrived and are not taken yet: the beginning of a frame, or frames that there was no room for.
    held: Vec<u8>,
    /// The time at which the beginning of a frame came.
    begun: Option<Instant>,
    /// Room in the budget for the held bytes, and its size.
    grant: Option<(Grant, usize)>,
    buffers: MemoryBudget,
    /// The tenant of the client, once it is logged in.
    tenant: TenantId,
    frame_max_bytes: usize,
    /// The bytes to send.
    pub(crate) out: Vec<u8>,
    /// A message whose payload is sent behind them, from where it lies. Until then nothing is added to them.
    pub(crate) behind: Option<Arc<F::Message>>,
    /// The number of bytes that are sent, of both.
    sent: usize,
    _framing: PhantomData<F>,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// Bytes have arrived and are taken.
    Some,
    /// The client has closed its side.
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: Framing> FramedIo<S, F> {
    pub(crate) fn new(socket: S, buffers: MemoryBudget, frame_max_bytes: usize) -> Self {
        Self {
            socket,
            held: Vec::new(),
            begun: None,
            grant: None,
            buffers,
            tenant: TenantId::default(),
            frame_max_bytes,
            out: Vec::new(),
            behind: None,
            sent: 0,
            _framing: PhantomData,
        }
    }

    /// Takes frames up to this size from now on, which count for `tenant`.
    pub(crate) fn allow(&mut self, tenant: &TenantId, frame_max_bytes: usize) {
        (self.tenant, self.frame_max_bytes) = (tenant.clone(), frame_max_bytes);
    }

    /// Waits for bytes and hands them to `take`, which answers how many it has taken.
    pub(crate) async fn read(&mut self, mut take: impl Take<F::Fault>) -> Result<Read, F::Fault> {
        poll_fn(|cx| self.poll_read(cx, &mut take)).await
    }

    /// The poll form of [`FramedIo::read`].
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut impl Take<F::Fault>,
    ) -> Poll<Result<Read, F::Fault>> {
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

    /// Holds more bytes. Room for them grows as that of any vector, but to no more than the frame that was announced.
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
    pub(crate) fn take_held(&mut self, take: &mut impl Take<F::Fault>) -> Result<(), F::Fault> {
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

    fn hold(&mut self, rest: &[u8]) -> Result<(), F::Fault> {
        self.held.extend_from_slice(rest);
        self.bound()
    }

    /// Counts the held bytes against the budget; a frame in part counts with its whole size.
    fn bound(&mut self) -> Result<(), F::Fault> {
        if self.held.is_empty() {
            (self.held, self.grant, self.begun) = (Vec::new(), None, None);
            return Ok(());
        }
        let size_bytes = match F::measure(&self.held, self.frame_max_bytes)? {
            Measured::Partial { size_bytes } => {
                self.begun.get_or_insert_with(Instant::now);
                size_bytes.unwrap_or(self.held.len())
            }
            Measured::Whole => {
                self.begun = None;
                self.held.len()
            }
        };
        let size_bytes = size_bytes.max(self.held.len());
        if self.grant.as_ref().is_none_or(|(_, granted)| *granted < size_bytes) {
            self.grant = None;
            let grant =
                self.buffers.take_for(&self.tenant, size_bytes as u64).ok_or_else(|| F::no_memory(size_bytes))?;
            self.grant = Some((grant, size_bytes));
        }
        Ok(())
    }

    /// True if there is something that could be taken without reading.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty() && self.begun.is_none()
    }

    /// The time since which the rest of a frame is awaited.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// It was not listened to: the rest of a frame may take as long again.
    pub(crate) fn excuse(&mut self) {
        self.begun = self.begun.map(|_| Instant::now());
    }

    /// Sends the buffered bytes within `limit`.
    pub(crate) async fn flush(&mut self, limit: Duration) -> Result<(), F::Fault> {
        if self.out.is_empty() {
            return Ok(());
        }
        // Mostly there is room in the socket, and nothing to wait for.
        if let Poll::Ready(sent) = poll_fn(|cx| Poll::Ready(self.poll_send(cx))).await {
            return Ok(sent?);
        }
        let sent = timeout(limit, poll_fn(|cx| self.poll_send(cx)));
        Ok(sent.await.map_err(|_| F::slow_reader(limit))??)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let Self { socket, out, behind, sent, .. } = self;
        let payload = behind.as_ref().map_or(&[][..], |message| F::payload(message));
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
    pub(crate) async fn close(&mut self) {
        // A client that is gone already has nothing to be told.
        let _ = timeout(Duration::from_secs(1), self.socket.shutdown()).await;
    }
}

#[cfg(test)]
impl<S, F: Framing> FramedIo<S, F> {
    pub(crate) fn held(&self) -> &Vec<u8> {
        &self.held
    }
}
