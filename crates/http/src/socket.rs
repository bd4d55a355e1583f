//! The socket of a connection: records its reads and writes, escapes request lines, and refuses heads without memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use millstream_net::TransportStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Problem;
use crate::activity::ConnectionActivity;
use crate::memory::HEAD_FREE_BYTES;
use crate::pipeline::Pipeline;

/// Characters that a URI may not contain but some clients send unescaped.
const UNESCAPED: &[u8] = b"<>\"`";

/// A socket that records its reads and writes in the connection's activity.
pub(crate) struct MonitoredSocket {
    pub(crate) socket: TransportStream,
    /// Bytes that were read before hyper took over.
    pub(crate) rest: Bytes,
    /// The next bytes belong to a request line.
    pub(crate) in_request_line: bool,
    pub(crate) activity: Arc<ConnectionActivity>,
    pub(crate) pipeline: Arc<Pipeline>,
    /// The peer's head was refused for lack of memory; its further bytes are discarded.
    pub(crate) dismissed: bool,
}

impl MonitoredSocket {
    /// Reads at most [`HEAD_FREE_BYTES`] at once, because hyper's buffer grows with the size of a read.
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

    /// Percent-encodes the unescaped characters of a request line. hyper would close the connection without an answer.
    fn escape(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let new = &buf.filled()[before..];
        let line = new.iter().position(|byte| *byte == b'\n').unwrap_or(new.len());
        self.in_request_line = line == new.len();
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

    /// Reads without recording the activity; the caller records it.
    pub(crate) fn poll_raw(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }

    /// Sends the refusal of a head and closes the sending half, unless an answer is still being sent.
    fn dismiss(&mut self, problem: &Problem, cx: &mut Context<'_>) {
        self.dismissed = true;
        if !self.activity.is_write_blocked() {
            // If the socket's buffer is full, the connection ends without the text.
            let _ = Pin::new(&mut self.socket).poll_write(cx, problem.closing_answer().as_bytes());
            let _ = Pin::new(&mut self.socket).poll_shutdown(cx);
        }
    }

    /// Discards received bytes until the peer closes or times out. Closing first could reset the connection before
    /// the peer reads the text.
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
}

impl AsyncRead for MonitoredSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.dismissed {
            return self.poll_rest(cx);
        }
        let before = buf.filled().len();
        if ready!(self.poll_some(cx, buf))? == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.in_request_line || self.activity.is_idle() {
            self.escape(buf, before);
        }
        let read = buf.filled().len() - before;
        let admitted = self.activity.on_read(read, self.pipeline.memory.as_ref(), &self.pipeline.limits);
        let Err(problem) = admitted else { return Poll::Ready(Ok(())) };
        buf.set_filled(before);
        self.dismiss(&problem, cx);
        self.poll_rest(cx)
    }
}

impl AsyncWrite for MonitoredSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.activity.on_write(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.activity.on_write(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.activity.lingers() {
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            if !self.activity.has_unread_body() {
                return Poll::Ready(Ok(()));
            }
            self.activity.linger();
        }
        self.poll_rest(cx)
    }
}
