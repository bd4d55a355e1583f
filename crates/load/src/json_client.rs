//! An HTTP client that sends JSON requests one after the other.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::websocket::{PATIENCE, read_head};

/// A client with one keep-alive HTTP connection.
#[derive(Debug)]
pub struct JsonClient {
    socket: BufReader<TcpStream>,
    address: SocketAddr,
}

impl JsonClient {
    /// Connects to the server at `address`.
    ///
    /// # Errors
    /// The connection cannot be opened.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket: BufReader::new(socket), address })
    }

    /// Sends `body` to `path`, or no body for `Value::Null`, and
    /// returns the body of the response; `Value::Null` if it is empty.
    ///
    /// # Errors
    /// The connection fails, the status is not 2xx, or the body is not JSON.
    pub fn send(&mut self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
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
        if !head.starts_with("HTTP/1.1 2") {
            let line = head.lines().next().unwrap_or_default();
            let answer = String::from_utf8_lossy(&answer);
            return Err(io::Error::other(format!("{method} {path} was answered with {line}: {answer}")));
        }
        if answer.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&answer).map_err(io::Error::other) }
    }
}
