//! A connection to a receiver, plain or over TLS.
//!
//! There is no background work: bytes move only when the caller writes, reads or waits, like on a non-blocking socket.

use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::address::Address;
use crate::attempt::Failed;
use crate::rules::Outgoing;

const READ_BYTES: usize = 1_024;

/// Connects to an allowed address of the receiver.
///
/// # Errors
/// The host is unknown, not allowed, or does not answer.
pub async fn dial(address: &Address, outgoing: &Outgoing) -> Result<TcpStream, Failed> {
    let found = tokio::net::lookup_host((address.host.as_str(), address.port)).await;
    let found: Vec<_> = found.map_err(|error| Failed::unreached(format!("unknown host: {error}")))?.collect();
    let found = outgoing.targets.among(&address.host, found).map_err(Failed::unreached)?;
    let tcp = TcpStream::connect(&found[..]).await;
    let tcp = tcp.map_err(|error| Failed::unreached(format!("no connection: {error}")))?;
    let _ = tcp.set_nodelay(true);
    Ok(tcp)
}

/// The authorities that are trusted in TLS with the receiver, and the name that its certificate must have.
///
/// # Errors
/// TLS cannot be set up.
pub fn tls_to(address: &Address, outgoing: &Outgoing) -> Result<(Arc<ClientConfig>, ServerName<'static>), Failed> {
    let name = ServerName::try_from(address.host.clone()).map_err(tls_refused)?;
    Ok((outgoing.trust.config().map_err(tls_refused)?, name))
}

/// The failure of a handshake.
pub fn tls_refused(why: impl Display) -> Failed {
    Failed::unreached(format!("TLS refused: {why}"))
}

/// A connection, plain or over TLS.
pub struct Socket {
    tcp: TcpStream,
    session: Option<Box<Mutex<ClientConnection>>>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Socket({:?})", self.tcp)
    }
}

impl Socket {
    /// Connects to an allowed address of the receiver; with TLS checks its certificate.
    ///
    /// # Errors
    /// The receiver is not reached, or its certificate is not trusted.
    pub async fn connect(address: &Address, outgoing: &Outgoing) -> Result<Self, Failed> {
        let tcp = dial(address, outgoing).await?;
        if !address.is_tls {
            return Ok(Self::plain(tcp));
        }
        let (session, name) = tls_to(address, outgoing)?;
        let session = ClientConnection::new(session, name).map_err(tls_refused)?;
        let socket = Self { tcp, session: Some(Box::new(Mutex::new(session))) };
        socket.shake_hands().await.map_err(tls_refused)?;
        Ok(socket)
    }

    fn plain(tcp: TcpStream) -> Self {
        Self { tcp, session: None }
    }

    async fn shake_hands(&self) -> io::Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        loop {
            let shaken = session.lock().complete_io(&mut Tcp(&self.tcp));
            match shaken {
                Err(error) if error.kind() == ErrorKind::WouldBlock => drop(self.wait(false).await?),
                Err(error) => return Err(error),
                Ok(_) if !session.lock().is_handshaking() => return Ok(()),
                Ok(_) => {}
            }
        }
    }

    /// Writes as much as possible without waiting. TLS may still hold accepted bytes:
    /// [`Socket::ready`] and [`Socket::try_read`] send them.
    ///
    /// # Errors
    /// The connection is broken, or takes no bytes now.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &self.session else { return self.tcp.try_write(bytes) };
        let mut session = session.lock();
        let taken = session.writer().write(bytes)?;
        let is_sent = self.try_send(&mut session)?;
        if taken == 0 && !is_sent && !bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Reads the available bytes; 0 at the end.
    ///
    /// # Errors
    /// The connection is broken, or has no bytes now.
    pub fn try_read(&self, room: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.session else { return self.tcp.try_read(room) };
        let mut session = session.lock();
        loop {
            self.try_send(&mut session)?;
            match session.reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The receiver closed the connection without a TLS alert.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            session.read_tls(&mut Tcp(&self.tcp))?;
            let state = session.process_new_packets();
            state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }

    /// Waits until the socket is readable.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn readable(&self) -> io::Result<()> {
        while !self.wait(false).await? {}
        Ok(())
    }

    /// Waits until the socket is readable or writable; returns true if it is readable.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn ready(&self) -> io::Result<bool> {
        self.wait(true).await
    }

    async fn wait(&self, for_room: bool) -> io::Result<bool> {
        let mut wants_room = for_room;
        if let Some(session) = &self.session {
            let mut session = session.lock();
            let state = session.process_new_packets();
            let state = state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            if state.plaintext_bytes_to_read() > 0 {
                return Ok(true);
            }
            wants_room = !self.try_send(&mut session)?;
            if for_room && !wants_room {
                return Ok(false);
            }
        }
        let interest = if wants_room { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        Ok(self.tcp.ready(interest).await?.is_readable())
    }

    /// Sends the bytes that TLS holds, as far as possible; returns true if all are sent.
    fn try_send(&self, session: &mut ClientConnection) -> io::Result<bool> {
        match self.send(session) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            sent => sent.map(|()| true),
        }
    }

    /// Sends the bytes that TLS holds.
    fn send(&self, session: &mut ClientConnection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut Tcp(&self.tcp))?;
        }
        Ok(())
    }

    /// The connection is open. Unrequested bytes make it useless, too.
    pub fn is_open(&self) -> bool {
        matches!(self.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.try_write(bytes) {
                Ok(taken) => bytes = &bytes[taken..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => drop(self.ready().await?),
                Err(error) => return Err(error),
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Appends received bytes to `read`; 0 at the end.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn read_buf(&self, read: &mut BytesMut) -> io::Result<usize> {
        let mut room = [0; READ_BYTES];
        loop {
            match self.try_read(&mut room) {
                Ok(count) => {
                    read.put_slice(&room[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable().await?,
                Err(error) => return Err(error),
            }
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(tcp: TcpStream) -> Self {
        Self::plain(tcp)
    }
}

/// The socket as the reader and writer of TLS.
struct Tcp<'a>(&'a TcpStream);

impl Read for Tcp<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(room)
    }
}

impl Write for Tcp<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
