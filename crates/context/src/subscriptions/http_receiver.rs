//! A receiver of notifications over HTTP/1.1, plain or over TLS: a few connections that are kept open between notifications.
//!
//! A request is written as it was prepared, and its answer read as far as it is needed. On each connection one is under
//! way at a time: receivers break on more.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::answer::{Answer, Reader};
use super::attempt::Failed;
use super::http_request::HttpRequest;
use super::outgoing::Outgoing;
use super::socket::{Address, Socket};

/// A connection that was idle for longer is not used again: the receiver may be about to close it.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// A receiver that closes a connection so soon after an answer keeps none, whatever it says.
const CLOSED_SOON: Duration = Duration::from_secs(1);
/// Of an answer so much is read at once.
const READ_BYTES: usize = 1_024;

/// One host and port.
pub(crate) struct HttpReceiver {
    address: Arc<Address>,
    outgoing: Arc<Outgoing>,
    /// So many connections it has at most.
    permits: Semaphore,
    kept: Mutex<Kept>,
}

/// Connections that wait for the next notification.
#[derive(Default)]
struct Kept {
    idle: Vec<(Socket, Instant)>,
    /// Until then the receiver is believed to close each after its answer.
    none_until: Option<Instant>,
}

/// How far one attempt has come.
struct Exchange<'a> {
    socket: &'a Socket,
    request: &'a [u8],
    /// So much of the request the system has taken.
    sent_bytes: usize,
    reader: Reader,
}

impl HttpReceiver {
    pub(crate) fn new(address: Arc<Address>, outgoing: Arc<Outgoing>, connections_max: usize) -> Self {
        Self { address, outgoing, permits: Semaphore::new(connections_max), kept: Mutex::default() }
    }

    /// Whether nobody is connected any more.
    pub(crate) fn is_unused(&self) -> bool {
        let mut kept = self.kept.lock();
        kept.idle.retain(|(socket, since)| since.elapsed() < IDLE_MAX && socket.is_open());
        kept.idle.is_empty()
    }

    /// Sends once. The status of the answer, whatever it is, and the bytes of its body.
    pub(crate) async fn send(&self, request: &HttpRequest, timeout: Duration) -> Result<(u16, u64), Failed> {
        let Ok(_permit) = self.permits.acquire().await else { return Err(Failed::unreached("the server is stopping")) };
        let until = tokio::time::Instant::now() + timeout;
        loop {
            let kept = self.kept.lock().take();
            let (socket, since) = match kept {
                Some((socket, since)) => (socket, Some(since)),
                None => (self.connect(until).await?, None),
            };
            let mut exchange = Exchange {
                socket: &socket,
                request: request.bytes(),
                sent_bytes: 0,
                reader: Reader::new(request.asked),
            };
            let ended = tokio::time::timeout_at(until, exchange.run()).await;
            let (is_sent, given_up) = (exchange.sent_bytes > 0, exchange.reader.given_up());
            match (ended, given_up, since) {
                (Ok(Ok(answer)), ..) => {
                    if answer.keeps && !request.closes {
                        self.kept.lock().put(socket);
                    }
                    return Ok((answer.status, answer.body_bytes));
                }
                // How it has judged is known, and nothing else is needed.
                (_, Some(answer), _) => return Ok((answer.status, answer.body_bytes)),
                (Err(_), ..) => return Err(Failed::unknown("timeout: no answer came in time")),
                // The receiver has closed a connection that was kept, and nothing was on its way; another may do.
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

impl Kept {
    /// A connection that is still open, and since when it was idle.
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

    /// The receiver has closed a connection that was idle since then.
    fn note_closed(&mut self, since: Instant) {
        if since.elapsed() < CLOSED_SOON {
            self.none_until = Some(Instant::now() + IDLE_MAX);
        }
    }
}

impl Exchange<'_> {
    /// Sends the request and reads its answer. What has gone wrong, if it has come to none.
    async fn run(&mut self) -> Result<Answer, String> {
        while self.sent_bytes < self.request.len() {
            match self.socket.try_write(&self.request[self.sent_bytes..]) {
                Ok(sent_bytes) => self.sent_bytes += sent_bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Who does not read on may have answered already; the connection is of no use then.
                    let is_readable = self.socket.ready().await.map_err(|error| error.to_string())?;
                    if is_readable && let Some(answer) = self.receive()? {
                        return Ok(Answer { keeps: false, ..answer });
                    }
                }
                // Who has closed it may have answered before, unless nothing was on its way.
                Err(error) if self.sent_bytes == 0 => return Err(error.to_string()),
                Err(error) => {
                    let answer = self.receive()?.ok_or_else(|| error.to_string())?;
                    return Ok(Answer { keeps: false, ..answer });
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

    /// Reads what is there.
    fn receive(&mut self) -> Result<Option<Answer>, String> {
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

    use super::super::http_request::HttpUrl;
    use super::*;

    /// What comes of a request that is longer than what fits on its way to `receive`, who reads no more than its first bytes.
    async fn refused_early(receive: impl AsyncFnOnce(TcpStream)) -> Result<Answer, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sender = TcpSocket::new_v4().unwrap();
        sender.set_send_buffer_size(8 << 10).unwrap();
        let socket = Socket::from(sender.connect(address).await.unwrap());
        let url = HttpUrl::read(&format!("http://{address}/n")).unwrap();
        let request = HttpRequest::write(&url, "POST", &[("a", "b")], &"x".repeat(64 << 20));
        let mut exchange =
            Exchange { socket: &socket, request: request.bytes(), sent_bytes: 0, reader: Reader::new(request.asked) };
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
    async fn who_answers_before_the_request_is_read_is_heard() {
        let mut kept = None;
        let answered = refused_early(async |mut socket| {
            socket.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
            kept = Some(socket);
        });
        assert_eq!(answered.await, Ok(Answer { status: 413, body_bytes: 2, keeps: false }));
        let closed = refused_early(async |socket| drop(socket)).await;
        assert!(closed.is_err(), "{closed:?}");
    }

    #[tokio::test]
    async fn what_comes_unasked_ends_a_connection_and_so_does_its_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for unasked in [Some("HTTP/1.1 408 Request Timeout\r\n\r\n"), Some(""), None] {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut receiver, _) = listener.accept().await.unwrap();
            let mut kept = Kept::default();
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
