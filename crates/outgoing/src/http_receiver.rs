//! Sends requests to one host over HTTP/1.1, plain or over TLS, on a few keep-alive connections.
//!
//! A request is sent as prepared, and its reply is read as far as needed. Each connection carries one request at a
//! time: many receivers fail on pipelining.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::address::Address;
use crate::attempt::Failed;
use crate::http_request::HttpRequest;
use crate::http_response::{HttpResponse, ResponseReader};
use crate::rules::Outgoing;
use crate::socket::Socket;

/// Maximum idle time of a reused connection: the receiver may be about to close an older one.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// A receiver that closes a connection so soon after a reply supports no keep-alive, whatever its headers say.
const CLOSED_SOON: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 1_024;

/// A receiver: one host and port.
pub struct HttpReceiver {
    address: Arc<Address>,
    outgoing: Arc<Outgoing>,
    /// Limits the number of connections.
    permits: Semaphore,
    kept: Mutex<IdleConnections>,
}

#[derive(Default)]
struct IdleConnections {
    idle: Vec<(Socket, Instant)>,
    /// Until then connections are not reused, because the receiver closes them.
    none_until: Option<Instant>,
}

/// A reply with its whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// The status.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
    /// The total that the reply tells in a header, such as the number of entities.
    pub total: Option<usize>,
}

/// The state of one attempt.
struct DeliveryAttempt<'a> {
    socket: &'a Socket,
    request: &'a [u8],
    /// Bytes of the request that the system has accepted.
    sent_bytes: usize,
    reader: ResponseReader,
}

impl std::fmt::Debug for HttpReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpReceiver({:?})", self.address)
    }
}

impl HttpReceiver {
    /// A receiver that has at most `connections_max` connections at a time.
    pub fn new(address: Arc<Address>, outgoing: Arc<Outgoing>, connections_max: usize) -> Self {
        Self { address, outgoing, permits: Semaphore::new(connections_max), kept: Mutex::default() }
    }

    /// The host and port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// No connection is kept for it.
    pub fn is_unused(&self) -> bool {
        let mut kept = self.kept.lock();
        kept.idle.retain(|(socket, since)| since.elapsed() < IDLE_MAX && socket.is_open());
        kept.idle.is_empty()
    }

    /// Makes one attempt; returns the status of the reply and the bytes of its body.
    ///
    /// # Errors
    /// The receiver was not reached, or gave no answer in time.
    pub async fn send(&self, request: &HttpRequest, timeout: Duration) -> Result<(u16, u64), Failed> {
        let Ok(_permit) = self.permits.acquire().await else { return Err(Failed::refused("the server is stopping")) };
        let until = tokio::time::Instant::now() + timeout;
        let reader = || ResponseReader::new(request.asked);
        let (answer, _) = self.exchange(request, until, reader).await?;
        Ok((answer.status, answer.body_bytes))
    }

    /// Makes one attempt within `timeout`, the wait for a connection included, and returns the whole reply, whose body has at
    /// most `max_bytes`. `total_header` is the header that tells a total.
    ///
    /// # Errors
    /// The receiver was not reached, or its reply is not whole in time.
    pub async fn ask(
        &self,
        request: &HttpRequest,
        timeout: Duration,
        max_bytes: usize,
        total_header: &'static str,
    ) -> Result<HttpReply, Failed> {
        let until = tokio::time::Instant::now() + timeout;
        let permit = tokio::time::timeout_at(until, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else { return Err(Failed::refused("timeout: its connections are all busy")) };
        let reader = || ResponseReader::keeping(request.asked, max_bytes, total_header);
        let (answer, reader) = self.exchange(request, until, reader).await?;
        match reader.into_kept() {
            Some((body, total)) => Ok(HttpReply { status: answer.status, body, total }),
            None => Err(Failed::unknown(format!(
                "its answer does not end in time, is broken off, or has more than {max_bytes} bytes"
            ))),
        }
    }

    /// Makes one attempt; its connection is one that the caller may have.
    async fn exchange(
        &self,
        request: &HttpRequest,
        until: tokio::time::Instant,
        reader: impl Fn() -> ResponseReader,
    ) -> Result<(HttpResponse, ResponseReader), Failed> {
        loop {
            let kept = self.kept.lock().take();
            let (socket, since) = match kept {
                Some((socket, since)) => (socket, Some(since)),
                None => (self.connect(until).await?, None),
            };
            let mut exchange =
                DeliveryAttempt { socket: &socket, request: request.bytes(), sent_bytes: 0, reader: reader() };
            let ended = tokio::time::timeout_at(until, exchange.run()).await;
            let (is_sent, given_up) = (exchange.sent_bytes > 0, exchange.reader.given_up());
            match (ended, given_up, since) {
                (Ok(Ok(answer)), ..) => {
                    let reader = exchange.reader;
                    if answer.keeps && !request.closes {
                        self.kept.lock().put(socket);
                    }
                    return Ok((answer, reader));
                }
                // The status is known; the rest of the reply is not needed.
                (_, Some(answer), _) => return Ok((answer, exchange.reader)),
                (Err(_), ..) => return Err(Failed::unknown("timeout: no answer came in time")),
                // The receiver closed a kept connection before anything was sent: another connection may work.
                (Ok(Err(_)), None, Some(since)) if !is_sent => self.kept.lock().note_closed(since),
                (Ok(Err(why)), ..) if !is_sent => return Err(Failed::unreached(format!("connection closed: {why}"))),
                (Ok(Err(why)), None, since) => {
                    since.into_iter().for_each(|since| self.kept.lock().note_closed(since));
                    return Err(Failed::unknown(format!("connection broken: {why}")));
                }
            }
        }
    }

    async fn connect(&self, until: tokio::time::Instant) -> Result<Socket, Failed> {
        let opened = tokio::time::timeout_at(until, Socket::connect(&self.address, &self.outgoing)).await;
        opened.map_err(|_| Failed::unreached("timeout: no connection came about in time"))?
    }
}

impl IdleConnections {
    /// An open connection and the start of its idle time.
    fn take(&mut self) -> Option<(Socket, Instant)> {
        while let Some((socket, since)) = self.idle.pop() {
            if since.elapsed() >= IDLE_MAX {
                continue;
            }
            if socket.is_open() {
                return Some((socket, since));
            }
            self.note_closed(since);
        }
        None
    }

