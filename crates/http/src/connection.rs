//! One connection: hyper's HTTP/1 state machine, and beside it a watch that closes it when its peer is too slow.
//!
//! ```text
//!   Idle ──first byte of a head──► Head ──head complete──► Busy ──end of the answer's body──► Idle
//! ```
//!
//! The watch is one timer for each connection that fires every few seconds and reads the pulse; a request arms none.
//! A new connection begins in `Head`: who connects and says nothing gets no more time than who sends a slow head.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::ListenerLimits;
use crate::context::Stage;
use crate::rim::Rim;

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
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            phase: AtomicU8::new(HEAD),
            since_ns: AtomicU64::new(0),
            wrote: AtomicBool::new(false),
            write_blocked: AtomicBool::new(false),
        }
    }

    /// A head is complete; returns the time.
    pub(crate) fn begin_request(&self) -> Instant {
        self.enter(BUSY)
    }

    /// The answer's body has been handed over whole, or dropped.
    pub(crate) fn end_request(&self) {
        self.enter(IDLE);
    }

    fn enter(&self, phase: u8) -> Instant {
        let now = Instant::now();
        self.since_ns.store((now - self.born).as_nanos() as u64, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
        now
    }

    fn on_read(&self) {
        if self.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(HEAD);
        }
    }

    /// Judges the peer at `now`: when to look again, or `None` if its time is up.
    fn judge(&self, now: Instant, limits: &ListenerLimits) -> Option<Instant> {
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
    let watched = TokioIo::new(Watched { socket, pulse: pulse.clone() });
    let service = service_fn(|request| {
        let (rim, pulse) = (&rim, &pulse);
        async move { Ok::<_, std::convert::Infallible>(rim.handle(peer, pulse, request).await) }
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
    let mut look = std::pin::pin!(sleep_until(pulse.born + rim.limits.head_timeout()));
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "connection ended");
                }
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
                if changed.is_err() || *stage.borrow_and_update() == Stage::Closing {
                    return;
                }
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// A socket that notes on the pulse when bytes pass.
struct Watched {
    socket: TcpStream,
    pulse: Arc<Pulse>,
}

impl Watched {
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
        let before = buf.filled().len();
        let result = ready!(Pin::new(&mut self.socket).poll_read(cx, buf));
        if buf.filled().len() > before {
            self.pulse.on_read();
        }
        Poll::Ready(result)
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
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
