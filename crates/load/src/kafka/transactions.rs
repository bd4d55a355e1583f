//! A transactional producer that does nothing else: a transaction after the other, each with a request to every leader and the end.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, MetadataRequest, ProduceRequest, ProducerId,
    TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Producer, Record, SystemClock, WallClock as _};

use super::KafkaError;
use super::client::{KafkaClient, decode, encode, refused_with};

const METADATA_VERSION: i16 = 12;
const FIND_COORDINATOR_VERSION: i16 = 6;
const INIT_PRODUCER_ID_VERSION: i16 = 5;
const PRODUCE_VERSION: i16 = 12;
const END_TXN_VERSION: i16 = 5;
const TRANSACTION_KEY: i8 = 1;
const TIMEOUT_MS: i32 = 30_000;
/// Pause before a request is repeated that came while brokers were still at work on the transaction before, or on a new topic.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest repetition.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings of a load of transactions.
#[derive(Debug, Clone)]
pub struct TransactionLoad {
    /// Address of any broker.
    pub address: SocketAddr,
    /// Topic that receives the records.
    pub topic: String,
    /// Number of its partitions; each transaction has a batch for every one.
    pub partitions: u32,
    /// Records of a batch.
    pub batch_records: usize,
    /// Bytes of a record's value; it has no key.
    pub record_bytes: usize,
    /// Time of the load.
    pub duration: Duration,
}

/// Results of a load of transactions.
#[derive(Debug, Clone, Copy)]
pub struct TransactionResult {
    /// Transactions that were committed.
    pub transactions: u64,
    /// Records in them.
    pub records: u64,
    /// Time from the first record to the last commit.
    pub took: Duration,
}

impl TransactionResult {
    /// Returns the committed records per second.
    pub fn rate_per_s(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl TransactionLoad {
    /// Commits transactions, one after the other, until the time is over.
    ///
    /// # Errors
    /// [`KafkaError`]: a broker cannot be reached, or refuses a request for good.
    pub fn run(&self) -> Result<TransactionResult, KafkaError> {
        let mut producer = TransactionalProducer::begin(self)?;
        let begin = Instant::now();
        let mut committed = TransactionResult { transactions: 0, records: 0, took: Duration::ZERO };
        while begin.elapsed() < self.duration {
            producer.commit_one(self)?;
            committed.transactions += 1;
            committed.records += u64::from(self.partitions) * self.batch_records as u64;
        }
        Ok(TransactionResult { took: begin.elapsed(), ..committed })
    }
}

struct TransactionalProducer {
    id: TransactionalId,
    producer: Producer,
    topic: TopicName,
    coordinator: KafkaClient,
    /// A connection to each broker that leads partitions, and these.
    leaders: Vec<(KafkaClient, Vec<i32>)>,
}

impl TransactionalProducer {
    fn begin(load: &TransactionLoad) -> Result<Self, KafkaError> {
        let mut client = KafkaClient::connect(load.address)?;
        let id = TransactionalId(StrBytes::from_string(load.topic.clone()));
        let mut coordinator = KafkaClient::connect(find_coordinator(&mut client, &id)?)?;
        let producer = first_producer(&mut coordinator, &id)?;
        let topic = TopicName(StrBytes::from_string(load.topic.clone()));
        let leaders = find_leaders(&mut client, &topic)?;
        let connected = |(address, partitions)| Ok((KafkaClient::connect(address)?, partitions));
        let leaders = leaders.into_iter().map(connected).collect::<Result<_, KafkaError>>()?;
        Ok(Self { id, producer, topic, coordinator, leaders })
    }

    fn commit_one(&mut self, load: &TransactionLoad) -> Result<(), KafkaError> {
        let batch = self.batch(load);
        for (client, partitions) in &mut self.leaders {
            client.send(&encode(&produce(&self.id, &self.topic, partitions, &batch), PRODUCE_VERSION)?)?;
        }
        for index in 0..self.leaders.len() {
            let refused = self.hear(index)?;
            if !refused.is_empty() {
                self.produce_again(index, &refused, &batch)?;
            }
        }
        let request = EndTxnRequest::default()
            .with_transactional_id(self.id.clone())
            .with_producer_id(ProducerId(self.producer.id))
            .with_producer_epoch(self.producer.epoch)
            .with_committed(true);
        let ended = self.coordinator.call(&request, END_TXN_VERSION)?;
        if ended.error_code != 0 {
            return Err(refused_with("EndTxn", ended.error_code, None));
        }
        self.producer = Producer { id: ended.producer_id.0, epoch: ended.producer_epoch, base_sequence: 0 };
        Ok(())
    }

    fn batch(&self, load: &TransactionLoad) -> Bytes {
        let (timestamp_ms, value) = (SystemClock::default().now_ms(), vec![b'v'; load.record_bytes]);
        let mut builder = BatchBuilder::default();
        for _ in 0..load.batch_records {
            builder.push(&Record { timestamp_ms, value: Some(&value), ..Record::default() });
        }
        builder.set_producer(self.producer);
        builder.set_transactional();
        builder.seal(Offset(0), Epoch(0), Compression::None).bytes().clone()
    }

    /// Reads an answer and returns the partitions that take the batch later.
    fn hear(&mut self, leader: usize) -> Result<Vec<i32>, KafkaError> {
        let response = decode::<ProduceRequest>(self.leaders[leader].0.receive()?, PRODUCE_VERSION)?;
        let mut refused = Vec::new();
        for partition in response.responses.iter().flat_map(|topic| &topic.partition_responses) {
            match partition.error_code {
                0 => {}
                code if is_passing(code) => refused.push(partition.index),
                code => return Err(refused_with("Produce", code, None)),
            }
        }
        Ok(refused)
    }

    fn produce_again(&mut self, leader: usize, partitions: &[i32], batch: &Bytes) -> Result<(), KafkaError> {
        let deadline = Instant::now() + PATIENCE;
        let mut left = partitions.to_vec();
        while !left.is_empty() {
            if Instant::now() > deadline {
                return Err(refused_with("Produce", ResponseError::RequestTimedOut.code(), None));
            }
            thread::sleep(PAUSE);
            let request = produce(&self.id, &self.topic, &left, batch);
            self.leaders[leader].0.send(&encode(&request, PRODUCE_VERSION)?)?;
            left = self.hear(leader)?;
        }
        Ok(())
    }
}

fn produce(id: &TransactionalId, topic: &TopicName, partitions: &[i32], batch: &Bytes) -> ProduceRequest {
    let data = |index: &i32| PartitionProduceData::default().with_index(*index).with_records(Some(batch.clone()));
    let topic =
        TopicProduceData::default().with_name(topic.clone()).with_partition_data(partitions.iter().map(data).collect());
    ProduceRequest::default()
        .with_transactional_id(Some(id.clone()))
        .with_acks(-1)
        .with_timeout_ms(TIMEOUT_MS)
        .with_topic_data(vec![topic])
}

/// `true` for refusals that end by themselves.
fn is_passing(code: i16) -> bool {
    ResponseError::try_from_code(code)
        .is_some_and(|error| error.is_retriable() || error == ResponseError::ConcurrentTransactions)
}

/// Asks until the answer's error code is 0.
fn ask<T>(request: &'static str, mut once: impl FnMut() -> Result<(i16, T), KafkaError>) -> Result<T, KafkaError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match once()? {
            (0, answer) => return Ok(answer),
            (code, _) if is_passing(code) && Instant::now() < deadline => thread::sleep(PAUSE),
            (code, _) => return Err(refused_with(request, code, None)),
        }
    }
}

