//! The share of clients in the memory budget, and the answers when it has no room.

use kafka_protocol::messages::MetadataRequest;
use millstream_kafka::{KafkaConfig, Listener};
use millstream_log::{Log, TopicConfig};
use millstream_net::Metrics;
use millstream_types::{Compression, MemoryBudget, TenantId};
use tokio::time::{Duration, sleep, timeout};

use crate::client::{Client, batch, fetch_request, open};

const PATIENCE: Duration = Duration::from_secs(60);

/// Until no more than `bytes` are taken: an answer is given back once it is written.
async fn until_used(memory: &MemoryBudget, bytes: u64) {
    let given_back = async {
        while memory.used_bytes() > bytes {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, given_back).await.is_ok(), "{} bytes are still taken", memory.used_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetched_records_and_connections_take_from_the_budget_wait_for_it_and_give_back() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let memory = MemoryBudget::new("memory.budget_bytes", 4 << 20);
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), KafkaConfig::default()).await.unwrap();
    let serving = listener.drawing_on(&memory).serve(log.clone(), &Metrics::default()).await;
    let orders = millstream_types::TopicName::parse("orders", &TenantId::default()).unwrap();
    log.create_topic(&orders, &TopicConfig::default()).unwrap();
    let mut client = Client::connect(serving.address()).await;
    let value = "x".repeat(500_000);
    assert_eq!(client.produce("orders", -1, batch(&[&value], Compression::None)).await.error_code, 0);
    let records = |data: kafka_protocol::messages::fetch_response::PartitionData| data.records.map_or(0, |r| r.len());
    assert!(records(client.fetch("orders", 0).await) > value.len());
    // One connection, whose read buffer has grown by what it was sent.
    until_used(&memory, 200_000).await;
    let resting_bytes = memory.used_bytes();
    assert!(resting_bytes > 0, "a connection counts");

    let rest = memory.take(memory.limit_bytes() - memory.used_bytes()).unwrap();
    let waited = client.fetch("orders", 0).await;
    assert_eq!((waited.error_code, waited.high_watermark, records(waited)), (0, 1, 0), "no room, and no error");
    assert!(Client::connect(serving.address()).await.is_closed().await);
    client.ask(&MetadataRequest::default(), 9).await;
    // A fetch that may wait gets the records once there is room.
    let id = client.send(&fetch_request("orders", 0).with_max_wait_ms(60_000).with_min_bytes(1), 11).await;
    drop(rest);
    let fetched = client.receive::<kafka_protocol::messages::FetchRequest>(id, 11).await;
    assert!(records(fetched.responses[0].partitions[0].clone()) > value.len());
    until_used(&memory, resting_bytes).await;
    drop(client);
    until_used(&memory, 0).await;
    serving.shut_down(Duration::from_secs(5)).await;
    log.close().unwrap();
}
