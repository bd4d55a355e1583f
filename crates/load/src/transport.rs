//! The stream of a generator's connection: plain TCP, or TLS over it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::RequestFailure;
use crate::target::{ClientTls, ServerTarget};

/// Timeout of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a TLS handshake. Thousands of devices may shake hands at once.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// An open stream to a server.
#[derive(Debug)]
pub(crate) enum ClientStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects, and shakes hands where the server is called by TLS.
pub(crate) async fn connect(target: &ServerTarget) -> Result<ClientStream, RequestFailure> {
    let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(&target.address)).await;
    let socket = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(RequestFailure::Connect)?;
    socket.set_nodelay(true).map_err(RequestFailure::Connect)?;
    let Some(ClientTls { connector, name }) = &target.tls else { return Ok(ClientStream::Plain(socket)) };
    let shaking = timeout(HANDSHAKE_TIMEOUT, connector.connect(name.clone(), socket)).await;
    let stream = shaking.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(RequestFailure::Connect)?;
    Ok(ClientStream::Tls(Box::new(stream)))
}

/// Hands a poll on to the variant at hand.
macro_rules! forward {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            ClientStream::Plain(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
            ClientStream::Tls(stream) => {
                let $inner = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        forward!(self, inner => inner.poll_read(cx, buf))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self, inner => inner.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, inner => inner.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, inner => inner.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, inner => inner.poll_shutdown(cx))
    }
}
