//! Transactions over a socket.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError as E;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ApiVersionsRequest, EndTxnRequest, FindCoordinatorRequest,
    GroupId, InitProducerIdRequest, ListOffsetsRequest, ListTransactionsRequest, ListTransactionsResponse,
    OffsetFetchRequest, ProduceRequest, ProducerId, TransactionalId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka::KafkaConfig;
use millstream_log::{Log as _, TopicConfig, UpTo};
use millstream_types::{
    BatchBuilder, Compression, Epoch, Offset, Producer, Record, RecordBatch, TenantId, TopicPartition,
};

use crate::client::{Client, Fixture, batch, fetch_request, name, produce_request};

const LATEST: i64 = -1;

fn id(text: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(text.to_owned()))
}

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str("readers"))
}

/// A producer of a transactional id, over one connection.
struct Transacting {
    client: Client,
    id: String,
    producer: ProducerId,
    epoch: i16,
    sequence: i32,
    /// Of its requests; each kind is asked in the highest that is served up to it.
    version: i16,
}

impl Transacting {
    async fn take_over(fixture: &Fixture, id: &str, version: i16) -> Self {
        let client = fixture.connect().await;
        let mut this = Self { client, id: id.to_owned(), producer: ProducerId(-1), epoch: -1, sequence: 0, version };
        assert_eq!(this.init(60_000).await, 0);
        this
    }

    async fn init(&mut self, timeout_ms: i32) -> i16 {
        let mut request = InitProducerIdRequest::default()
            .with_transactional_id(Some(id(&self.id)))
            .with_transaction_timeout_ms(timeout_ms);
        if self.version >= 3 {
            (request.producer_id, request.producer_epoch) = (self.producer, self.epoch);
        }
        let answer = self.client.ask(&request, self.version.min(4)).await;
        if answer.error_code == 0 {
            (self.producer, self.epoch, self.sequence) = (answer.producer_id, answer.producer_epoch, 0);
        }
        answer.error_code
    }

    async fn add(&mut self, topic: &str) -> i16 {
        let topic = AddPartitionsToTxnTopic::default().with_name(name(topic)).with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(id(&self.id))
            .with_v3_and_below_producer_id(self.producer)
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![topic]);
        let answer = self.client.ask(&request, self.version.min(3)).await;
        answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    }

    fn batch(&mut self, values: &[&str]) -> Bytes {
        let mut builder = BatchBuilder::default();
        for value in values {
            builder.push(&Record { value: Some(value.as_bytes()), ..Record::default() });
        }
        builder.set_producer(Producer { id: self.producer.0, epoch: self.epoch, base_sequence: self.sequence });
        builder.set_transactional();
        builder.seal(Offset(0), Epoch(0), Compression::None).bytes().clone()
    }

    async fn produce(&mut self, topic: &str, values: &[&str]) -> i16 {
        let batch = self.batch(values);
        let request = produce_request(topic, -1, batch).with_transactional_id(Some(id(&self.id)));
        let answer = self.client.ask(&request, 9).await.responses[0].partition_responses[0].clone();
        if answer.error_code == 0 {
            self.sequence += values.len() as i32;
        }
        answer.error_code
    }

    async fn add_offsets(&mut self) -> i16 {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(id(&self.id))
            .with_producer_id(self.producer)
            .with_producer_epoch(self.epoch)
            .with_group_id(group());
        self.client.ask(&request, self.version.min(3)).await.error_code
    }

    /// A position of the group `readers` in `orders` 0.
    async fn commit_offset(&mut self, offset: i64, generation: i32) -> i16 {
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default().with_name(name("orders")).with_partitions(vec![partition]);
        let mut request = TxnOffsetCommitRequest::default()
            .with_transactional_id(id(&self.id))
            .with_producer_id(self.producer)
            .with_producer_epoch(self.epoch)
            .with_group_id(group())
            .with_topics(vec![topic]);
        if self.version >= 3 {
            request.generation_id = generation;
        }
        self.client.ask(&request, self.version.min(3)).await.topics[0].partitions[0].error_code
    }

    async fn end(&mut self, committed: bool) -> i16 {
        let request = EndTxnRequest::default()
            .with_transactional_id(id(&self.id))
            .with_producer_id(self.producer)
            .with_producer_epoch(self.epoch)
            .with_committed(committed);
        self.client.ask(&request, self.version.min(3)).await.error_code
    }
}

