//! A listener over a log of its own, and the simplest client there can be.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ApiKey, FetchRequest, ProduceRequest, RequestHeader, ResponseHeader, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use millstream_kafka::{KafkaConfig, Listener, Serving};
use millstream_log::{Embedded, Log, LogConfig, SystemFiles, TopicConfig};
use millstream_net::Metrics;
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record, RecordBatch, SystemClock, TenantId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A listener and its log.
pub(crate) struct Fixture {
    pub(crate) log: Arc<Embedded>,
    pub(crate) serving: Serving,
    dir: tempfile::TempDir,
}

impl Fixture {
    pub(crate) async fn start(config: KafkaConfig) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), config).await
    }

    /// Stops, and starts on what it has stored.
    pub(crate) async fn restart(self, config: KafkaConfig) -> Self {
        self.restart_damaged(config, |_| ()).await
    }

    /// As [`Fixture::restart`], after `damage` of the log's files.
    pub(crate) async fn restart_damaged(self, config: KafkaConfig, damage: impl FnOnce(&std::path::Path)) -> Self {
        self.serving.shut_down(std::time::Duration::from_secs(5)).await;
        self.log.close().unwrap();
        drop(self.log);
        damage(self.dir.path());
        Self::start_in(self.dir, config).await
    }

    async fn start_in(dir: tempfile::TempDir, config: KafkaConfig) -> Self {
        let log = open(dir.path());
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), config).await.unwrap();
        let serving = listener.serve(log.clone(), &Metrics::default()).await;
        Self { log, serving, dir }
    }

    pub(crate) fn create(&self, name: &str, config: &TopicConfig) {
        let name = millstream_types::TopicName::parse(name, &TenantId::default()).unwrap();
        self.log.create_topic(&name, config).unwrap();
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.serving.address()).await
    }

    pub(crate) async fn stop(self) {
        self.serving.shut_down(std::time::Duration::from_secs(5)).await;
        self.log.close().unwrap();
    }
}

pub(crate) fn open(dir: &std::path::Path) -> Arc<Embedded> {
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: dir.to_owned(), ..LogConfig::default() };
    Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap()
}

/// One connection.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    correlation_id: i32,
}

impl Client {
    pub(crate) async fn connect(address: std::net::SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) fn over(socket: TcpStream) -> Self {
        Self { socket, correlation_id: 0 }
    }

    /// Sends a request and does not wait; its correlation id.
    pub(crate) async fn send<R: Request>(&mut self, request: &R, version: i16) -> i32 {
        self.send_as("test", request, version).await
    }

    /// As [`Client::send`], by a client that calls itself `client_id`.
    pub(crate) async fn send_as<R: Request>(&mut self, client_id: &str, request: &R, version: i16) -> i32 {
        self.correlation_id += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header.encode(&mut frame, R::header_version(version)).unwrap();
        request.encode(&mut frame, version).unwrap();
        let length = (frame.len() - 4) as i32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.socket.write_all(&frame).await.unwrap();
        self.correlation_id
    }

    /// The next answer, which must be to that request.
    pub(crate) async fn receive<R: Request>(&mut self, id: i32, version: i16) -> R::Response {
        let size = self.socket.read_i32().await.unwrap();
        let mut frame = vec![0; size as usize];
        self.socket.read_exact(&mut frame).await.unwrap();
        let mut frame = Bytes::from(frame);
        let header_version = ApiKey::try_from(R::KEY).unwrap().response_header_version(version);
        assert_eq!(header_version, R::Response::header_version(version));
        assert_eq!(ResponseHeader::decode(&mut frame, header_version).unwrap().correlation_id, id);
        let response = R::Response::decode(&mut frame, version).unwrap();
        assert!(!frame.has_remaining(), "nothing is left over");
        response
    }

    pub(crate) async fn ask<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        let id = self.send(request, version).await;
        self.receive::<R>(id, version).await
    }

    pub(crate) async fn produce(&mut self, topic: &str, acks: i16, records: Bytes) -> PartitionProduceResponse {
        let response = self.ask(&produce_request(topic, acks, records), 9).await;
        response.responses[0].partition_responses[0].clone()
    }

    pub(crate) async fn fetch(&mut self, topic: &str, from: i64) -> PartitionData {
        let response = self.ask(&fetch_request(topic, from), 11).await;
        assert_eq!((response.error_code, response.session_id), (0, 0));
        response.responses[0].partitions[0].clone()
    }

    /// Returns `true` if the other side closes the connection without another byte.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.socket.read_u8().await.is_err()
    }
}

pub(crate) fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

pub(crate) fn produce_request(topic: &str, acks: i16, records: Bytes) -> ProduceRequest {
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(records));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![partition]);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

/// Of partition 0, whatever is there, at once.
pub(crate) fn fetch_request(topic: &str, from: i64) -> FetchRequest {
    let partition = FetchPartition::default().with_fetch_offset(from).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    FetchRequest::default().with_min_bytes(0).with_max_bytes(1 << 20).with_topics(vec![topic])
}

/// A batch as a producer builds it.
pub(crate) fn batch(values: &[&str], compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::default();
    for value in values {
        builder.push(&Record {
            timestamp_ms: 1_700_000_000_000,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        });
    }
    builder.seal(Offset(0), Epoch(0), compression).bytes().clone()
}

/// Values and offsets of fetched batches.
pub(crate) fn values(data: &PartitionData) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    for batch in RecordBatch::split(data.records.clone().unwrap(), &Default::default()) {
        let batch = batch.unwrap().inflated(&Default::default()).unwrap();
        for record in batch.records() {
            let record = record.unwrap();
            all.push((record.offset.0, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
        }
    }
    all
}
