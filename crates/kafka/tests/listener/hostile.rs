//! Frames that are none: each ends its own connection, and nothing else.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    ApiVersionsRequest, ElectLeadersRequest, FetchRequest, GetTelemetrySubscriptionsRequest, MetadataRequest,
};
use millstream_kafka::{Error, KafkaConfig, Listener};
use millstream_log::TopicConfig;
use millstream_types::Compression;
use tokio::io::AsyncWriteExt;

use crate::client::{Fixture, batch, produce_request};
use millstream_testkit::LogLines;

fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as i32).to_be_bytes()[..], bytes].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_frame_ends_its_own_connection_only_and_a_log_line_says_why() {
    let log_lines = LogLines::of_this_process();
    let fixture = Fixture::start(KafkaConfig { request_max_bytes: 4096, ..KafkaConfig::default() }).await;
    fixture.create("orders", &TopicConfig::default());
    let mut other = fixture.connect().await;
    let topics = [0, 3, 0, 1, 0, 0, 0, 1, 0, 1, b'c', 0x7f, 0xff, 0xff, 0xff];
    let topics_of_variable_length = [0, 3, 0, 12, 0, 0, 0, 1, 0, 1, b'c', 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let table: [(&str, Vec<u8>, &str); 7] = [
        (
            "longer than the limit",
            [&4097_i32.to_be_bytes()[..], &[0, 3, 0, 9, 0, 0, 0, 1]].concat(),
            "a request of 4097 bytes exceeds kafka.request_max_bytes = 4096",
        ),
        ("a negative length", (-1_i32).to_be_bytes().to_vec(), "a request of -1 bytes, too few for its header"),
        ("no header", frame(&[0, 3]), "a request of 2 bytes, too few for its header"),
        (
            "HTTP",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            "a request of 1195725856 bytes exceeds kafka.request_max_bytes = 4096",
        ),
        ("two thousand million topics", frame(&topics), "request of api key 3 version 1 is malformed: "),
        (
            "the same, of variable length",
            frame(&topics_of_variable_length),
            "request of api key 3 version 12 is malformed: ",
        ),
        (
            "an api that is not there",
            frame(&[0x7f, 0, 0, 0, 0, 0, 0, 1, 0, 0]),
            "api key 32512 version 0 is not served",
        ),
    ];
    for (what, bytes, why) in table {
        let mut client = fixture.connect().await;
        let peer = client.socket.local_addr().unwrap();
        client.socket.write_all(&bytes).await.unwrap();
        assert!(client.is_closed().await, "{what}");
        let line = log_lines.with(&format!("kafka: connection closed peer={peer} ")).await;
        assert!(line.contains(" WARN ") && line.contains(&format!("why={why}")), "{what}: {line}");
    }
    assert_eq!(other.produce("orders", -1, batch(&["still here"], Compression::None)).await.error_code, 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_before_a_hostile_frame_are_answered_and_a_refusal_at_acks_0_disconnects() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let id = client.send(&MetadataRequest::default(), 9).await;
    client.socket.write_all(&(-5_i32).to_be_bytes()).await.unwrap();
    assert_eq!(client.receive::<MetadataRequest>(id, 9).await.brokers.len(), 1);
    assert!(client.is_closed().await);
    let mut client = fixture.connect().await;
    client.send(&produce_request("nowhere", 0, batch(&["x"], Compression::None)), 9).await;
    assert!(client.is_closed().await);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_requests_are_answered_where_the_protocol_allows_it() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let known = client.ask(&ApiVersionsRequest::default(), 3).await;
    assert_eq!(known.error_code, 0);
    for row in &known.api_keys {
        assert!(row.min_version <= row.max_version, "{row:?}");
    }
    // Version 77 of ApiVersions, which is answered in version 0.
    client.socket.write_all(&frame(&[0, 18, 0, 77, 0, 0, 0, 2, 0, 0])).await.unwrap();
    let told = client.receive::<ApiVersionsRequest>(2, 0).await;
    assert_eq!(told.error_code, ResponseError::UnsupportedVersion.code());
    assert_eq!(told.api_keys.len(), known.api_keys.len());
    let unsupported = ResponseError::UnsupportedVersion.code();
    assert_eq!(client.ask(&FetchRequest::default(), 17).await.error_code, unsupported, "too new");
    assert_eq!(client.ask(&GetTelemetrySubscriptionsRequest::default(), 0).await.error_code, unsupported, "not there");
    assert_eq!(client.ask(&ElectLeadersRequest::default(), 2).await.error_code, unsupported);
    assert_eq!(client.ask(&MetadataRequest::default(), 9).await.brokers.len(), 1, "the connection stays");
    client.socket.write_all(&frame(&[0x7f, 1, 0, 0, 0, 0, 0, 3, 0, 0])).await.unwrap();
    assert!(client.is_closed().await, "nobody knows what an answer to that looks like");
    let mut client = fixture.connect().await;
    client.socket.write_all(&frame(&[0, 3, 0, 99, 0, 0, 0, 1, 0, 0])).await.unwrap();
    assert!(client.is_closed().await);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_over_the_limit_and_those_that_rest_too_long_are_closed() {
    let config = KafkaConfig { connections_max: 1, ..KafkaConfig::default() };
    let fixture = Fixture::start(config).await;
    let mut first = fixture.connect().await;
    first.ask(&MetadataRequest::default(), 9).await;
    let mut second = fixture.connect().await;
    second.send_as("second", &MetadataRequest::default(), 9).await;
    assert!(second.is_closed().await);
    first.ask(&MetadataRequest::default(), 9).await;
    fixture.stop().await;
    let fixture = Fixture::start(KafkaConfig { idle_timeout_ms: 1, ..KafkaConfig::default() }).await;
    assert!(fixture.connect().await.is_closed().await);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_announces_much_and_sends_little_does_not_block_others() {
    let bytes = 1 << 20;
    let config = KafkaConfig {
        request_max_bytes: bytes,
        requests_max_bytes: bytes,
        request_timeout_ms: 12_000,
        ..KafkaConfig::default()
    };
    let fixture = Fixture::start(config).await;
    fixture.create("orders", &TopicConfig::default());
    let mut patient = fixture.connect().await;
    patient.socket.write_all(&frame(&[0; 100])[..20]).await.unwrap();
    let large = frame(&vec![0; bytes - 4096]);
    let mut announcer = fixture.connect().await;
    announcer.socket.write_all(&large[..20]).await.unwrap();
    let mut hoarder = fixture.connect().await;
    hoarder.socket.write_all(&large[..32 << 10]).await.unwrap();
    assert!(hoarder.is_closed().await);
    let mut other = fixture.connect().await;
    assert_eq!(other.produce("orders", -1, batch(&["let in"], Compression::None)).await.error_code, 0);
    for (client, why) in
        [(patient, "a small one has all of its time"), (announcer, "one that sends nothing holds nothing")]
    {
        let still_open = client.socket.try_read(&mut [0; 1]);
        assert_eq!(still_open.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "{why}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn an_address_that_is_not_loopback_is_refused() {
    let refusal = Listener::bind("0.0.0.0:0".parse().unwrap(), KafkaConfig::default()).await.unwrap_err();
    assert!(matches!(refusal, Error::OpenToTheNetwork { .. }));
    assert!(refusal.to_string().contains("0.0.0.0:0"));
}
