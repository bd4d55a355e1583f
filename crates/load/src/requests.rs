//! Sends prepared requests over keep-alive HTTP connections, one at a time on each. The generator does as little work as
//! possible, so that its own core does not limit the rate.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep_until;

use crate::Latencies;
use crate::cpu::thread_cpu;

/// Longest response head that is read.
const HEAD_MAX_BYTES: usize = 64 << 10;
/// Share of a core above which the generator, not the server, limits the rate.
const BOTTLENECK_SHARE: f64 = 0.9;

/// Settings of a load of HTTP requests.
#[derive(Debug, Clone)]
pub struct RequestLoad {
    /// Address of the server under load.
    pub address: SocketAddr,
    /// Number of connections, each with one request in flight.
    pub connections: usize,
    /// Target rate of the open loop in requests a second; `None` runs the closed loop.
    pub rate_per_s: Option<f64>,
    /// Condition that ends the load.
    pub until: StopCondition,
}

/// Condition that ends the sending.
#[derive(Debug, Clone, Copy)]
pub enum StopCondition {
    /// Ends the load after this time.
    Time(Duration),
    /// Ends the load after this many requests.
    Count(u64),
}

/// Results of a load of HTTP requests.
#[derive(Debug, Clone)]
pub struct RequestResult {
    /// Responses with a 2xx status.
    pub answered: u64,
    /// Responses with any other status.
    pub refused: u64,
    /// Status and body of the first refused request.
    pub first_refusal: Option<String>,
    /// Total bytes of the 2xx bodies.
    pub body_bytes: u64,
    /// Last 2xx body that was not empty.
    pub last_body: Vec<u8>,
    /// Time from the first request to the last response.
    pub took: Duration,
    /// Latencies of the 2xx responses. In the open loop, late requests count from their due time.
    pub latencies: Latencies,
    /// CPU time of the generator's thread.
    pub cpu: Duration,
}

impl RequestResult {
    /// Returns the 2xx responses per second.
    pub fn rate_per_s(&self) -> f64 {
        self.answered as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Returns whether the generator limited the rate.
    pub fn is_bottleneck(&self) -> bool {
        self.cpu.as_secs_f64() > BOTTLENECK_SHARE * self.took.as_secs_f64()
    }
}

/// State that all connections share.
struct LoadState {
    started: Instant,
    next: Cell<u64>,
    requested: RefCell<RequestResult>,
}

impl RequestLoad {
    /// Sends the request that `write` appends for each number from 0 on; `write` also gets the send time. Returns once all
    /// responses are in. Blocks the calling thread.
    ///
    /// # Errors
    /// A connection fails, or a response is not HTTP.
    pub fn run(&self, write: impl Fn(u64, Instant, &mut Vec<u8>)) -> io::Result<RequestResult> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let connections =
                try_join_all((0..self.connections).map(|_| KeepAliveConnection::open(self.address))).await?;
            let shared = LoadState::new();
            let cpu_before = thread_cpu();
            try_join_all(connections.into_iter().map(|connection| self.work(connection, &shared, &write))).await?;
            let took = shared.started.elapsed();
            Ok(RequestResult { took, cpu: thread_cpu().saturating_sub(cpu_before), ..shared.requested.into_inner() })
        })
    }

    async fn work(
        &self,
        mut connection: KeepAliveConnection,
        shared: &LoadState,
        write: &impl Fn(u64, Instant, &mut Vec<u8>),
    ) -> io::Result<()> {
        let mut request = Vec::new();
        while let Some((number, due)) = self.take(shared) {
            let late = Instant::now() >= due;
            if !late {
                sleep_until(due.into()).await;
            }
            let from = if late { due } else { Instant::now() };
            request.clear();
            write(number, from, &mut request);
            let status = connection.exchange(&request).await?;
            shared.count(status, &connection, from.elapsed());
        }
        Ok(())
    }

    /// Takes the number and the due time of the next request.
    fn take(&self, shared: &LoadState) -> Option<(u64, Instant)> {
        let number = shared.next.get();
        let now = Instant::now();
        let due = self.rate_per_s.map_or(now, |rate| shared.started + Duration::from_secs_f64(number as f64 / rate));
        let is_over = match self.until {
            StopCondition::Time(time) => due.max(now) >= shared.started + time,
            StopCondition::Count(count) => number >= count,
        };
        (!is_over).then(|| {
            shared.next.set(number + 1);
            (number, due)
        })
    }
}

