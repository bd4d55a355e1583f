//! One connection to a broker. The broker answers in the order of the requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::contact::Contact;
use crate::security::Tls;

/// Requests that may wait for the socket.
const OUTGOING_MAX: usize = 64;
/// Largest answer that is read; a fetch asks for much less.
const ANSWER_MAX_BYTES: usize = 128 << 20;
/// Position of the correlation id in a request: after its length, key and version.
const CORRELATION_AT: std::ops::Range<usize> = 8..12;

/// A request that got no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// The request did not leave this process, so it has no effect.
    #[error("{0}")]
    Unsent(String),
    /// The answer did not come: the broker may have done what was asked.
    #[error("{0}")]
    Unanswered(String),
}

type Answers = Arc<Mutex<Option<VecDeque<(i32, oneshot::Sender<Bytes>)>>>>;

struct OutgoingRequest {
    frame: BytesMut,
    answer: oneshot::Sender<Bytes>,
}

/// A connection to one broker. It closes when it is dropped or when reading or writing fails; the callers make a new one.
#[derive(Debug)]
pub(crate) struct Connection {
    outgoing: mpsc::Sender<OutgoingRequest>,
    is_closed: Arc<AtomicBool>,
    request_timeout: Duration,
    contact: Arc<Contact>,
}

impl Connection {
    /// Connects to the broker at `address`, with TLS if there is any.
    pub(crate) async fn open(
        address: &str,
        tls: Option<&Tls>,
        request_timeout: Duration,
        contact: Arc<Contact>,
    ) -> Result<Self, CallError> {
        let unsent = |why: String| CallError::Unsent(format!("{address}: {why}"));
        let connected = timeout(request_timeout, connect(address, tls)).await;
        let (reader, writer) = connected.map_err(|_| unsent("no answer".to_owned()))?.map_err(unsent)?;
        let (outgoing, requests) = mpsc::channel(OUTGOING_MAX);
        let answers: Answers = Arc::new(Mutex::new(Some(VecDeque::new())));
        let is_closed = Arc::new(AtomicBool::new(false));
        tokio::spawn(write_all(writer, requests, Arc::clone(&answers), Arc::clone(&is_closed)));
        tokio::spawn(read_all(reader, answers, Arc::clone(&is_closed)));
        Ok(Self { outgoing, is_closed, request_timeout, contact })
    }

    /// `true` if no further request can be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn call<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, CallError> {
        self.call_within(request, version, self.request_timeout).await
    }

    /// As [`Connection::call`], for a request that the broker itself may hold for some of `patience`.
    pub(crate) async fn call_within<R: Request>(
        &self,
        request: &R,
        version: i16,
        patience: Duration,
    ) -> Result<R::Response, CallError> {
        let frame = encode(request, version).map_err(CallError::Unsent)?;
        let (answer, answered) = oneshot::channel();
        let outgoing = OutgoingRequest { frame, answer };
        if self.outgoing.send(outgoing).await.is_err() {
            return Err(CallError::Unsent("the connection is closed".to_owned()));
        }
        let unanswered = |why: &str| {
            self.is_closed.store(true, Ordering::Release);
            self.contact.failed();
            CallError::Unanswered(why.to_owned())
        };
        match timeout(patience, answered).await {
            Ok(Ok(bytes)) => {
                self.contact.answered();
                decode::<R>(bytes, version).map_err(|why| unanswered(&why))
            }
            Ok(Err(_)) => Err(unanswered("the connection was closed before the answer came")),
            Err(_) => Err(unanswered("no answer in time")),
        }
    }
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

async fn connect(address: &str, tls: Option<&Tls>) -> Result<(Reader, Writer), String> {
    let socket = TcpStream::connect(address).await.map_err(|e| e.to_string())?;
    socket.set_nodelay(true).map_err(|e| e.to_string())?;
    Ok(match tls {
        None => {
            let (reader, writer) = socket.into_split();
            (Box::new(reader), Box::new(writer))
        }
        Some(tls) => {
            let (reader, writer) = tokio::io::split(tls.connect(socket, address).await?);
            (Box::new(reader), Box::new(writer))
        }
    })
}

async fn write_all(
    mut writer: Writer,
    mut requests: mpsc::Receiver<OutgoingRequest>,
    answers: Answers,
    is_closed: Arc<AtomicBool>,
) {
    let mut correlation: i32 = 0;
    while let Some(OutgoingRequest { mut frame, answer }) = requests.recv().await {
        correlation = correlation.wrapping_add(1);
        frame[CORRELATION_AT].copy_from_slice(&correlation.to_be_bytes());
        match &mut *answers.lock() {
            Some(waiting) => waiting.push_back((correlation, answer)),
            // The reader has ended: the drop of `answer` says so to the caller.
            None => break,
        }
        if writer.write_all(&frame).await.is_err() || writer.flush().await.is_err() {
            break;
        }
    }
    is_closed.store(true, Ordering::Release);
}

async fn read_all(mut reader: Reader, answers: Answers, is_closed: Arc<AtomicBool>) {
    while let Some(frame) = read_frame(&mut reader).await {
        let expected = answers.lock().as_mut().and_then(VecDeque::pop_front);
        match expected {
            Some((correlation, answer)) if frame.len() >= 4 && frame[..4] == correlation.to_be_bytes() => {
                // A caller that has given up needs no answer.
                drop(answer.send(frame));
            }
            _ => break,
        }
    }
    is_closed.store(true, Ordering::Release);
    answers.lock().take();
}

async fn read_frame(reader: &mut Reader) -> Option<Bytes> {
    let length = usize::try_from(reader.read_i32().await.ok()?).ok()?;
    if length > ANSWER_MAX_BYTES {
        return None;
    }
    let mut frame = BytesMut::with_capacity(length);
    while frame.len() < length {
        let missing = length - frame.len();
        if (&mut *reader).take(missing as u64).read_buf(&mut frame).await.ok()? == 0 {
            return None;
        }
    }
    Some(frame.freeze())
}

fn encode<R: Request>(request: &R, version: i16) -> Result<BytesMut, String> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_client_id(Some(StrBytes::from_static_str("millstream")));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).map_err(|e| e.to_string())?;
    request.encode(&mut frame, version).map_err(|e| e.to_string())?;
    let length = i32::try_from(frame.len() - 4).map_err(|e| e.to_string())?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

fn decode<R: Request>(mut frame: Bytes, version: i16) -> Result<R::Response, String> {
    ResponseHeader::decode(&mut frame, R::Response::header_version(version)).map_err(|e| e.to_string())?;
    R::Response::decode(&mut frame, version).map_err(|e| e.to_string())
}
