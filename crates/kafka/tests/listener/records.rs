//! Records in and out.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::{FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest};
use millstream_kafka::KafkaConfig;
use millstream_log::{Cleanup, Log as _, TopicConfig, Writers};
use millstream_types::{
    BATCH_HEADER_BYTES, BatchBuilder, Compression, Epoch, Offset, Record, SystemClock, WallClock as _,
};

use crate::client::{Client, Fixture, batch, fetch_request, name, produce_request, values};

/// The time of records that [`batch`] builds.
const FIRST_MS: i64 = 1_700_000_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn produced_batches_are_fetched_unchanged_at_every_level_and_in_every_codec() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    let long = "a".repeat(500);
    let mut next = 0;
    for (acks, codec) in [-1, 1].into_iter().cycle().zip(Compression::ALL) {
        let sent = batch(&[&long, "two"], codec);
        let answer = client.produce("orders", acks, sent.clone()).await;
        assert_eq!((answer.error_code, answer.base_offset, answer.log_start_offset), (0, next, 0));
        client.send(&produce_request("orders", 0, batch(&["unasked"], Compression::None)), 9).await;
        // What is acknowledged at the topic's level covers all before it.
        let answer = client.produce("orders", -1, batch(&["last"], Compression::None)).await;
        assert_eq!(answer.base_offset, next + 3);
        let fetched = client.fetch("orders", next).await;
        // Only base offset and epoch are stamped anew.
        assert_eq!(fetched.records.clone().unwrap()[16..sent.len()], sent[16..]);
        let first = next as u64;
        let read: Vec<_> = values(&fetched);
        assert_eq!(
            read[1..],
            [(first + 1, "two".to_owned()), (first + 2, "unasked".to_owned()), (first + 3, "last".to_owned())]
        );
        next += 4;
        assert_eq!((fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset), (next, next, 0));
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_are_appended_and_answered_in_their_order() {
    let fixture = Fixture::start(KafkaConfig { in_flight_max: 4, ..KafkaConfig::default() }).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    let mut ids = Vec::new();
    for n in 0..50 {
        ids.push(client.send(&produce_request("orders", -1, batch(&[&n.to_string()], Compression::None)), 9).await);
    }
    for (n, id) in ids.into_iter().enumerate() {
        let answer = client.receive::<ProduceRequest>(id, 9).await;
        assert_eq!(answer.responses[0].partition_responses[0].base_offset, n as i64);
    }
    let read: Vec<_> = (0..50).map(|n| (n, n.to_string())).collect();
    assert_eq!(values(&client.fetch("orders", 0).await), read);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_waits_is_answered_by_the_record_that_comes() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let (mut reader, mut writer) = (fixture.connect().await, fixture.connect().await);
    let waiting = fetch_request("orders", 0).with_min_bytes(1).with_max_wait_ms(300_000);
    let id = reader.send(&waiting, 11).await;
    writer.produce("orders", -1, batch(&["now"], Compression::None)).await;
    // Well within the five minutes that it would wait.
    let answer = tokio::time::timeout(Duration::from_secs(60), reader.receive::<FetchRequest>(id, 11)).await.unwrap();
    assert_eq!(values(&answer.responses[0].partitions[0]), [(0, "now".to_owned())]);
    // One that still waits when the listener stops is answered with nothing, and in time.
    let id = reader.send(&fetch_request("orders", 1).with_min_bytes(1).with_max_wait_ms(300_000), 11).await;
    let stopping = tokio::spawn(fixture.serving.shut_down(Duration::from_secs(60)));
    let ended = tokio::time::timeout(Duration::from_secs(60), stopping).await.unwrap().unwrap();
    assert_eq!(ended, 0, "no connection had to be cut off");
    let _ = id;
    fixture.log.close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_returns_at_least_one_batch_and_then_those_that_fit() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    for n in 0..3 {
        client.produce("orders", -1, batch(&[&"x".repeat(1000), &n.to_string()], Compression::None)).await;
    }
    for (max_bytes, records) in [(1, 2), (2_500, 4), (1 << 20, 6)] {
        let answer = client.ask(&fetch_request("orders", 0).with_max_bytes(max_bytes), 11).await;
        assert_eq!(values(&answer.responses[0].partitions[0]).len(), records, "{max_bytes}");
    }
    for (from, error) in [(-1, ResponseError::OffsetOutOfRange), (99, ResponseError::OffsetOutOfRange)] {
        assert_eq!(client.fetch("orders", from).await.error_code, error.code());
    }
    assert_eq!(client.fetch("nowhere", 0).await.error_code, ResponseError::UnknownTopicOrPartition.code());
    let resumed = client.ask(&fetch_request("orders", 0).with_session_id(7), 11).await;
    assert_eq!(resumed.error_code, ResponseError::FetchSessionIdNotFound.code());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_far_behind_is_answered_in_pieces_unless_it_waits_for_more() {
    const RECORDS: u64 = 20;
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    for _ in 0..RECORDS {
        client.produce("orders", 1, batch(&[&"x".repeat(100_000)], Compression::None)).await;
    }
    // What was stored before a start is read from segments.
    let fixture = fixture.restart(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let (mut next, mut answers) = (0, 0);
    while next < RECORDS {
        let read = values(&client.fetch("orders", next.cast_signed()).await);
        assert_eq!(read.first().map(|(offset, _)| *offset), Some(next));
        assert!(read.len() <= 5, "{} bytes at once", read.len() * 100_000);
        next += read.len() as u64;
        answers += 1;
    }
    assert!(answers < RECORDS, "more than one record is in an answer");
    let waits = fetch_request("orders", 0).with_min_bytes(900_000).with_max_wait_ms(60_000);
    let answer = client.ask(&waits, 11).await;
    assert!(values(&answer.responses[0].partitions[0]).len() >= 9);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_waits_for_more_than_a_segment_reads_the_next_ones_at_once() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig { segment_bytes: 150_000, ..TopicConfig::default() });
    let mut client = fixture.connect().await;
    for _ in 0..10 {
        client.produce("orders", 1, batch(&[&"x".repeat(100_000)], Compression::None)).await;
    }
    let fixture = fixture.restart(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let waits = fetch_request("orders", 0).with_min_bytes(400_000).with_max_wait_ms(60_000);
    let answer = client.ask(&waits, 11).await;
    assert!(values(&answer.responses[0].partitions[0]).len() >= 4, "it has not waited in vain");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_of_very_many_partitions_in_segments_returns_records_of_each() {
    const PARTITIONS: u32 = 20;
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig { partitions: PARTITIONS, ..TopicConfig::default() });
    let mut client = fixture.connect().await;
    for partition in 0..PARTITIONS {
        let value = format!("{partition}{}", "x".repeat(20_000));
        let mut request = produce_request("orders", 1, batch(&[&value], Compression::None));
        request.topic_data[0].partition_data[0].index = partition.cast_signed();
        client.ask(&request, 9).await;
    }
    let fixture = fixture.restart(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let mut request = fetch_request("orders", 0);
    let one = request.topics[0].partitions[0].clone();
    request.topics[0].partitions =
        (0..PARTITIONS).map(|partition| one.clone().with_partition(partition.cast_signed())).collect();
    let answer = client.ask(&request.with_max_bytes(8 << 20), 11).await;
    for (number, partition) in answer.responses[0].partitions.iter().enumerate() {
        let read = values(partition);
        assert_eq!(read.len(), 1, "partition {number}");
        assert!(read[0].1.starts_with(&format!("{number}x")));
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_found_by_their_end_and_by_time() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    assert_eq!(listed(&mut client, -3, 10).await, (0, -1, -1), "an empty partition has no latest record");
    client.produce("orders", -1, batch(&["a", "b"], Compression::Zstd)).await;
    let found = [(-2, (0, 0, -1)), (-1, (0, 2, -1)), (0, (0, 0, FIRST_MS)), (FIRST_MS + 1, (0, -1, -1))];
    for (time, found) in found {
        for version in 1..=10 {
            assert_eq!(listed(&mut client, time, version).await, found, "{time} in version {version}");
        }
    }
    fixture.stop().await;
}

/// Code, offset and time that are found for a time in `orders` 0.
async fn listed(client: &mut Client, time: i64, version: i16) -> (i16, i64, i64) {
    let partition = ListOffsetsPartition::default().with_timestamp(time);
    let topic = ListOffsetsTopic::default().with_name(name("orders")).with_partitions(vec![partition]);
    let answer = client.ask(&ListOffsetsRequest::default().with_topics(vec![topic]), version).await;
    let answer = &answer.topics[0].partitions[0];
    (answer.error_code, answer.offset, answer.timestamp)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_latest_record_and_the_local_and_remote_ends_are_found_since_their_versions() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    let at = |time_ms: i64, value: &str| {
        let mut builder = BatchBuilder::default();
        builder.push(&Record { timestamp_ms: time_ms, value: Some(value.as_bytes()), ..Record::default() });
        builder.seal(Offset(0), Epoch(0), Compression::Lz4).bytes().clone()
    };
    for (time_ms, value) in [(7, "a"), (FIRST_MS + 5, "b"), (FIRST_MS + 5, "c"), (12, "d")] {
        client.produce("orders", -1, at(time_ms, value)).await;
    }
    let unsupported = ResponseError::UnsupportedVersion.code();
    let since = [(-3, 7, (0, 1, FIRST_MS + 5)), (-4, 8, (0, 0, -1)), (-5, 9, (0, -1, -1))];
    for (time, since, found) in since {
        assert_eq!(listed(&mut client, time, since - 1).await, (unsupported, -1, -1), "{time}");
        for version in since..=10 {
            assert_eq!(listed(&mut client, time, version).await, found, "{time} in version {version}");
        }
    }
    assert_eq!(listed(&mut client, -6, 10).await.0, unsupported);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_cannot_be_stored_is_refused_with_its_own_code() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig { record_max_bytes: 2000, ..TopicConfig::default() });
    fixture.create("context.default", &TopicConfig { writers: Writers::OwnersOnly, ..TopicConfig::default() });
    fixture.create("_registry", &TopicConfig::default());
    let good = batch(&["x"], Compression::None);
    let changed = |at: usize, to: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = to;
        bytes
    };
    // As a program would send them that means them so.
    let meant = |at: usize, to: u8| {
        let mut bytes = changed(at, to);
        let crc = crc32c::crc32c(&bytes[21..]).to_be_bytes();
        bytes[17..21].copy_from_slice(&crc);
        bytes
    };
    let two = [good.to_vec(), good.to_vec()].concat();
    let table = [
        ("context.default", good.to_vec(), ResponseError::TopicAuthorizationFailed),
        ("_registry", good.to_vec(), ResponseError::TopicAuthorizationFailed),
        ("nowhere", good.to_vec(), ResponseError::UnknownTopicOrPartition),
        ("a b", good.to_vec(), ResponseError::InvalidTopicException),
        ("orders", changed(good.len() - 1, 9), ResponseError::CorruptMessage),
        ("orders", changed(16, 1), ResponseError::UnsupportedForMessageFormat),
        ("orders", changed(22, 7), ResponseError::UnsupportedCompressionType),
        ("orders", two, ResponseError::InvalidRecord),
        ("orders", Vec::new(), ResponseError::InvalidRecord),
        ("orders", good[..30].to_vec(), ResponseError::InvalidRecord),
        ("orders", batch(&["y".repeat(3000).as_str()], Compression::None).to_vec(), ResponseError::MessageTooLarge),
        ("orders", batch(&["y".repeat(3000).as_str()], Compression::Zstd).to_vec(), ResponseError::MessageTooLarge),
        ("orders", meant(22, 4), ResponseError::InvalidRecord),
        ("orders", meant(BATCH_HEADER_BYTES, 2), ResponseError::InvalidRecord),
        ("orders", meant(22, 8), ResponseError::InvalidTimestamp),
        ("orders", meant(27, 0xff), ResponseError::InvalidTimestamp),
    ];
    let mut client = fixture.connect().await;
    for (topic, records, error) in table {
        let answer = client.produce(topic, -1, records.into()).await;
        assert_eq!(answer.error_code, error.code(), "{topic}: {:?}", answer.error_message);
        assert!(answer.error_message.unwrap().len() > 10);
    }
    let answer = client.produce("orders", 3, good.clone()).await;
    assert_eq!(answer.error_code, ResponseError::InvalidRequiredAcks.code());
    // What is not Millstream's own to hide can be read.
    assert_eq!(client.fetch("context.default", 0).await.error_code, 0);
    assert_eq!(client.fetch("_registry", 0).await.error_code, ResponseError::TopicAuthorizationFailed.code());
    assert_eq!(client.produce("orders", -1, good).await.base_offset, 0);
    let all = client.ask(&MetadataRequest::default().with_topics(None), 9).await;
    let names: Vec<_> = all.topics.iter().map(|topic| topic.name.clone().unwrap().to_string()).collect();
    assert_eq!(names, ["context.default", "orders"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_produce_request_that_is_too_large_is_answered_for_each_partition_and_ends_nothing() {
    let fixture = Fixture::start(KafkaConfig { request_max_bytes: 16 << 10, ..KafkaConfig::default() }).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    for version in 3..=11 {
        let records = batch(&[&"x".repeat(100 << 10)], Compression::None);
        let mut request = produce_request("orders", -1, records.clone());
        let second = PartitionProduceData::default().with_index(1).with_records(Some(batch(&["y"], Compression::None)));
        request.topic_data[0].partition_data.push(second);
        request.topic_data.push(produce_request("elsewhere", -1, records).topic_data.swap_remove(0));
        let answer = client.ask(&request, version).await;
        let codes = answer.responses.iter().flat_map(|topic| {
            topic.partition_responses.iter().map(|of| (topic.name.as_str(), of.index, of.error_code))
        });
        let too_large = ResponseError::MessageTooLarge.code();
        let expected = [("orders", 0, too_large), ("orders", 1, too_large), ("elsewhere", 0, too_large)];
        assert_eq!(codes.collect::<Vec<_>>(), expected, "version {version}");
        let small = batch(&["fits"], Compression::None);
        assert_eq!(client.produce("orders", -1, small).await.error_code, 0, "version {version}");
    }
    assert_eq!(values(&client.fetch("orders", 0).await).len(), 9);
    let unasked = produce_request("orders", 0, batch(&[&"x".repeat(100 << 10)], Compression::None));
    client.send(&unasked, 9).await;
    assert!(client.is_closed().await, "without an answer there is no other way to tell");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_fetched_by_its_id_and_a_recreated_topic_has_another_id() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    client.produce("orders", -1, batch(&["one"], Compression::None)).await;
    let id = fixture.log.topics()[0].id;
    for version in 13..=16 {
        let mut request = fetch_request("orders", 0);
        request.topics[0].topic_id = uuid::Uuid::from_u128(id.0);
        let answer = client.ask(&request, version).await;
        assert_eq!(answer.responses[0].topic_id.as_u128(), id.0);
        assert_eq!(values(&answer.responses[0].partitions[0]), [(0, "one".to_owned())], "version {version}");
    }
    let name = fixture.log.topics()[0].name.clone();
    fixture.log.delete_topic(&name).unwrap();
    fixture.create("orders", &TopicConfig::default());
    let mut request = fetch_request("orders", 0);
    request.topics[0].topic_id = uuid::Uuid::from_u128(id.0);
    let answer = client.ask(&request, 13).await;
    assert_eq!(answer.responses[0].partitions[0].error_code, ResponseError::UnknownTopicId.code());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_for_which_a_batch_is_refused_is_named_since_version_8() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("states", &TopicConfig { cleanup: Cleanup::Compact, ..TopicConfig::default() });
    let mut client = fixture.connect().await;
    let mut builder = BatchBuilder::default();
    for key in [Some(&b"a"[..]), Some(b"b"), None, Some(b"c"), None] {
        builder.push(&Record { key, value: Some(b"x"), ..Record::default() });
    }
    let keyless = builder.seal(Offset(0), Epoch(0), Compression::None).bytes().clone();
    for version in 3..=11 {
        let answer = client.ask(&produce_request("states", -1, keyless.clone()), version).await;
        let answer = &answer.responses[0].partition_responses[0];
        assert_eq!((answer.error_code, answer.base_offset), (ResponseError::InvalidRecord.code(), -1));
        let named: Vec<_> = answer.record_errors.iter().map(|error| error.batch_index).collect();
        assert_eq!(named, if version >= 8 { &[2][..] } else { &[] }, "version {version}");
        let told = answer.record_errors.iter().filter_map(|error| error.batch_index_error_message.as_ref());
        assert!(told.into_iter().all(|why| why.contains("record 2") && why.contains("has no key")));
    }
    assert_eq!(client.produce("states", -1, batch(&["x"], Compression::None)).await.record_errors.len(), 1);
    let other = client.produce("nowhere", -1, keyless).await;
    assert!(other.error_code != 0 && other.record_errors.is_empty(), "no record is at fault");
    fixture.stop().await;
}

/// A batch whose records have these times, in ms from now on.
fn timed(from_now_ms: &[i64], codec: Compression) -> Bytes {
    let now_ms = SystemClock::default().now_ms();
    let mut builder = BatchBuilder::default();
    for from_now in from_now_ms {
        builder.push(&Record { timestamp_ms: now_ms + from_now, value: Some(b"x"), ..Record::default() });
    }
    builder.seal(Offset(0), Epoch(0), codec).bytes().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_time_far_ahead_are_refused_unless_the_settings_say_otherwise() {
    const HOUR_MS: i64 = 3_600_000;
    let refused = ResponseError::InvalidTimestamp.code();
    let far = 400 * 24 * HOUR_MS;
    for (config, table) in [
        (KafkaConfig::default(), [(HOUR_MS / 2, 0), (2 * HOUR_MS, refused), (-far, 0), (far, refused)]),
        (
            KafkaConfig { message_timestamp_after_max_ms: i64::MAX as u64, ..KafkaConfig::default() },
            [(HOUR_MS / 2, 0), (2 * HOUR_MS, 0), (-far, 0), (far, 0)],
        ),
        (
            KafkaConfig { message_timestamp_after_max_ms: 3 * HOUR_MS as u64, ..KafkaConfig::default() },
            [(HOUR_MS / 2, 0), (2 * HOUR_MS, 0), (4 * HOUR_MS, refused), (far, refused)],
        ),
    ] {
        let fixture = Fixture::start(config).await;
        fixture.create("orders", &TopicConfig::default());
        fixture.create("stamped", &TopicConfig { append_time: true, ..TopicConfig::default() });
        let mut client = fixture.connect().await;
        for (from_now_ms, code) in table {
            for codec in [Compression::None, Compression::Zstd] {
                let answer = client.produce("orders", -1, timed(&[0, from_now_ms, -1], codec)).await;
                assert_eq!(answer.error_code, code, "{from_now_ms}: {:?}", answer.error_message);
                let named: Vec<_> = answer.record_errors.iter().map(|error| error.batch_index).collect();
                assert_eq!(named, if code == 0 { &[][..] } else { &[1] });
            }
        }
        let stamped = client.produce("stamped", -1, timed(&[far], Compression::None)).await;
        assert_eq!(stamped.error_code, 0, "its records get the server's time");
        fixture.stop().await;
    }
}

/// Flips a bit of the stored record with that value.
fn damage(dir: &std::path::Path, value: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return damage(&path, value);
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let Some(at) = bytes.windows(value.len()).position(|window| window == value) else { return false };
        bytes[at] ^= 1;
        path.extension().is_some_and(|kind| kind == "segment") && std::fs::write(&path, bytes).is_ok()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_over_damage_returns_the_records_before_it_and_one_at_the_damage_is_refused() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig { partitions: 1, ..TopicConfig::default() });
    let mut client = fixture.connect().await;
    // Each takes a block of its own.
    for n in 0..4 {
        let value = format!("record {n} {}", "x".repeat(200_000));
        client.produce("orders", -1, batch(&[&value], Compression::None)).await;
    }
    drop(client);
    let fixture = fixture.restart_damaged(KafkaConfig::default(), |dir| assert!(damage(dir, b"record 2"))).await;
    let mut client = fixture.connect().await;
    let offsets = |data| values(&data).into_iter().map(|(offset, _)| offset).collect::<Vec<_>>();
    // With and without a wait for more.
    assert_eq!(offsets(client.fetch("orders", 0).await), [0, 1]);
    let large = fetch_request("orders", 0).with_min_bytes(800_000).with_max_wait_ms(100);
    assert_eq!(offsets(client.ask(&large, 11).await.responses[0].partitions[0].clone()), [0, 1]);
    for _ in 0..2 {
        let refused = client.fetch("orders", 2).await;
        assert_eq!(refused.error_code, ResponseError::CorruptMessage.code());
        assert!(refused.records.is_none_or(|records| records.is_empty()));
    }
    assert_eq!(offsets(client.fetch("orders", 3).await), [3]);
    fixture.stop().await;
}