impl LoadState {
    fn new() -> Self {
        let requested = RequestResult {
            answered: 0,
            refused: 0,
            first_refusal: None,
            body_bytes: 0,
            last_body: Vec::new(),
            took: Duration::ZERO,
            latencies: Latencies::default(),
            cpu: Duration::ZERO,
        };
        Self { started: Instant::now(), next: Cell::new(0), requested: RefCell::new(requested) }
    }

    fn count(&self, status: u16, connection: &KeepAliveConnection, took: Duration) {
        let mut requested = self.requested.borrow_mut();
        let body = connection.body();
        if (200..300).contains(&status) {
            requested.answered += 1;
            requested.body_bytes += body.len() as u64;
            requested.latencies.record(took);
            if !body.is_empty() {
                requested.last_body.clear();
                requested.last_body.extend_from_slice(body);
            }
        } else {
            requested.refused += 1;
            requested.first_refusal.get_or_insert_with(|| format!("{status}: {}", String::from_utf8_lossy(body)));
        }
    }
}

/// A keep-alive connection; its buffer holds the last response.
struct KeepAliveConnection {
    socket: TcpStream,
    received: Vec<u8>,
    /// Start of the last body in the buffer.
    head_bytes: usize,
}

impl KeepAliveConnection {
    async fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, received: Vec::with_capacity(4096), head_bytes: 0 })
    }

    fn body(&self) -> &[u8] {
        &self.received[self.head_bytes..]
    }

    /// Sends a request, waits for its whole response and returns the status.
    async fn exchange(&mut self, request: &[u8]) -> io::Result<u16> {
        self.socket.write_all(request).await?;
        self.received.clear();
        let (status, body_bytes) = loop {
            self.receive().await?;
            if let Some(at) = memchr::memmem::find(&self.received, b"\r\n\r\n") {
                self.head_bytes = at + 4;
                break read_head(&self.received[..at + 2])?;
            }
            if self.received.len() > HEAD_MAX_BYTES {
                return Err(io::Error::other("an answer's head has no end"));
            }
        };
        while self.received.len() < self.head_bytes + body_bytes {
            self.receive().await?;
        }
        Ok(status)
    }

    async fn receive(&mut self) -> io::Result<()> {
        match self.socket.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Parses status and body length from a complete head.
fn read_head(head: &[u8]) -> io::Result<(u16, usize)> {
    let text = std::str::from_utf8(head).map_err(io::Error::other)?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no answer of HTTP: {text:?}")))?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    match length {
        Some(length) => Ok((status, length)),
        None if matches!(status, 204 | 304) => Ok((status, 0)),
        None => Err(io::Error::other(format!("an answer without Content-Length: {text:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Answers each request by its target: `/ok` with a body, `/none` without, others with 404.
    fn answer_all(socket: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(socket.try_clone()?);
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 {
            let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line)?;
            }
            line.clear();
            let answer = match target.as_str() {
                "/ok" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                "/none" => "HTTP/1.1 204 No Content\r\n\r\n",
                _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nno!",
            };
            (&socket).write_all(answer.as_bytes())?;
        }
        Ok(())
    }

    #[test]
    fn every_request_is_sent_once_and_counted_by_its_status() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let sockets: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
            let threads = sockets.into_iter().map(|socket| std::thread::spawn(move || answer_all(socket)));
            for thread in threads.collect::<Vec<_>>() {
                thread.join().unwrap().unwrap();
            }
        });
        let load =
            RequestLoad { address, connections: 3, rate_per_s: Some(100_000.0), until: StopCondition::Count(30) };
        let seen = RefCell::new(Vec::new());
        let requested = load.run(|number, _, request| {
            seen.borrow_mut().push(number);
            let target = ["/ok", "/none", "/other"][number as usize % 3];
            request.extend_from_slice(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        });
        let requested = requested.unwrap();
        serving.join().unwrap();
        let mut seen = seen.into_inner();
        seen.sort_unstable();
        assert_eq!(seen, (0..30).collect::<Vec<_>>());
        assert_eq!((requested.answered, requested.refused, requested.body_bytes), (20, 10, 50));
        assert_eq!((requested.latencies.count(), requested.last_body.as_slice()), (20, &b"hello"[..]));
        assert_eq!(requested.first_refusal.as_deref(), Some("404: no!"));
    }

    #[test]
    fn an_invalid_answer_is_an_error() {
        assert_eq!(read_head(b"HTTP/1.1 304 Not Modified\r\n").unwrap(), (304, 0));
        for head in ["hello\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"] {
            assert!(read_head(head.as_bytes()).is_err(), "{head}");
        }
    }
}