/// Requests of version 2 of transactions (KIP-890).
impl Transacting {
    async fn send(&mut self, values: &[&str]) -> i32 {
        let batch = self.batch(values);
        self.sequence += values.len() as i32;
        let request = produce_request("orders", -1, batch).with_transactional_id(Some(id(&self.id)));
        self.client.send(&request, 12).await
    }

    async fn sent(&mut self, request: i32) -> i16 {
        self.client.receive::<ProduceRequest>(request, 12).await.responses[0].partition_responses[0].error_code
    }

    /// Sends a batch whose partition was not added.
    async fn produce_at_once(&mut self, values: &[&str]) -> i16 {
        let before = self.sequence;
        let request = self.send(values).await;
        let code = self.sent(request).await;
        if code != 0 {
            self.sequence = before;
        }
        code
    }

    /// Error, producer id and epoch of the answer.
    async fn try_end_epoch(&mut self, committed: bool) -> (i16, ProducerId, i16) {
        let request = EndTxnRequest::default()
            .with_transactional_id(id(&self.id))
            .with_producer_id(self.producer)
            .with_producer_epoch(self.epoch)
            .with_committed(committed);
        let answer = self.client.ask(&request, 5).await;
        (answer.error_code, answer.producer_id, answer.producer_epoch)
    }

    async fn end_epoch(&mut self, committed: bool) -> i16 {
        let (code, producer, epoch) = self.try_end_epoch(committed).await;
        if code == 0 {
            assert_eq!(epoch, self.epoch + 1);
            (self.producer, self.epoch, self.sequence) = (producer, epoch, 0);
        }
        code
    }

    async fn commit_offset_at_once(&mut self, offset: i64) -> i16 {
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default().with_name(name("orders")).with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(id(&self.id))
            .with_producer_id(self.producer)
            .with_producer_epoch(self.epoch)
            .with_group_id(group())
            .with_topics(vec![topic]);
        self.client.ask(&request, 5).await.topics[0].partitions[0].error_code
    }
}

/// Returns the records that a reader of that isolation level gets of `orders` 0 up to its end, the number of batches
/// that are markers, and the last answer that had records.
async fn fetched(client: &mut Client, isolation: i8) -> (Vec<String>, usize, PartitionData) {
    let (mut values, mut markers, mut from, mut last) = (Vec::new(), 0, 0, None);
    loop {
        let request = fetch_request("orders", from).with_isolation_level(isolation);
        let data = client.ask(&request, 11).await.responses[0].partitions[0].clone();
        let batches = RecordBatch::split(data.records.clone().unwrap(), &Default::default());
        let batches: Vec<_> = batches.map(Result::unwrap).collect();
        let Some(end) = batches.last() else { return (values, markers, last.unwrap_or(data)) };
        from = end.next_offset().0 as i64;
        for batch in &batches {
            markers += usize::from(batch.is_control());
            let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
            let records = batch.records().filter(|_| !batch.is_control());
            values.extend(records.map(|record| text(record.unwrap().value.unwrap())));
        }
        last = Some(data);
    }
}

/// The end of `orders` 0, as a reader of that isolation level is told.
async fn end_of(client: &mut Client, isolation: i8) -> i64 {
    let partition = ListOffsetsPartition::default().with_timestamp(LATEST);
    let topic = ListOffsetsTopic::default().with_name(name("orders")).with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default().with_topics(vec![topic]).with_isolation_level(isolation);
    client.ask(&request, 6).await.topics[0].partitions[0].offset
}

