//! A receiver of notifications that answers at once and records the delay of each.
//!
//! The attribute `stamp` of a notified entity holds the send time of its update, in microseconds since `begin`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Latencies;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A server on a free port; dropping it stops it.
#[derive(Debug)]
pub struct NotificationReceiver {
    /// Address on which the receiver listens.
    pub address: SocketAddr,
    delays: Arc<Mutex<Latencies>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl NotificationReceiver {
    /// Starts the receiver on its own thread.
    ///
    /// # Errors
    /// The system has no free port or cannot start a thread.
    pub fn start(begin: Instant) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (delays, stop) = (Arc::<Mutex<Latencies>>::default(), CancellationToken::new());
        let (seen, stopped) = (delays.clone(), stop.clone());
        let receive = move || {
            runtime.block_on(stopped.run_until_cancelled(accept(listener, begin, seen)));
        };
        let thread = std::thread::Builder::new().name("receiver".to_owned()).spawn(receive)?;
        Ok(Self { address, delays, stop, thread: Some(thread) })
    }

    /// Takes the delays since the last call.
    pub fn take(&self) -> Latencies {
        std::mem::take(&mut *self.delays.lock())
    }

    /// Returns the number of notifications since the last [`Self::take`].
    pub fn count(&self) -> u64 {
        self.delays.lock().count()
    }
}

impl Drop for NotificationReceiver {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread shows as missing delays.
            drop(thread.join());
        }
    }
}

async fn accept(listener: TcpListener, begin: Instant, delays: Arc<Mutex<Latencies>>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(serve(socket, begin, delays.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut socket: TcpStream, begin: Instant, delays: Arc<Mutex<Latencies>>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut received = Vec::with_capacity(4096);
    loop {
        let Some(request_bytes) = whole(&received) else {
            if socket.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
            continue;
        };
        if let Some(stamp) = stamp(&received[..request_bytes]) {
            delays.lock().record(begin.elapsed().saturating_sub(stamp));
        }
        received.drain(..request_bytes);
        socket.write_all(ANSWER).await?;
    }
}

/// Returns the length of the first complete request.
fn whole(received: &[u8]) -> Option<usize> {
    let head_bytes = memchr::memmem::find(received, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&received[..head_bytes]).ok()?;
    let length = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let request_bytes = head_bytes + length.unwrap_or(0);
    (received.len() >= request_bytes).then_some(request_bytes)
}

/// Reads the send time of the update from its notification.
fn stamp(request: &[u8]) -> Option<Duration> {
    let after = |bytes: &'_ [u8], text: &str| Some(memchr::memmem::find(bytes, text.as_bytes())? + text.len());
    let attribute = &request[after(request, "\"stamp\":")?..];
    let value = &attribute[after(attribute, "\"value\":")?..];
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn delays_count_from_the_stamp_and_each_notification_is_answered() {
        let begin = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        let receiver = NotificationReceiver::start(begin).unwrap();
        let mut socket = TcpStream::connect(receiver.address).unwrap();
        let body = r#"{"data":[{"id":"a","stamp":{"type":"Number","value":2000000,"metadata":{}}}]}"#;
        let request = format!("POST /n HTTP/1.1\r\nHost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let (first, second) = request.split_at(40);
        socket.write_all(first.as_bytes()).unwrap();
        socket.write_all([second, &request].concat().as_bytes()).unwrap();
        let mut answers = vec![0; ANSWER.len() * 2];
        socket.read_exact(&mut answers).unwrap();
        assert_eq!(answers, [ANSWER, ANSWER].concat());
        assert_eq!(receiver.count(), 2);
        let delays = receiver.take().summary();
        assert!((3_000.0..60_000.0).contains(&delays.p50), "{delays:?}");
        assert_eq!(receiver.count(), 0);
    }
}
