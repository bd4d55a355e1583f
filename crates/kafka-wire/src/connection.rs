//! One connection to a broker. The broker answers in the order of the requests (Kafka's protocol, section "Network").

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::safe_decode;

/// Requests that may wait for the socket.
const OUTGOING_MAX: usize = 64;
/// Position of the correlation id in a request: after its length, key and version.
const CORRELATION_AT: std::ops::Range<usize> = 8..12;

/// A request that got no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
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
pub struct Connection {
    outgoing: mpsc::Sender<OutgoingRequest>,
    is_closed: Arc<AtomicBool>,
    request_timeout: Duration,
    reading: AbortHandle,
}

impl Connection {
    /// Sends over `writer`, and takes answers of at most `answer_max_bytes` from `reader`, the two halves of a socket. Has two
    /// tasks in the runtime of the caller.
    pub fn over(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        request_timeout: Duration,
        answer_max_bytes: usize,
    ) -> Self {
        let (outgoing, requests) = mpsc::channel(OUTGOING_MAX);
        let answers: Answers = Arc::new(Mutex::new(Some(VecDeque::new())));
        let is_closed = Arc::new(AtomicBool::new(false));
        tokio::spawn(write_all(writer, requests, Arc::clone(&answers), Arc::clone(&is_closed)));
        let reading = tokio::spawn(read_all(reader, answers, Arc::clone(&is_closed), answer_max_bytes));
        Self { outgoing, is_closed, request_timeout, reading: reading.abort_handle() }
    }

    /// `true` if no further request can be sent.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// Says whether the request may have an effect.
    pub async fn call<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, CallError> {
        self.call_within(request, version, self.request_timeout).await
    }

    /// As [`Connection::call`], for a request that the broker itself may hold for some of `patience`.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn call_within<R: Request>(
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
            CallError::Unanswered(why.to_owned())
        };
        match timeout(patience, answered).await {
            Ok(Ok(bytes)) => decode::<R>(bytes, version).map_err(|why| unanswered(&why)),
            Ok(Err(_)) => Err(unanswered("the connection was closed before the answer came")),
            Err(_) => Err(unanswered("no answer in time")),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The task that writes ends by itself, once what was accepted is written.
        self.reading.abort();
    }
}

async fn write_all(
    mut writer: impl AsyncWrite + Unpin,
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

async fn read_all(
    mut reader: impl AsyncRead + Unpin,
    answers: Answers,
    is_closed: Arc<AtomicBool>,
    answer_max_bytes: usize,
) {
    while let Some(frame) = read_frame(&mut reader, answer_max_bytes).await {
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

async fn read_frame(reader: &mut (impl AsyncRead + Unpin), answer_max_bytes: usize) -> Option<Bytes> {
    let length = usize::try_from(reader.read_i32().await.ok()?).ok()?;
    if length > answer_max_bytes {
        return None;
    }
    let mut frame = BytesMut::with_capacity(length);
    while frame.len() < length {
        let missing = length - frame.len();
        if reader.take(missing as u64).read_buf(&mut frame).await.ok()? == 0 {
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
    safe_decode::decode(frame, version)
}