/// Error and position of `readers` in `orders` 0.
async fn position(client: &mut Client, require_stable: bool) -> (i16, i64) {
    let topics = OffsetFetchRequestTopics::default().with_name(name("orders")).with_partition_indexes(vec![0]);
    let wanted = OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(Some(vec![topics]));
    let request = OffsetFetchRequest::default().with_groups(vec![wanted]).with_require_stable(require_stable);
    let found = client.ask(&request, 8).await.groups[0].topics[0].partitions[0].clone();
    (found.error_code, found.committed_offset)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_and_positions_take_effect_with_the_commit_in_every_version() {
    for version in 0..=4 {
        let fixture = Fixture::start(KafkaConfig::default()).await;
        fixture.create("orders", &TopicConfig::default());
        let mut reader = fixture.connect().await;
        let found = FindCoordinatorRequest::default().with_key_type(1).with_key(StrBytes::from_static_str("t"));
        assert_eq!(reader.ask(&found, 3).await.error_code, 0);
        let mut producer = Transacting::take_over(&fixture, "t", version).await;
        assert_eq!((producer.add("orders").await, producer.produce("orders", &["a", "b"]).await), (0, 0));
        assert_eq!((producer.add_offsets().await, producer.commit_offset(1, -1).await), (0, 0), "version {version}");
        // Nothing of it counts yet.
        let (values, _, data) = fetched(&mut reader, 1).await;
        assert_eq!((values, data.high_watermark, data.last_stable_offset), (Vec::new(), 2, 0));
        assert_eq!(fetched(&mut reader, 0).await.0, ["a", "b"]);
        assert_eq!((end_of(&mut reader, 0).await, end_of(&mut reader, 1).await), (2, 0));
        assert_eq!(position(&mut reader, false).await, (0, -1));
        assert_eq!(position(&mut reader, true).await, (E::UnstableOffsetCommit.code(), -1));
        assert_eq!((producer.end(true).await, producer.end(true).await), (0, 0), "sent again");
        assert_eq!(producer.end(false).await, E::InvalidTxnState.code());
        let (values, markers, data) = fetched(&mut reader, 1).await;
        assert_eq!((values.len(), markers, data.last_stable_offset), (2, 1, 3));
        assert_eq!(data.aborted_transactions.unwrap(), []);
        assert_eq!(position(&mut reader, true).await, (0, 1));
        fixture.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_committed_fetches_name_aborted_transactions_and_an_abort_moves_no_position() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut reader = fixture.connect().await;
    let mut producer = Transacting::take_over(&fixture, "t", 4).await;
    assert_eq!((producer.add("orders").await, producer.produce("orders", &["a"]).await), (0, 0));
    assert_eq!((producer.add_offsets().await, producer.commit_offset(1, -1).await), (0, 0));
    assert_eq!(producer.end(false).await, 0);
    let (_, markers, data) = fetched(&mut reader, 1).await;
    let aborted = data.aborted_transactions.unwrap();
    assert_eq!((markers, aborted.len(), aborted[0].producer_id, aborted[0].first_offset), (1, 1, producer.producer, 0));
    assert_eq!(fetched(&mut reader, 0).await.2.aborted_transactions, None);
    assert_eq!(position(&mut reader, true).await, (0, -1));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_outside_the_open_transaction_are_refused_and_store_nothing() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    ["orders", "other"].into_iter().for_each(|topic| fixture.create(topic, &TopicConfig::default()));
    let mut plain = fixture.connect().await;
    let mut producer = Transacting::take_over(&fixture, "t", 4).await;
    let invalid = E::InvalidTxnState.code();
    assert_eq!((producer.produce("orders", &["x"]).await, producer.end(true).await), (invalid, invalid));
    assert_eq!(producer.commit_offset(0, -1).await, invalid);
    assert_eq!(producer.add("nowhere").await, E::UnknownTopicOrPartition.code());
    assert_eq!(producer.add("_transactions").await, E::TopicAuthorizationFailed.code());
    assert_eq!(producer.add("orders").await, 0);
    assert_eq!(producer.produce("other", &["x"]).await, invalid);
    // Batches of this producer that come in no transaction, or in somebody else's.
    let batch_of_it = producer.batch(&["x"]);
    assert_eq!(plain.produce("orders", -1, batch_of_it.clone()).await.error_code, invalid);
    let mut stranger = Transacting::take_over(&fixture, "stranger", 4).await;
    assert_eq!(stranger.add("orders").await, 0);
    let foreign = produce_request("orders", -1, batch_of_it).with_transactional_id(Some(id("stranger")));
    let answer = stranger.client.ask(&foreign, 9).await.responses[0].partition_responses[0].clone();
    assert_eq!(answer.error_code, E::InvalidProducerIdMapping.code());
    let mut builder = BatchBuilder::default();
    builder.push(&Record { value: Some(b"x"), ..Record::default() });
    builder.set_producer(Producer { id: producer.producer.0, epoch: i16::MAX, base_sequence: 0 });
    let fencing = builder.seal(Offset(0), Epoch(0), Compression::None).bytes().clone();
    assert_eq!(plain.produce("orders", -1, fencing).await.error_code, invalid);
    // A generation that the group does not have.
    assert_eq!((producer.add_offsets().await, producer.commit_offset(0, 7).await), (0, E::IllegalGeneration.code()));
    // None of it has harmed the producer.
    assert_eq!((producer.produce("orders", &["a"]).await, producer.end(true).await), (0, 0));
    assert_eq!(fetched(&mut plain, 0).await.0, ["a"]);
    for timeout_ms in [0, -1, 900_001] {
        assert_eq!(producer.init(timeout_ms).await, E::InvalidTransactionTimeout.code());
    }
    assert_eq!(plain.produce("orders", -1, batch(&["plain"], Compression::None)).await.error_code, 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_aborts_the_transaction_and_fences_the_old_producer() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut reader = fixture.connect().await;
    for (version, fenced) in [(1, E::InvalidProducerEpoch), (4, E::ProducerFenced)] {
        let fenced = fenced.code();
        let mut old = Transacting::take_over(&fixture, "t", version).await;
        assert_eq!((old.add("orders").await, old.produce("orders", &["old"]).await), (0, 0));
        let mut new = Transacting::take_over(&fixture, "t", 4).await;
        assert_eq!((old.end(true).await, old.add("orders").await, old.add_offsets().await), (fenced, fenced, fenced));
        let by_epoch = E::InvalidProducerEpoch.code();
        assert_eq!((old.produce("orders", &["old"]).await, old.commit_offset(0, -1).await), (by_epoch, by_epoch));
        if version >= 3 {
            assert_eq!(old.init(60_000).await, fenced);
        }
        assert_eq!((new.add("orders").await, new.produce("orders", &["new"]).await, new.end(true).await), (0, 0, 0));
        let (_, _, data) = fetched(&mut reader, 1).await;
        assert_eq!(data.last_stable_offset, data.high_watermark);
        // One that comes back with what it had goes on under another epoch.
        assert_eq!((new.init(60_000).await, new.add("orders").await), (0, 0));
        assert_eq!((new.produce("orders", &["newer"]).await, new.end(true).await), (0, 0));
    }
    let aborted = fetched(&mut reader, 1).await.2.aborted_transactions.unwrap();
    assert_eq!(aborted.len(), 2);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_time_is_up_is_aborted() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut reader = fixture.connect().await;
    let mut producer = Transacting::take_over(&fixture, "t", 4).await;
    assert_eq!(producer.init(1).await, 0);
    assert_eq!(producer.add("orders").await, 0);
    let produced = producer.produce("orders", &["late"]).await;
    assert!([0, E::InvalidProducerEpoch.code()].contains(&produced), "{produced}");
    let fenced = async {
        while producer.add("orders").await != E::ProducerFenced.code() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), fenced).await.unwrap();
    assert_eq!(producer.end(true).await, E::ProducerFenced.code());
    assert_eq!(end_of(&mut reader, 1).await, end_of(&mut reader, 0).await);
    let aborted = fetched(&mut reader, 1).await.2.aborted_transactions.unwrap();
    assert_eq!(aborted.len(), usize::from(produced == 0), "its record, if it came in time, does not count");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_goes_on_after_a_restart() {
    let mut fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut producer = Transacting::take_over(&fixture, "t", 4).await;
    assert_eq!((producer.add("orders").await, producer.produce("orders", &["a"]).await), (0, 0));
    assert_eq!((producer.add_offsets().await, producer.commit_offset(1, -1).await), (0, 0));
    fixture = fixture.restart(KafkaConfig::default()).await;
    producer.client = fixture.connect().await;
    let mut reader = fixture.connect().await;
    assert_eq!(position(&mut reader, true).await, (E::UnstableOffsetCommit.code(), -1));
    assert_eq!(fetched(&mut reader, 1).await.0, [] as [&str; 0]);
    assert_eq!((producer.produce("orders", &["b"]).await, producer.end(true).await), (0, 0));
    assert_eq!(fetched(&mut reader, 1).await.0, ["a", "b"]);
    assert_eq!(position(&mut reader, true).await, (0, 1));
    // Ids of plain idempotent producers are others than that of the transactional one.
    let plain = InitProducerIdRequest::default().with_transactional_id(None);
    let answer = reader.ask(&plain, 4).await;
    assert!(answer.error_code == 0 && answer.producer_id != producer.producer);
    fixture.stop().await;
}

/// The committed records of `orders` 0.
fn committed(fixture: &Fixture) -> Vec<String> {
    let orders = millstream_types::TopicName::parse("orders", &TenantId::default()).unwrap();
    let partition = fixture.log.partition(&TopicPartition::new(orders, 0)).unwrap();
    let (mut values, mut from) = (Vec::new(), Offset(0));
    loop {
        let batches = partition.read(from, 1 << 20, UpTo::Tail).unwrap();
        let Some(end) = batches.last() else { return values };
        from = end.next_offset();
        let records = batches.iter().flat_map(RecordBatch::records).map(Result::unwrap);
        values.extend(records.map(|record| String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_version_2_add_nothing_beforehand_and_have_an_epoch_for_each_transaction() {
    let mut fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut reader = fixture.connect().await;
    let told = reader.ask(&ApiVersionsRequest::default(), 3).await;
    let level = told.finalized_features.iter().find(|feature| *feature.name == *"transaction.version").unwrap();
    assert_eq!((level.max_version_level, told.finalized_features_epoch), (2, 0));
    let mut producer = Transacting::take_over(&fixture, "t", 4).await;
    let mut kept = Vec::new();
    for (round, commit) in [true, false, true].into_iter().enumerate() {
        let value = format!("{round}");
        // Several requests on their way: all wait for the partition, and come in order.
        let requests = [producer.send(&[&value]).await, producer.send(&["b"]).await, producer.send(&["c"]).await];
        for request in requests {
            assert_eq!(producer.sent(request).await, 0);
        }
        assert_eq!(producer.commit_offset_at_once(round as i64 + 1).await, 0);
        assert_eq!(position(&mut reader, true).await.0, E::UnstableOffsetCommit.code());
        if round == 0 {
            fixture = fixture.restart(KafkaConfig::default()).await;
            (producer.client, reader) = (fixture.connect().await, fixture.connect().await);
            assert_eq!(producer.produce_at_once(&["d"]).await, 0);
        }
        let before = (producer.producer, producer.epoch);
        let late = producer.batch(&["late"]);
        assert_eq!(producer.end_epoch(commit).await, 0);
        let after = (producer.producer, producer.epoch);
        if commit {
            kept.extend([value, "b".to_owned(), "c".to_owned()]);
            kept.extend((round == 0).then(|| "d".to_owned()));
        }
        // The answer was lost: it is given again, and nothing else.
        (producer.producer, producer.epoch) = before;
        assert_eq!(producer.try_end_epoch(commit).await, (0, after.0, after.1));
        assert_eq!(producer.try_end_epoch(!commit).await.0, E::InvalidTxnState.code());
        assert_eq!(producer.end(commit).await, E::ProducerFenced.code());
        assert_eq!(producer.commit_offset_at_once(9).await, E::InvalidProducerEpoch.code());
        let request = produce_request("orders", -1, late).with_transactional_id(Some(id("t")));
        let refused = producer.client.ask(&request, 12).await.responses[0].partition_responses[0].clone();
        assert_eq!(refused.error_code, E::InvalidProducerEpoch.code(), "{refused:?}");
        (producer.producer, producer.epoch) = after;
        assert_eq!(committed(&fixture), kept);
        assert_eq!(end_of(&mut reader, 1).await, end_of(&mut reader, 0).await);
    }
    assert_eq!(position(&mut reader, true).await, (0, 3));
    // One that was not begun is aborted, but not committed.
    assert_eq!(producer.end_epoch(true).await, E::InvalidTxnState.code());
    assert_eq!(producer.end_epoch(false).await, 0);
    assert_eq!((producer.produce_at_once(&["e"]).await, producer.end_epoch(true).await), (0, 0));

    // Another one takes the id over.
    assert_eq!(producer.produce_at_once(&["f"]).await, 0);
    let mut new = Transacting::take_over(&fixture, "t", 4).await;
    assert_eq!(producer.produce_at_once(&["g"]).await, E::InvalidProducerEpoch.code());
    assert_eq!(producer.end_epoch(true).await, E::ProducerFenced.code());
    assert_eq!((new.produce_at_once(&["h"]).await, new.end_epoch(true).await), (0, 0));
    kept.extend(["e".to_owned(), "h".to_owned()]);
    assert_eq!(committed(&fixture), kept);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_wait_for_their_transaction_come_in_the_order_of_their_requests() {
    const TRANSACTIONS: usize = 40;
    const REQUESTS: usize = 30;
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut producer = Transacting::take_over(&fixture, "t", 4).await;
    let values: Vec<String> = (0..TRANSACTIONS * REQUESTS).map(|number| number.to_string()).collect();
    for values in values.chunks(REQUESTS) {
        let mut requests = Vec::new();
        for value in values {
            requests.push(producer.send(&[value]).await);
        }
        for request in requests {
            assert_eq!(producer.sent(request).await, 0);
        }
        assert_eq!(producer.end_epoch(true).await, 0);
    }
    assert_eq!(committed(&fixture), values);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_its_transaction_cannot_take_is_refused_alone_and_says_whether_to_abort() {
    let config = KafkaConfig { transaction_partitions_max: 1, ..KafkaConfig::default() };
    let fixture = Fixture::start(config).await;
    ["orders", "other"].into_iter().for_each(|topic| fixture.create(topic, &TopicConfig::default()));
    let mut producer = Transacting::take_over(&fixture, "t", 4).await;
    let batch = producer.batch(&["a"]);
    for (version, expected) in [(10, E::InvalidTxnState), (11, E::TransactionAbortable)] {
        let request = produce_request("orders", -1, batch.clone()).with_transactional_id(Some(id("t")));
        let answer = producer.client.ask(&request, version).await.responses[0].partition_responses[0].clone();
        assert_eq!(answer.error_code, expected.code(), "version {version}");
    }
    assert_eq!(producer.produce_at_once(&["a"]).await, 0);
    let second = produce_request("other", -1, batch.clone()).with_transactional_id(Some(id("t")));
    let both = produce_request("orders", -1, producer.batch(&["b"])).with_transactional_id(Some(id("t")));
    let both = both.clone().with_topic_data([both.topic_data, second.topic_data].concat());
    let answer = producer.client.ask(&both, 12).await;
    let codes = answer.responses.iter().map(|topic| topic.partition_responses[0].error_code);
    assert_eq!(codes.collect::<Vec<_>>(), [0, E::PolicyViolation.code()]);
    producer.sequence += 1;
    assert_eq!((producer.produce_at_once(&["c"]).await, producer.end_epoch(true).await), (0, 0));
    let mut reader = fixture.connect().await;
    assert_eq!(fetched(&mut reader, 1).await.0, ["a", "b", "c"]);
    fixture.stop().await;
}

/// At most that many transactional ids for each tenant.
fn limited(ids: usize) -> KafkaConfig {
    KafkaConfig { transactional_ids_per_tenant_max: ids, ..KafkaConfig::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_times_as_many_transactional_ids_as_there_may_be_commit_one_after_the_other() {
    let mut fixture = Fixture::start(limited(50)).await;
    fixture.create("orders", &TopicConfig::default());
    for number in 0..200 {
        let mut producer = Transacting::take_over(&fixture, &format!("sink-{number}"), 4).await;
        assert_eq!((producer.add("orders").await, producer.produce("orders", &["a"]).await), (0, 0), "{number}");
        assert_eq!(producer.end(true).await, 0, "{number}");
    }
    let listed = |listed: ListTransactionsResponse| {
        let ids = listed.transaction_states.iter().map(|state| state.transactional_id.to_string());
        let numbers = ids.map(|id| id.strip_prefix("sink-").unwrap().parse().unwrap());
        numbers.collect::<BTreeSet<u32>>()
    };
    for _ in 0..2 {
        let mut reader = fixture.connect().await;
        assert_eq!(fetched(&mut reader, 1).await.0.len(), 200);
        let known = listed(reader.ask(&ListTransactionsRequest::default(), 0).await);
        assert_eq!(known.len(), 50, "also over a restart");
        // Those that ended in the same millisecond are alike.
        assert!(known.iter().all(|number| *number >= 140), "the latest stay: {known:?}");
        fixture = fixture.restart(limited(50)).await;
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_never_gives_way_to_a_new_id() {
    let fixture = Fixture::start(limited(2)).await;
    fixture.create("orders", &TopicConfig::default());
    let mut first = Transacting::take_over(&fixture, "first", 4).await;
    let mut second = Transacting::take_over(&fixture, "second", 4).await;
    assert_eq!((first.add("orders").await, second.add("orders").await), (0, 0));
    let mut client = fixture.connect().await;
    let request = InitProducerIdRequest::default().with_transactional_id(Some(id("third")));
    let request = request.with_transaction_timeout_ms(60_000);
    assert_eq!(client.ask(&request, 4).await.error_code, E::PolicyViolation.code());
    assert_eq!((first.produce("orders", &["a"]).await, first.end(true).await), (0, 0));
    assert_eq!(client.ask(&request, 4).await.error_code, 0);
    assert_eq!(first.add("orders").await, E::InvalidProducerIdMapping.code(), "it has given way");
    assert_eq!((second.produce("orders", &["b"]).await, second.end(true).await), (0, 0));
    assert_eq!(fetched(&mut client, 1).await.0, ["a", "b"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_whose_transactional_id_was_forgotten_writes_nothing_more() {
    let mut fixture = Fixture::start(limited(1)).await;
    fixture.create("orders", &TopicConfig::default());
    let mut old = Transacting::take_over(&fixture, "old", 4).await;
    assert_eq!((old.add("orders").await, old.produce("orders", &["a"]).await, old.end(true).await), (0, 0, 0));
    Transacting::take_over(&fixture, "new", 4).await;
    let unknown = E::InvalidProducerIdMapping.code();
    let plain = |old: &Transacting| {
        let mut builder = BatchBuilder::default();
        builder.push(&Record { value: Some(b"x"), ..Record::default() });
        builder.set_producer(Producer { id: old.producer.0, epoch: old.epoch, base_sequence: old.sequence });
        builder.seal(Offset(0), Epoch(0), Compression::None).bytes().clone()
    };
    for _ in 0..2 {
        assert_eq!((old.add("orders").await, old.produce("orders", &["b"]).await), (unknown, unknown));
        assert_eq!((old.add_offsets().await, old.commit_offset(0, -1).await), (unknown, unknown));
        assert_eq!(old.end(true).await, unknown);
        let mut client = fixture.connect().await;
        let outside = client.produce("orders", -1, plain(&old)).await;
        assert_eq!(outside.error_code, E::InvalidTxnState.code(), "nor outside a transaction");
        assert_eq!(fetched(&mut client, 0).await.0, ["a"]);
        // Its id begins anew, under another producer id.
        let mut again = Transacting::take_over(&fixture, "old", 4).await;
        assert_ne!(again.producer, old.producer);
        assert_eq!(again.add("orders").await, 0);
        assert_eq!(old.produce("orders", &["b"]).await, unknown, "nor in the transaction of its successor");
        assert_eq!(again.end(false).await, 0);
        fixture = fixture.restart(limited(1)).await;
        old.client = fixture.connect().await;
        Transacting::take_over(&fixture, "new", 4).await;
    }
    fixture.stop().await;
}
