//! A receiver of notifications over HTTP/1.1: a few connections that are kept open between notifications.

use std::time::{Duration, Instant};

use axum::http::{HeaderValue, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::attempt::Failed;
use super::notification::Message;

/// A longer answer ends its connection.
const ANSWER_MAX_BYTES: usize = 64 << 10;
/// A connection that was idle for longer is not used again: the receiver may be about to close it.
const IDLE_MAX: Duration = Duration::from_secs(30);

type Connection = SendRequest<Full<Bytes>>;

/// One host and port.
pub(crate) struct HttpReceiver {
    address: (String, u16),
    /// So many connections it has at most.
    permits: Semaphore,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl HttpReceiver {
    pub(crate) fn new(address: (String, u16), connections_max: usize) -> Self {
        Self { address, permits: Semaphore::new(connections_max), idle: Mutex::default() }
    }

    /// Host and port that a URL names.
    pub(crate) fn address(uri: &Uri) -> Option<(String, u16)> {
        Some((uri.host()?.trim_matches(['[', ']']).to_owned(), uri.port_u16().unwrap_or(80)))
    }

    /// Whether nobody is connected any more.
    pub(crate) fn is_unused(&self) -> bool {
        let mut idle = self.idle.lock();
        idle.retain(|(connection, since)| !connection.is_closed() && since.elapsed() < IDLE_MAX);
        idle.is_empty()
    }

    /// Sends once. The status of the answer, whatever it is, and the bytes of its body.
    pub(crate) async fn send(&self, message: &Message, timeout: Duration) -> Result<(u16, u64), Failed> {
        let Ok(_permit) = self.permits.acquire().await else { return Err(Failed::unreached("the server is stopping")) };
        let mut request = request(message).ok_or_else(|| Failed::unreached("the message is no HTTP request"))?;
        let until = tokio::time::Instant::now() + timeout;
        loop {
            let (mut connection, is_kept) = self.connection(until).await?;
            let answer = tokio::time::timeout_at(until, connection.try_send_request(request)).await;
            match answer {
                Err(_) => return Err(Failed::unknown("timeout: no answer came in time")),
                Ok(Ok(response)) => return Ok(self.finish(connection, response, until).await),
                Ok(Err(mut failed)) => match failed.take_message() {
                    // The receiver has closed a connection that was kept; the next one will be a new one.
                    Some(unsent) if is_kept => request = unsent,
                    Some(_) => return Err(Failed::unreached(format!("connection closed: {}", failed.error()))),
                    None => return Err(Failed::unknown(format!("connection broken: {}", failed.error()))),
                },
            }
        }
    }

    /// An open connection, and whether it was used before.
    async fn connection(&self, until: tokio::time::Instant) -> Result<(Connection, bool), Failed> {
        loop {
            let kept = self.idle.lock().pop();
            match kept {
                Some((connection, since)) if !connection.is_closed() && since.elapsed() < IDLE_MAX => {
                    return Ok((connection, true));
                }
                Some(_) => {}
                None => break,
            }
        }
        let (host, port) = &self.address;
        let opened = tokio::time::timeout_at(until, async {
            let found = tokio::net::lookup_host((host.as_str(), *port)).await;
            let found: Vec<_> = found.map_err(|error| Failed::unreached(format!("unknown host: {error}")))?.collect();
            let socket = TcpStream::connect(&found[..]).await;
            let socket = socket.map_err(|error| Failed::unreached(format!("no connection: {error}")))?;
            let _ = socket.set_nodelay(true);
            let opened = handshake(TokioIo::new(socket)).await;
            opened.map_err(|error| Failed::unreached(format!("no connection: {error}")))
        });
        let timeout = |_| Failed::unreached("timeout: no connection came about in time");
        let (connection, driver) = opened.await.map_err(timeout)??;
        tokio::spawn(async move {
            // Its end is seen by whoever uses the connection.
            let _ = driver.await;
        });
        Ok((connection, false))
    }

    /// Reads the answer to its end, so that the connection can be used again.
    async fn finish(
        &self,
        connection: Connection,
        response: Response<Incoming>,
        until: tokio::time::Instant,
    ) -> (u16, u64) {
        let status = response.status().as_u16();
        let rest = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect();
        let Ok(Ok(body)) = tokio::time::timeout_at(until, rest).await else { return (status, 0) };
        self.idle.lock().push((connection, Instant::now()));
        (status, body.to_bytes().len() as u64)
    }
}

fn request(message: &Message) -> Option<Request<Full<Bytes>>> {
    let Message::Http { method, url, headers, body } = message else { return None };
    let uri: Uri = url.parse().ok()?;
    let host = HeaderValue::try_from(uri.authority()?.as_str()).ok()?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut request = Request::builder().method(method.as_str()).uri(target);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).ok()?;
    request.headers_mut().entry(header::HOST).or_insert(host);
    let length = HeaderValue::from(body.len());
    request.headers_mut().insert(header::CONTENT_LENGTH, length);
    Some(request)
}
