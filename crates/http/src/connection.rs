//! One connection: hyper's HTTP/1 state machine, and beside it a watch that closes it when its peer is too slow.
//!
//! ```text
//!   Idle ──first byte of a head──► Head ──head complete──► Busy ──end of the answer's body──► Idle
//! ```
//!
//! Where routes take plain requests, these come first, without hyper: see [`plain`].
//!
//! The watch is one timer for each connection that fires every few seconds and reads the pulse; a request arms none.
//! A new connection begins in `Head`: who connects and says nothing gets no more time than who sends a slow head.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use millstream_types::Grant;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::arriving::Arriving;
use crate::context::Stage;
use crate::listener::farewell;
use crate::memory::{HEAD_FREE_BYTES, no_memory};
use crate::plain::{self, Onward};
use crate::rim::Rim;
use crate::{ListenerLimits, Problem};

/// What a URI may not have, and what clients send in it that do not escape.
const UNESCAPED: &[u8] = b"<>\"`";

const HEAD: u8 = 0;
const BUSY: u8 = 1;
const IDLE: u8 = 2;

/// What a connection is doing, since when. Written by its own task, so the order of relaxed stores is its own.
pub(crate) struct Pulse {
    born: Instant,
    phase: AtomicU8,
    /// Start of the phase, nanoseconds after `born`.
    since_ns: AtomicU64,
    /// Bytes have left since the watch last looked.
    wrote: AtomicBool,
    /// The peer's window is full.
    write_blocked: AtomicBool,
    /// Bytes that have arrived of the head.
    head_bytes: AtomicUsize,
    /// The last request's body was let go before its end.
    has_unread: AtomicBool,
    /// All is said, and what the peer still sends of that body is thrown away.
    lingers: AtomicBool,
    /// The memory of a head that is larger than others.
    head_memory: Mutex<Option<Grant>>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            phase: AtomicU8::new(HEAD),
            since_ns: AtomicU64::new(0),
            wrote: AtomicBool::new(false),
            write_blocked: AtomicBool::new(false),
            head_bytes: AtomicUsize::new(0),
            has_unread: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            head_memory: Mutex::new(None),
        }
    }

    /// A head is complete; returns the time.
    pub(crate) fn begin_request(&self) -> Instant {
        self.head_bytes.store(0, Ordering::Relaxed);
        self.has_unread.store(false, Ordering::Relaxed);
        self.enter(BUSY)
    }

    /// The answer's body has been handed over whole, or dropped.
    pub(crate) fn end_request(&self) {
        drop(self.head_memory.lock().take());
        self.enter(IDLE);
    }

    /// The answer to a request that has needed no memory of its own has gone.
    pub(crate) fn rest(&self, now: Instant) {
        self.enter_at(IDLE, now);
    }

    /// A request's body is not read to its end. Where its rest has come already, another request may follow.
    pub(crate) fn leave_unread(&self) {
        self.has_unread.store(true, Ordering::Relaxed);
    }

    /// When to look first.
    pub(crate) fn look(&self, limits: &ListenerLimits) -> Instant {
        self.born + limits.head_timeout()
    }

    fn enter(&self, phase: u8) -> Instant {
        let now = Instant::now();
        self.enter_at(phase, now);
        now
    }

    fn enter_at(&self, phase: u8, now: Instant) {
        self.since_ns.store((now - self.born).as_nanos() as u64, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Bytes have arrived. Whether there is memory for them: a head that is larger than others needs some of its own.
    fn on_read(&self, bytes: usize, rim: &Rim) -> Result<(), Problem> {
        if self.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(HEAD);
        }
        let before = self.head_bytes.load(Ordering::Relaxed);
        let Some(memory) = rim.memory.as_ref().filter(|_| self.phase.load(Ordering::Relaxed) == HEAD) else {
            return Ok(());
        };
        self.head_bytes.store(before + bytes, Ordering::Relaxed);
        // What has arrived just now may end the head and begin the body.
        if before <= HEAD_FREE_BYTES {
            return Ok(());
        }
        let mut held = self.head_memory.lock();
        if held.is_none() {
            let size = rim.limits.buffer_max_bytes() as u64;
            *held = Some(memory.take(size).ok_or_else(|| no_memory("a head", size, memory))?);
        }
        Ok(())
    }

    /// Judges the peer at `now`: when to look again, or `None` if its time is up.
    pub(crate) fn judge(&self, now: Instant, limits: &ListenerLimits) -> Option<Instant> {
        let wrote = self.wrote.swap(false, Ordering::Relaxed);
        let stalled = self.write_blocked.load(Ordering::Relaxed) && !wrote;
        let since = self.born + Duration::from_nanos(self.since_ns.load(Ordering::Relaxed));
        let up = match self.phase.load(Ordering::Relaxed) {
            HEAD => since + limits.head_timeout(),
            // A long answer may still be leaving the socket's buffer.
            IDLE if !wrote => since + limits.idle_timeout(),
            // The handler has its deadline; a peer that takes nothing has one look's time.
            BUSY if stalled => now,
            _ => now + limits.head_timeout(),
        };
        let look_again = up.min(now + limits.head_timeout());
        (up > now).then_some(look_again)
    }
}

