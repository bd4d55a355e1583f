//! A client that runs many live queries over one WebSocket.

use std::io::{self, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
/// The key is the example of the RFC; the client does not check the server's proof.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The sending half of a WebSocket.
#[derive(Debug)]
pub struct WebSocketSender(TcpStream);

/// The receiving half of a WebSocket.
#[derive(Debug)]
pub struct WebSocketReceiver(BufReader<TcpStream>);

/// Reads the head of a response, including its empty line.
pub(crate) fn read_head(socket: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Opens a WebSocket at this path.
///
/// # Errors
/// The connection fails, or the server does not switch to WebSocket.
pub fn open(address: SocketAddr, path: &str) -> io::Result<(WebSocketSender, WebSocketReceiver)> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    );
    socket.write_all(request.as_bytes())?;
    let mut received = BufReader::with_capacity(256 << 10, socket.try_clone()?);
    let head = read_head(&mut received)?;
    if !head.starts_with("HTTP/1.1 101") {
        let line = head.lines().next().unwrap_or_default();
        return Err(io::Error::other(format!("{path} was answered with {line:?} and not with a WebSocket")));
    }
    Ok((WebSocketSender(socket), WebSocketReceiver(received)))
}

impl WebSocketSender {
    /// Sends all messages in one write.
    ///
    /// # Errors
    /// The connection breaks during the write.
    pub fn send<'m>(&mut self, messages: impl IntoIterator<Item = &'m str>) -> io::Result<()> {
        let mut frames = Vec::new();
        for message in messages {
            frames.push(0x80 | TEXT);
            match message.len() {
                short @ 0..126 => frames.push(0x80 | short as u8),
                medium @ 126..=0xffff => {
                    frames.push(0x80 | 126);
                    frames.extend_from_slice(&(medium as u16).to_be_bytes());
                }
                long => {
                    frames.push(0x80 | 127);
                    frames.extend_from_slice(&(long as u64).to_be_bytes());
                }
            }
            // A mask of zeros leaves the text unchanged.
            frames.extend_from_slice(&[0; 4]);
            frames.extend_from_slice(message.as_bytes());
        }
        self.0.write_all(&frames)
    }

    /// Closes the connection for both halves.
    pub fn close(&self) {
        // The connection may be closed already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl WebSocketReceiver {
    /// Reads the next message; `None` once the connection is closed.
    ///
    /// # Errors
    /// The connection fails, or a message is not JSON.
    pub fn receive(&mut self) -> io::Result<Option<Value>> {
        loop {
            let mut head = [0; 2];
            match self.0.read_exact(&mut head) {
                Err(end) if matches!(end.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                    return Ok(None);
                }
                other => other?,
            }
            let length = match head[1] & 0x7f {
                126 => u64::from(u16::from_be_bytes(self.array()?)),
                127 => u64::from_be_bytes(self.array()?),
                short => u64::from(short),
            };
            let mut message = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
            self.0.read_exact(&mut message)?;
            match head[0] & 0x0f {
                TEXT => return serde_json::from_slice(&message).map(Some).map_err(io::Error::other),
                CLOSE => return Ok(None),
                _ => {}
            }
        }
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
