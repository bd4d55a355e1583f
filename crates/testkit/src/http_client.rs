//! A client of HTTP with one request a connection, which reads an answer as it is sent.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::PATIENCE;

/// The header that names the tenant of a request.
const TENANT: &str = "Fiware-Service";

/// The address that requests go to, and the tenant that they name.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The address of the listener.
    pub address: SocketAddr,
    /// The value of `Fiware-Service` where a request does not bring its own; `None` sends none.
    pub tenant: Option<&'static str>,
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { address, tenant: None }
    }
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Names and values of the headers, in order.
    pub headers: Vec<(String, String)>,
    /// The body, whole.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Opens a connection and sends a request; the answer is the caller's to read.
pub(crate) fn request(
    to: impl Into<Target>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> BufReader<TcpStream> {
    try_request(to.into(), method, path, headers, body).unwrap()
}

fn try_request(
    Target { address, tenant }: Target,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<BufReader<TcpStream>> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    if !headers.iter().any(|(name, _)| *name == "Connection") {
        head.push_str("Connection: close\r\n");
    }
    let names_tenant = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(TENANT));
    let tenant = tenant.filter(|_| !names_tenant).map(|tenant| (TENANT, tenant));
    for (name, value) in headers.iter().copied().chain(tenant) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    socket.write_all(head.as_bytes())?;
    socket.write_all(body)?;
    Ok(BufReader::new(socket))
}

/// The status of the answer; `None` if the server goes before it is complete.
pub fn status(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<u16> {
    let mut answer = String::new();
    try_request(to.into(), method, path, headers, body).ok()?.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n")?.0.split(' ').nth(1)?.parse().ok()
}

/// The whole answer; `None` if the server goes before it is complete.
pub fn try_ask(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
    let mut bytes = Vec::new();
    try_request(to.into(), method, path, headers, body).ok()?.read_to_end(&mut bytes).ok()?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (status, headers) = read_head(&mut &bytes[..end + 4]);
    Some(Answer { status, headers, body: bytes[end + 4..].to_vec() })
}

/// Reads status and headers of an answer.
pub fn read_head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
    let split = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    (status, lines[1..].iter().filter_map(split).collect())
}

/// Sends a request; the answer's head, and a reader of the rest.
pub fn open(
    to: impl Into<Target>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (u16, Vec<(String, String)>, BufReader<TcpStream>) {
    let mut reader = request(to, method, path, headers, body);
    let (status, headers) = read_head(&mut reader);
    (status, headers, reader)
}

/// Sends a request over a connection of its own and waits for the whole answer.
pub fn ask(to: impl Into<Target>, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut reader = request(to, method, path, headers, body);
    let (status, headers) = read_head(&mut reader);
    let mut body = Vec::new();
    let chunked =
        headers.iter().any(|(name, value)| name.eq_ignore_ascii_case("transfer-encoding") && value == "chunked");
    if chunked {
        while let Some(chunk) = read_chunk(&mut reader) {
            body.extend_from_slice(&chunk);
        }
    } else {
        reader.read_to_end(&mut body).unwrap();
    }
    Answer { status, headers, body }
}

/// The next chunk of a chunked answer; `None` at its end.
pub(crate) fn read_chunk(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut size = String::new();
    reader.read_line(&mut size).unwrap();
    let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
    let mut chunk = vec![0; size + 2];
    reader.read_exact(&mut chunk).unwrap();
    chunk.truncate(size);
    (size > 0).then_some(chunk)
}
