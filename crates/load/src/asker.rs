//! A client that asks many live queries over one WebSocket, and hears what they give.

use std::io::{self, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long an answer may take: beyond it something is broken.
const PATIENCE: Duration = Duration::from_secs(120);
const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
/// The key is the handshake's example; the server's proof is not checked.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The end that asks.
#[derive(Debug)]
pub struct Asker(TcpStream);

/// The end that hears.
#[derive(Debug)]
pub struct Hearer(BufReader<TcpStream>);

/// A connection that asks one query after the other and waits for each answer.
#[derive(Debug)]
pub struct Waiter {
    socket: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Waiter {
    /// Connects to `address`.
    ///
    /// # Errors
    /// The connection fails.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket: BufReader::new(socket), address })
    }

    /// Posts `body` to `path`; the answer's body.
    ///
    /// # Errors
    /// The connection fails, or the answer is a refusal or no JSON.
    pub fn post(&mut self, path: &str, body: &Value) -> io::Result<Value> {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.socket.get_mut().write_all(request.as_bytes())?;
        let head = read_head(&mut self.socket)?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let mut answer = vec![0; length.unwrap_or(0)];
        self.socket.read_exact(&mut answer)?;
        if !head.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(format!("{path} was refused: {}", String::from_utf8_lossy(&answer))));
        }
        serde_json::from_slice(&answer).map_err(io::Error::other)
    }
}

/// The head of an answer, with its empty line.
fn read_head(socket: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Opens a WebSocket at `path`.
///
/// # Errors
/// The connection fails, or the answer is no switch to WebSocket.
pub fn open(address: SocketAddr, path: &str) -> io::Result<(Asker, Hearer)> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    );
    socket.write_all(request.as_bytes())?;
    let mut heard = BufReader::with_capacity(256 << 10, socket.try_clone()?);
    let head = read_head(&mut heard)?;
    if !head.starts_with("HTTP/1.1 101") {
        let line = head.lines().next().unwrap_or_default();
        return Err(io::Error::other(format!("{path} was answered with {line:?} and not with a WebSocket")));
    }
    Ok((Asker(socket), Hearer(heard)))
}

impl Asker {
    /// Sends messages, all at once.
    ///
    /// # Errors
    /// The connection fails.
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
            // A mask of zeros changes nothing.
            frames.extend_from_slice(&[0; 4]);
            frames.extend_from_slice(message.as_bytes());
        }
        self.0.write_all(&frames)
    }

    /// Ends the connection, for the hearer too.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl Hearer {
    /// The next message; `None` once the connection is closed.
    ///
    /// # Errors
    /// The connection fails, or a message is no JSON.
    pub fn hear(&mut self) -> io::Result<Option<Value>> {
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
