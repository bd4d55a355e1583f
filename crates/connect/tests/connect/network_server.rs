//! A network server that takes commands over HTTP, and answers as a test wants.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A request that has arrived.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Downlink {
    /// Method and target.
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Downlink {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
struct Taken {
    requests: Vec<Downlink>,
    /// The next answers; `None` hangs. Once they are used up, each answer is 200.
    answers: VecDeque<Option<u16>>,
}

/// A listening network server; dropping it closes its port.
pub(crate) struct NetworkServer {
    pub(crate) address: SocketAddr,
    taken: Arc<Mutex<Taken>>,
    task: AbortHandle,
}

impl NetworkServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let taken: Arc<Mutex<Taken>> = Arc::default();
        let shared = Arc::clone(&taken);
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&shared)));
            }
        });
        Self { address, taken, task: task.abort_handle() }
    }

    /// The next answers; `None` is no answer at all.
    pub(crate) fn answers(&self, answers: impl IntoIterator<Item = Option<u16>>) {
        self.taken.lock().answers.extend(answers);
    }

    pub(crate) fn requests(&self) -> Vec<Downlink> {
        self.taken.lock().requests.clone()
    }
}

impl Drop for NetworkServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut socket: TcpStream, taken: Arc<Mutex<Taken>>) {
    let mut read = Vec::new();
    loop {
        let (request, rest) = loop {
            if let Some(whole) = whole(&read) {
                break whole;
            }
            if socket.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        read = rest;
        let answer = {
            let mut taken = taken.lock();
            taken.requests.push(request);
            taken.answers.pop_front().unwrap_or(Some(200))
        };
        let Some(status) = answer else { return std::future::pending().await };
        let location = if status == 302 { "location: http://127.0.0.1:1/\r\n" } else { "" };
        let text = format!("HTTP/1.1 {status} X\r\n{location}content-length: 2\r\n\r\n{{}}");
        if socket.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The first request and what is behind it, once it is whole.
fn whole(read: &[u8]) -> Option<(Downlink, Vec<u8>)> {
    let at = read.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&read[..at]).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().strip_suffix(" HTTP/1.1").unwrap().to_owned();
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(pair).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").unwrap().1.parse::<usize>().unwrap();
    let body = read[at + 4..].get(..length)?;
    let body = serde_json::from_slice(body).unwrap();
    Some((Downlink { line, headers, body }, read[at + 4 + length..].to_vec()))
}
