//! The stream of a connection: plain TCP, or TLS over it. A protocol reads and writes both in the same way.
//!
//! Invariants of a stream with TLS
//! - A write is reported once the system has taken all of it, as without TLS; so a client that does not read is noticed, and
//!   nothing waits for a flush. A writer whose write was pending comes back with the same bytes, or gives the stream up.
//! - A client that closes without the closing alert of TLS has closed: all our protocols know where their messages end.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::server::TlsStream;

/// A client's connection: TCP, with or without TLS.
#[derive(Debug)]
pub struct TransportStream(Transport);

#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsTransport>),
}

impl From<TcpStream> for TransportStream {
    fn from(socket: TcpStream) -> Self {
        Self(Transport::Plain(socket))
    }
}

impl From<TlsStream<TcpStream>> for TransportStream {
    fn from(stream: TlsStream<TcpStream>) -> Self {
        Self(Transport::Tls(Box::new(TlsTransport { stream, unreported_bytes: 0 })))
    }
}

impl TransportStream {
    /// The address that the client has connected to.
    ///
    /// # Errors
    /// The error of the system; the connection is closed then.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Transport::Plain(socket) => socket.local_addr(),
            Transport::Tls(tls) => tls.stream.get_ref().0.local_addr(),
        }
    }

    /// True if the client speaks TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self.0, Transport::Tls(_))
    }

    /// The server name that the client has asked for in its TLS handshake.
    pub fn server_name(&self) -> Option<&str> {
        match &self.0 {
            Transport::Plain(_) => None,
            Transport::Tls(tls) => tls.stream.get_ref().1.server_name(),
        }
    }

    /// The name of the cipher suite of its TLS session, as RFC 8446 and RFC 5289 write it.
    pub(crate) fn cipher_suite(&self) -> Option<&'static str> {
        let Transport::Tls(tls) = &self.0 else { return None };
        let name = tls.stream.get_ref().1.negotiated_cipher_suite()?.suite().as_str()?;
        // The library marks the suites of TLS 1.3 in their names.
        Some(match name {
            "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
            "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
            "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
            name => name,
        })
    }

    /// Splits the stream, so that one task can read while another writes.
    pub fn into_split(self) -> (TransportReadHalf, TransportWriteHalf) {
        match self.0 {
            Transport::Plain(socket) => {
                let (reading, writing) = socket.into_split();
                (TransportReadHalf(Reading::Plain(reading)), TransportWriteHalf(Writing::Plain(writing)))
            }
            Transport::Tls(tls) => {
                let (reading, writing) = tokio::io::split(*tls);
                (TransportReadHalf(Reading::Tls(reading)), TransportWriteHalf(Writing::Tls(writing)))
            }
        }
    }
}

/// The half of a stream that is read.
#[derive(Debug)]
pub struct TransportReadHalf(Reading);

#[derive(Debug)]
enum Reading {
    Plain(OwnedReadHalf),
    Tls(ReadHalf<TlsTransport>),
}

/// The half of a stream that is written.
#[derive(Debug)]
pub struct TransportWriteHalf(Writing);

#[derive(Debug)]
enum Writing {
    Plain(OwnedWriteHalf),
    Tls(WriteHalf<TlsTransport>),
}

impl TransportWriteHalf {
    /// The socket, if what is written to it goes out as it is.
    pub fn as_tcp(&self) -> Option<&TcpStream> {
        match &self.0 {
            Writing::Plain(socket) => Some(socket.as_ref()),
            Writing::Tls(_) => None,
        }
    }
}

/// Hands a poll on to the variant at hand.
macro_rules! forward {
    ($type:ident, $transport:expr, $inner:ident => $call:expr) => {
        match $transport {
            $type::Plain($inner) => {
                let $inner = Pin::new($inner);
                $call
            }
            $type::Tls($inner) => {
                let $inner = Pin::new($inner);
                $call
            }
        }
    };
}

impl AsyncRead for TransportStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        forward!(Transport, &mut self.0, inner => inner.poll_read(cx, buf))
    }
}

impl AsyncRead for TransportReadHalf {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        forward!(Reading, &mut self.0, inner => inner.poll_read(cx, buf))
    }
}

macro_rules! forward_writes {
    ($stream:ident, $variants:ident) => {
        impl AsyncWrite for $stream {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                forward!($variants, &mut self.0, inner => inner.poll_write(cx, buf))
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                forward!($variants, &mut self.0, inner => inner.poll_write_vectored(cx, slices))
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                forward!($variants, &mut self.0, inner => inner.poll_flush(cx))
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                forward!($variants, &mut self.0, inner => inner.poll_shutdown(cx))
            }
        }
    };
}

forward_writes!(TransportStream, Transport);
forward_writes!(TransportWriteHalf, Writing);

/// TLS over TCP. Dropping it says goodbye to the client, if the socket takes that at once.
#[derive(Debug)]
struct TlsTransport {
    stream: TlsStream<TcpStream>,
    /// Bytes that the session has taken from a write that was reported as pending, because the socket did not take them yet.
    unreported_bytes: usize,
}

impl TlsTransport {
    /// Reports a write once the socket has taken it. `length` is that of the bytes offered, of which `write` takes some.
    fn poll_through(
        &mut self,
        cx: &mut Context<'_>,
        length: usize,
        write: impl FnOnce(Pin<&mut TlsStream<TcpStream>>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.unreported_bytes == 0 {
            self.unreported_bytes = ready!(write(Pin::new(&mut self.stream), cx))?;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        let written = std::mem::take(&mut self.unreported_bytes);
        if written > length {
            return Poll::Ready(Err(io::Error::other("a pending write was followed by another one")));
        }
        Poll::Ready(Ok(written))
    }
}

impl AsyncRead for TlsTransport {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.stream).poll_read(cx, buf)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
        }
    }
}

impl AsyncWrite for TlsTransport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_through(cx, buf.len(), |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        self.poll_through(cx, length, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for TlsTransport {
    fn drop(&mut self) {
        let (socket, session) = self.stream.get_mut();
        session.send_close_notify();
        // Without it a client could not tell the end of the connection from a cut. If the socket is full or gone, it has to.
        while session.wants_write() && session.write_tls(&mut AtOnce(socket)).is_ok_and(|written| written > 0) {}
    }
}

/// A socket that takes what it can without waiting.
struct AtOnce<'a>(&'a TcpStream);

impl io::Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
