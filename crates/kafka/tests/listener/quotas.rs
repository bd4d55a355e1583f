//! Limits of what clients write and read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::{ApiVersionsRequest, FetchRequest};
use millstream_kafka::{KafkaConfig, Listener};
use millstream_log::TopicConfig;
use millstream_net::Metrics;
use millstream_types::{Compression, QuotaConfig, QuotaType, Quotas, SystemClock, TenantId};

use crate::client::{Client, batch, fetch_request, open, produce_request};

const RATE: u64 = 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_over_its_quota_is_told_and_muted_while_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let quota = QuotaConfig {
        client_produce_bytes_per_second: RATE,
        client_fetch_bytes_per_second: RATE,
        ..QuotaConfig::default()
    };
    let quotas = Quotas::new(quota, Arc::new(SystemClock::default()));
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), KafkaConfig::default()).await.unwrap();
    let serving = listener.limited_by(Arc::clone(&quotas)).serve(log.clone(), &Metrics::default()).await;
    let orders = millstream_types::TopicName::parse("orders", &TenantId::default()).unwrap();
    millstream_log::Log::create_topic(&*log, &orders, &TopicConfig::default()).unwrap();
    let mut client = Client::connect(serving.address()).await;
    let value = "x".repeat(2 * RATE as usize);
    let (start, request) = (Instant::now(), produce_request("orders", -1, batch(&[&value], Compression::None)));
    let told = client.ask(&request, 9).await.throttle_time_ms;
    assert!((500..=2_100).contains(&told), "up to a second of the two may have been saved up: {told} ms");
    assert_eq!(
        quotas.excess(QuotaType::Produce, &TenantId::default(), "other"),
        None,
        "another client's limit is its own"
    );
    client.ask(&ApiVersionsRequest::default(), 3).await;
    assert!(
        start.elapsed() >= Duration::from_millis(told as u64 - 100),
        "it was read from after {:?}",
        start.elapsed()
    );
    let answer = client.ask::<FetchRequest>(&fetch_request("orders", 0), 11).await;
    assert!(answer.responses[0].partitions[0].records.as_ref().unwrap().len() > value.len());
    assert!(answer.throttle_time_ms > 500, "{}", answer.throttle_time_ms);
    // Whoever comes back over other connections does not get further and further ahead.
    let huge = produce_request("orders", -1, batch(&["y".repeat(800 * RATE as usize).as_str()], Compression::None));
    assert!(Client::connect(serving.address()).await.ask(&huge, 9).await.throttle_time_ms > 700_000);
    let mut again = Client::connect(serving.address()).await;
    again.send(&request, 9).await;
    assert!(again.is_closed().await);
    serving.shut_down(Duration::from_secs(5)).await;
    log.close().unwrap();
}
