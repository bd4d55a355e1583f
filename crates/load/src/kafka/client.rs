//! A blocking client with one connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{CreateTopicsRequest, RequestHeader, ResponseHeader, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use super::KafkaError;

const PATIENCE: Duration = Duration::from_secs(60);
/// Largest response that is read.
const ANSWER_MAX_BYTES: usize = 64 << 20;
const CREATE_TOPICS_VERSION: i16 = 5;
const CREATE_TOPICS_TIMEOUT_MS: i32 = 30_000;
/// Position of the correlation id in a frame, after the length and the request's key and version.
pub(super) const CORRELATION_AT: std::ops::Range<usize> = 8..12;

/// A client with one connection to a broker.
#[derive(Debug)]
pub struct KafkaClient {
    socket: TcpStream,
    /// Buffer of the last response, reused for the next one.
    answer: BytesMut,
}

impl KafkaClient {
    /// Connects to the broker at `address`.
    ///
    /// # Errors
    /// [`KafkaError::Connection`] if the broker cannot be reached.
    pub fn connect(address: SocketAddr) -> Result<Self, KafkaError> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket, answer: BytesMut::new() })
    }

    /// Creates `topic` with this many partitions and the broker's defaults.
    ///
    /// # Errors
    /// [`KafkaError`]; [`KafkaError::Refused`] if the topic is there already.
    pub fn create_topic(&mut self, topic: &str, partitions: u32) -> Result<(), KafkaError> {
        let new = CreatableTopic::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_num_partitions(partitions.cast_signed())
            .with_replication_factor(-1);
        let request = CreateTopicsRequest::default().with_topics(vec![new]).with_timeout_ms(CREATE_TOPICS_TIMEOUT_MS);
        let response = self.call(&request, CREATE_TOPICS_VERSION)?;
        match response.topics.iter().find(|topic| topic.error_code != 0) {
            Some(refused) => {
                let said = refused.error_message.as_ref().map(ToString::to_string);
                Err(refused_with("CreateTopics", refused.error_code, said))
            }
            None => Ok(()),
        }
    }

    /// Sends a request and waits for its answer.
    pub(super) fn call<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response, KafkaError> {
        self.socket.write_all(&encode(request, version)?)?;
        decode::<R>(self.receive()?, version)
    }

    pub(super) fn send(&mut self, frame: &[u8]) -> Result<(), KafkaError> {
        Ok(self.socket.write_all(frame)?)
    }

    /// Reads the frame of the next response, without its length.
    pub(super) fn receive(&mut self) -> Result<Bytes, KafkaError> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > ANSWER_MAX_BYTES {
            let why = format!("it announces {length} bytes; there may be {ANSWER_MAX_BYTES}");
            return Err(KafkaError::Answer { request: "a request", why });
        }
        self.answer.resize(length, 0);
        self.socket.read_exact(&mut self.answer)?;
        Ok(self.answer.split().freeze())
    }

    /// Clones the connection for another thread.
    pub(super) fn second(&self) -> Result<Self, KafkaError> {
        Ok(Self { socket: self.socket.try_clone()?, answer: BytesMut::new() })
    }
}

/// Encodes `request` as a frame with correlation id 0.
pub(super) fn encode<R: Request>(request: &R, version: i16) -> Result<BytesMut, KafkaError> {
    let unwritable = |why: String| KafkaError::Answer { request: "a request", why };
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_client_id(Some(StrBytes::from_static_str("millstream-load")));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).map_err(|e| unwritable(e.to_string()))?;
    request.encode(&mut frame, version).map_err(|e| unwritable(e.to_string()))?;
    let length = i32::try_from(frame.len() - 4).map_err(|e| unwritable(e.to_string()))?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

pub(super) fn decode<R: Request>(mut frame: Bytes, version: i16) -> Result<R::Response, KafkaError> {
    let unreadable = |why: String| KafkaError::Answer { request: std::any::type_name::<R>(), why };
    ResponseHeader::decode(&mut frame, R::Response::header_version(version)).map_err(|e| unreadable(e.to_string()))?;
    let response = R::Response::decode(&mut frame, version).map_err(|e| unreadable(e.to_string()))?;
    match frame.remaining() {
        0 => Ok(response),
        left => Err(unreadable(format!("{left} bytes are left over"))),
    }
}

pub(super) fn refused_with(request: &'static str, code: i16, said: Option<String>) -> KafkaError {
    let named = || ResponseError::try_from_code(code).map_or_else(|| "unknown error".to_owned(), |e| e.to_string());
    KafkaError::Refused { request, code, why: said.unwrap_or_else(named) }
}
