//! Somebody who receives notifications over HTTP, and answers as a test wants.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millstream_testkit::eventually_async;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The answer to the request of that number (from 0): a status, or none.
type Answers = dyn Fn(usize, &Received) -> Option<u16> + Send + Sync;

/// A request that it got.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The path of the request.
    pub(crate) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap()
    }
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    connections: Arc<Mutex<usize>>,
    accepting: JoinHandle<()>,
}

/// An address of this process alone in the loopback network: nobody takes its ports while a receiver is away, as the
/// system gives ports of 127.0.0.1.
pub(crate) fn own_ip() -> IpAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, high | 0x80, middle, low])
}

impl Receiver {
    /// Answers everything with 200.
    pub(crate) async fn start() -> Self {
        Self::answering("127.0.0.1:0".parse().unwrap(), |_, _| Some(200)).await
    }

    pub(crate) async fn answering(
        address: SocketAddr,
        answers: impl Fn(usize, &Received) -> Option<u16> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let answers: Arc<Answers> = Arc::new(answers);
        let (seen, count) = (received.clone(), connections.clone());
        let accepting = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                *count.lock() += 1;
                serving.spawn(serve(socket, seen.clone(), answers.clone()));
            }
        });
        Self { address, received, connections, accepting }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }

    /// Returns the requests that came under a path, once there are `count`.
    pub(crate) async fn under(&self, path: &str, count: usize) -> Vec<Received> {
        let mut found = Vec::new();
        eventually_async(&format!("{count} requests under {path}"), || {
            found = self.received().into_iter().filter(|one| one.path() == path).collect();
            found.len() >= count
        })
        .await;
        found
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock()
    }

    pub(crate) fn stop(self) {
        self.accepting.abort();
    }
}

async fn serve(mut socket: TcpStream, received: Arc<Mutex<Vec<Received>>>, answers: Arc<Answers>) {
    let mut bytes = Vec::new();
    loop {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
            continue;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let line = lines.next().unwrap().to_owned();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().unwrap());
        while bytes.len() < end + 4 + length {
            if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let body = String::from_utf8(bytes[end + 4..end + 4 + length].to_vec()).unwrap();
        bytes.drain(..end + 4 + length);
        let one = Received { line, headers, body };
        let number = {
            let mut received = received.lock();
            received.push(one.clone());
            received.len() - 1
        };
        let Some(status) = answers(number, &one) else {
            std::future::pending::<()>().await;
            return;
        };
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok");
        if socket.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