/// Serves a connection until it ends by itself, its peer is too slow, or the listener closes.
pub(crate) async fn serve(socket: TcpStream, peer: SocketAddr, rim: Arc<Rim>, mut stage: watch::Receiver<Stage>) {
    let pulse = Arc::new(Pulse::new());
    let (rest, dismissed) = (Bytes::new(), false);
    let mut socket = Watched { socket, rest, in_line: true, pulse: pulse.clone(), rim: rim.clone(), dismissed };
    if rim.api.takes_plain {
        match plain::serve(&mut socket, peer, (pulse.clone(), &rim), &stage).await {
            Onward::Over => return,
            Onward::With(rest) => socket.rest = rest,
        }
    }
    let watched = TokioIo::new(socket);
    let service = service_fn(|request: Request<Incoming>| {
        let (rim, pulse) = (&rim, &pulse);
        async move {
            let request = request.map(|body| Arriving::new(body, pulse.clone()));
            Ok::<_, std::convert::Infallible>(rim.handle(peer, pulse, request).await)
        }
    });
    let connection = http1::Builder::new()
        .half_close(false)
        .header_read_timeout(None)
        .max_buf_size(rim.limits.buffer_max_bytes())
        // hyper copies what it has taken of an answer: pieces that it kept would hold the whole of it in memory.
        .writev(false)
        .serve_connection(watched, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut look = std::pin::pin!(sleep_until(pulse.look(&rim.limits)));
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "connection ended");
                }
                // One that was upgraded lives on, and nothing that comes through it is a head.
                pulse.begin_request();
                return;
            }
            () = look.as_mut() => match pulse.judge(Instant::now(), &rim.limits) {
                Some(next) => look.as_mut().reset(next),
                None => {
                    tracing::debug!(%peer, "connection closed: its peer is idle or too slow");
                    return;
                }
            },
            changed = stage.changed() => {
                let is_over = pulse.lingers.load(Ordering::Relaxed);
                if is_over || changed.is_err() || *stage.borrow_and_update() == Stage::Closing {
                    return;
                }
                // A listener that stops waits for answers only.
                pulse.has_unread.store(false, Ordering::Relaxed);
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// A socket that notes on the pulse when bytes pass.
pub(crate) struct Watched {
    socket: TcpStream,
    /// What has been read of it already.
    rest: Bytes,
    /// What comes next is of the first line of a request.
    in_line: bool,
    pulse: Arc<Pulse>,
    rim: Arc<Rim>,
    /// The peer has been told that there is no memory for its head; what it still sends is thrown away.
    dismissed: bool,
}

impl Watched {
    /// Reads no more at once than the connection counts as: hyper's buffer grows with what a read gives.
    fn poll_some(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let before = buf.filled().len();
        if !self.rest.is_empty() {
            let size = self.rest.len().min(buf.remaining()).min(HEAD_FREE_BYTES - 1);
            buf.put_slice(&self.rest.split_to(size));
            return Poll::Ready(Ok(size));
        }
        if buf.remaining() <= HEAD_FREE_BYTES {
            ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
            return Poll::Ready(Ok(buf.filled().len() - before));
        }
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(HEAD_FREE_BYTES - 1));
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buf.advance(read);
        Poll::Ready(Ok(read))
    }

    /// Writes in a request's first line, if it is that which has come, what clients leave as it is though a URI may not
    /// have it, as a URI has it: hyper would end the connection without a word.
    fn escape(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let new = &buf.filled()[before..];
        let line = new.iter().position(|byte| *byte == b'\n').unwrap_or(new.len());
        self.in_line = line == new.len();
        if !new[..line].iter().any(|byte| UNESCAPED.contains(byte)) {
            return;
        }
        let mut escaped = Vec::with_capacity(new.len() + 2 * line + self.rest.len());
        for byte in &new[..line] {
            match UNESCAPED.contains(byte) {
                true => escaped.extend_from_slice(format!("%{byte:02X}").as_bytes()),
                false => escaped.push(*byte),
            }
        }
        escaped.extend_from_slice(&new[line..]);
        escaped.extend_from_slice(&self.rest);
        buf.set_filled(before);
        let fitting = escaped.len().min(buf.remaining()).min(HEAD_FREE_BYTES - 1);
        buf.put_slice(&escaped[..fitting]);
        self.rest = Bytes::from(escaped).split_off(fitting);
    }

    /// Reads past the pulse, for whoever keeps that himself.
    pub(crate) fn poll_raw(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }

    /// Tells the peer why its head is not read any further. An answer that is on its way is not broken into.
    fn dismiss(&mut self, problem: &Problem, cx: &mut Context<'_>) {
        self.dismissed = true;
        if !self.pulse.write_blocked.load(Ordering::Relaxed) {
            // A socket whose buffer has no room for it ends without the text.
            let _ = self.socket.try_write(farewell(problem).as_bytes());
            let _ = Pin::new(&mut self.socket).poll_shutdown(cx);
        }
    }

    /// Throws away what comes until the peer has closed or its time is up: closing first could cost it the text.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut rest = [0; 4096];
        loop {
            let mut rest = ReadBuf::new(&mut rest);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut rest))?;
            if rest.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn note_write(&self, polled: &Poll<io::Result<usize>>) {
        let was_blocked = self.pulse.write_blocked.swap(polled.is_pending(), Ordering::Relaxed);
        // A peer that has just begun to block has until the look after the next one.
        if polled.is_ready() || !was_blocked {
            self.pulse.wrote.store(true, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.dismissed {
            return self.poll_rest(cx);
        }
        let before = buf.filled().len();
        if ready!(self.poll_some(cx, buf))? == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.in_line || self.pulse.phase.load(Ordering::Relaxed) == IDLE {
            self.escape(buf, before);
        }
        let read = buf.filled().len() - before;
        let admitted = self.pulse.on_read(read, &self.rim);
        let Err(problem) = admitted else { return Poll::Ready(Ok(())) };
        buf.set_filled(before);
        self.dismiss(&problem, cx);
        self.poll_rest(cx)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.note_write(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.note_write(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.pulse.lingers.load(Ordering::Relaxed) {
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            if !self.pulse.has_unread.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            self.pulse.lingers.store(true, Ordering::Relaxed);
            // It has as long for that as for a head.
            self.pulse.enter(HEAD);
        }
        self.poll_rest(cx)
    }
}