    fn put(&mut self, socket: Socket) {
        let now = Instant::now();
        if self.none_until.is_none_or(|until| until < now) {
            self.idle.push((socket, now));
        }
    }

    /// Records that the receiver closed a connection that was idle since `since`.
    fn note_closed(&mut self, since: Instant) {
        if since.elapsed() < CLOSED_SOON {
            self.none_until = Some(Instant::now() + IDLE_MAX);
        }
    }
}

impl DeliveryAttempt<'_> {
    /// Sends the request and reads its reply; the error describes a failure.
    async fn run(&mut self) -> Result<HttpResponse, String> {
        while self.sent_bytes < self.request.len() {
            match self.socket.try_write(&self.request[self.sent_bytes..]) {
                Ok(sent_bytes) => self.sent_bytes += sent_bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // A receiver that stops reading may have answered already; the connection is then not reused.
                    let is_readable = self.socket.ready().await.map_err(|error| error.to_string())?;
                    if is_readable && let Some(answer) = self.receive()? {
                        return Ok(HttpResponse { keeps: false, ..answer });
                    }
                }
                // A receiver that closed the connection may have answered before, unless nothing was sent.
                Err(error) if self.sent_bytes == 0 => return Err(error.to_string()),
                Err(error) => {
                    let answer = self.receive()?.ok_or_else(|| error.to_string())?;
                    return Ok(HttpResponse { keeps: false, ..answer });
                }
            }
        }
        loop {
            self.socket.readable().await.map_err(|error| error.to_string())?;
            if let Some(answer) = self.receive()? {
                return Ok(answer);
            }
        }
    }

    fn receive(&mut self) -> Result<Option<HttpResponse>, String> {
        let mut room = [0; READ_BYTES];
        match self.socket.try_read(&mut room) {
            Ok(0) => self.reader.end().map(Some).ok_or_else(|| "it was closed without an answer".to_owned()),
            Ok(read_bytes) => self.reader.take(&room[..read_bytes]).map_err(str::to_owned),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;
    use crate::http_request::HttpUrl;

    /// Sends a request larger than the socket buffers to `receive`, which reads only the first bytes.
    async fn refused_early(receive: impl AsyncFnOnce(TcpStream)) -> Result<HttpResponse, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sender = TcpSocket::new_v4().unwrap();
        sender.set_send_buffer_size(8 << 10).unwrap();
        let socket = Socket::from(sender.connect(address).await.unwrap());
        let url = HttpUrl::read(&format!("http://{address}/n")).unwrap();
        let request = HttpRequest::write(&url, "POST", &[("a", "b")], &"x".repeat(64 << 20));
        let mut exchange = DeliveryAttempt {
            socket: &socket,
            request: request.bytes(),
            sent_bytes: 0,
            reader: ResponseReader::new(request.asked),
        };
        let received = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut begin = [0; 16];
            socket.read_exact(&mut begin).await.unwrap();
            assert_eq!(&begin, b"POST /n HTTP/1.1");
            receive(socket).await;
        };
        let (ended, ()) = tokio::join!(exchange.run(), received);
        assert!((1..request.bytes().len()).contains(&exchange.sent_bytes), "{}", exchange.sent_bytes);
        ended
    }

    #[tokio::test]
    async fn an_answer_before_the_whole_request_is_read_is_accepted() {
        let mut kept = None;
        let answered = refused_early(async |mut socket| {
            socket.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
            kept = Some(socket);
        });
        assert_eq!(answered.await, Ok(HttpResponse { status: 413, body_bytes: 2, keeps: false }));
        let closed = refused_early(async |socket| drop(socket)).await;
        assert!(closed.is_err(), "{closed:?}");
    }

    #[tokio::test]
    async fn unexpected_bytes_or_a_close_end_an_idle_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for unasked in [Some("HTTP/1.1 408 Request Timeout\r\n\r\n"), Some(""), None] {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut receiver, _) = listener.accept().await.unwrap();
            let mut kept = IdleConnections::default();
            kept.put(Socket::from(socket));
            match unasked {
                Some("") => drop(receiver),
                Some(text) => receiver.write_all(text.as_bytes()).await.unwrap(),
                None => {}
            }
            if unasked.is_some() {
                kept.idle[0].0.readable().await.unwrap();
            }
            assert_eq!(kept.take().is_some(), unasked.is_none(), "{unasked:?}");
            assert_eq!(kept.none_until.is_some(), unasked.is_some(), "{unasked:?}");
        }
    }
}