fn find_coordinator(client: &mut KafkaClient, id: &TransactionalId) -> Result<SocketAddr, KafkaError> {
    let request =
        FindCoordinatorRequest::default().with_key_type(TRANSACTION_KEY).with_coordinator_keys(vec![id.0.clone()]);
    let found = ask("FindCoordinator", || {
        let answer = client.call(&request, FIND_COORDINATOR_VERSION)?;
        let coordinator = answer.coordinators.into_iter().next().unwrap_or_default();
        Ok((coordinator.error_code, coordinator))
    })?;
    address(&found.host, found.port)
}

fn first_producer(coordinator: &mut KafkaClient, id: &TransactionalId) -> Result<Producer, KafkaError> {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(id.clone()))
        .with_transaction_timeout_ms(TIMEOUT_MS)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1);
    ask("InitProducerId", || {
        let answer = coordinator.call(&request, INIT_PRODUCER_ID_VERSION)?;
        let producer = Producer { id: answer.producer_id.0, epoch: answer.producer_epoch, base_sequence: 0 };
        Ok((answer.error_code, producer))
    })
}

/// The partitions that each broker leads.
fn find_leaders(client: &mut KafkaClient, name: &TopicName) -> Result<BTreeMap<SocketAddr, Vec<i32>>, KafkaError> {
    let request = MetadataRequest::default()
        .with_topics(Some(vec![MetadataRequestTopic::default().with_name(Some(name.clone()))]));
    let (topic, brokers) = ask("Metadata", || {
        let answer = client.call(&request, METADATA_VERSION)?;
        let topic = answer.topics.into_iter().next().unwrap_or_default();
        let codes = topic.partitions.iter().map(|partition| partition.error_code);
        let code = std::iter::once(topic.error_code).chain(codes).find(|code| *code != 0).unwrap_or(0);
        Ok((code, (topic, answer.brokers)))
    })?;
    let brokers: HashMap<i32, _> = brokers.into_iter().map(|broker| (broker.node_id.0, broker)).collect();
    let mut leaders = BTreeMap::<SocketAddr, Vec<i32>>::new();
    for partition in &topic.partitions {
        if let Some(leader) = brokers.get(&partition.leader_id.0) {
            leaders.entry(address(&leader.host, leader.port)?).or_default().push(partition.partition_index);
        }
    }
    Ok(leaders)
}

fn address(host: &str, port: i32) -> Result<SocketAddr, KafkaError> {
    format!("{host}:{port}").parse().map_err(|_| {
        let why = format!("'{host}:{port}' is no IP address with a port");
        KafkaError::Answer { request: "Metadata", why }
    })
}
