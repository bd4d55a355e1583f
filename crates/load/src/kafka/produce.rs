//! A producer of prepared batches, pipelined over a few connections.
//!
//! Each connection has a sending and a receiving thread. A bounded queue between them holds the unanswered requests.
//! Latency counts from the due time of a batch, so that a stall shows in every batch that it delays.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record, SystemClock, WallClock as _};

use super::KafkaError;
use super::client::{CORRELATION_AT, KafkaClient, decode, encode, refused_with};
use crate::Latencies;
use crate::cpu::thread_cpu;

const VERSION: i16 = 7;
const TIMEOUT_MS: i32 = 30_000;
/// Tolerance of timers. A delay within it is caused by the generator, not by the broker.
const TIMER_GRAIN: Duration = Duration::from_millis(2);
/// Share of a core above which a generator thread, not the broker, limits the rate.
const BUSY: f64 = 0.9;

/// Acknowledgement that a producer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// The leader has taken the records (`acks=1`).
    Leader,
    /// All in-sync replicas have them (`acks=all`); in Millstream, the records have the level of their topic.
    All,
}

/// Settings of a produce load.
#[derive(Debug, Clone)]
pub struct ProduceLoad {
    /// Address on which the broker listens.
    pub address: SocketAddr,
    /// Topic that receives the records.
    pub topic: String,
    /// Number of its partitions; batches go to each in turn.
    pub partitions: u32,
    /// Bytes of a record's value; it has no key.
    pub record_bytes: usize,
    /// Records in a batch; each request has one batch.
    pub batch_records: usize,
    /// Acknowledgement that each request asks for.
    pub acks: Acks,
    /// Number of connections, each with two threads.
    pub connections: usize,
    /// Largest number of unanswered requests of a connection.
    pub in_flight: usize,
    /// Target rate in records a second; `None` sends as fast as responses allow.
    pub records_per_s: Option<f64>,
    /// Warm-up time, left out of the result.
    pub warm_up: Duration,
    /// Measured time after the warm-up.
    pub duration: Duration,
}

/// Results of a produce load.
#[derive(Debug, Clone, Default)]
pub struct ProduceResult {
    /// Records that were acknowledged after the warm-up.
    pub records: u64,
    /// Time from the end of the warm-up to the last response.
    pub took: Duration,
    /// Requests that were answered with an error after the warm-up.
    pub errors: u64,
    /// Text of the first of those errors.
    pub first_error: Option<String>,
    /// Latencies of requests, from due time to response.
    pub latencies: Latencies,
    /// Share of a core that the busiest of the generator's threads used.
    pub busiest_thread: f64,
}

impl ProduceResult {
    /// Returns the acknowledged records per second.
    pub fn rate_per_s(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Returns whether the generator, not the broker, limited the rate.
    pub fn generator_bottleneck(&self) -> bool {
        self.busiest_thread > BUSY
    }

    fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.took = self.took.max(other.took);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
        self.latencies.add(&other.latencies);
        self.busiest_thread = self.busiest_thread.max(other.busiest_thread);
    }
}

impl ProduceLoad {
    /// 100-byte records in batches of about 16 KiB, as Kafka's own producer sends them, over two connections with five
    /// requests under way, for five seconds after one of warm-up.
    pub fn to(address: SocketAddr, topic: &str, partitions: u32) -> Self {
        Self {
            address,
            topic: topic.to_owned(),
            partitions,
            record_bytes: 100,
            batch_records: 150,
            acks: Acks::Leader,
            connections: 2,
            in_flight: 5,
            records_per_s: None,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(5),
        }
    }

    /// Runs the load; blocks until all requests are answered.
    ///
    /// # Errors
    /// Returns the first [`KafkaError`] of a connection.
    pub fn run(&self) -> Result<ProduceResult, KafkaError> {
        let frames = (0..self.partitions).map(|partition| self.frame(partition)).collect::<Result<Vec<_>, _>>()?;
        let clients =
            (0..self.connections).map(|_| KafkaClient::connect(self.address)).collect::<Result<Vec<_>, _>>()?;
        let begin = Instant::now();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, client) in clients.into_iter().enumerate() {
                let (under_way, to_hear) = sync_channel(self.in_flight);
                let (answers, frames) = (client.second()?, frames.clone());
                threads.push(scope.spawn(move || self.hear(answers, &to_hear, begin)));
                threads.push(scope.spawn(move || self.send(client, frames, number, &under_way, begin)));
            }
            let mut all = ProduceResult::default();
            for thread in threads {
                all.add(&thread.join().map_err(|_| KafkaError::ThreadDied)??);
            }
            Ok(all)
        })
    }

    /// Builds a request with one batch for `partition`.
    fn frame(&self, partition: u32) -> Result<BytesMut, KafkaError> {
        // Random values, because they do not compress.
        let mut random = fastrand::Rng::with_seed(u64::from(partition));
        let mut value = vec![0; self.record_bytes];
        // Current time, because Kafka's retention depends on it.
        let timestamp_ms = SystemClock::default().now_ms();
        let mut builder = BatchBuilder::default();
        for _ in 0..self.batch_records {
            random.fill(&mut value);
            builder.push(&Record { timestamp_ms, value: Some(&value), ..Record::default() });
        }
        let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
        let data = PartitionProduceData::default()
            .with_index(partition.cast_signed())
            .with_records(Some(batch.bytes().clone()));
        let topic = TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_string(self.topic.clone())))
            .with_partition_data(vec![data]);
        let acks = match self.acks {
            Acks::Leader => 1,
            Acks::All => -1,
        };
        let request =
            ProduceRequest::default().with_acks(acks).with_timeout_ms(TIMEOUT_MS).with_topic_data(vec![topic]);
        encode(&request, VERSION)
    }

    fn send(
        &self,
        mut client: KafkaClient,
        mut frames: Vec<BytesMut>,
        number: usize,
        under_way: &SyncSender<Instant>,
        begin: Instant,
    ) -> Result<ProduceResult, KafkaError> {
        let cpu_before = thread_cpu();
        let end = begin + self.warm_up + self.duration;
        let period = self.records_per_s.map(|rate| {
            let batches_per_s = rate / self.batch_records as f64 / self.connections as f64;
            Duration::from_secs_f64(1.0 / batches_per_s.max(f64::MIN_POSITIVE))
        });
        // Spreads the due times of the connections over the interval.
        let first = period.map(|period| begin + period.mul_f64(number as f64 / self.connections as f64));
        for at in 0_u32.. {
            let due = match (first, period) {
                (Some(first), Some(period)) => counted_from(first + period * at),
                _ => Instant::now(),
            };
            // Blocks while `in_flight` requests are unanswered. It is closed if the receiving thread failed, which reports the error.
            if due >= end || under_way.send(due).is_err() {
                break;
            }
            let at = at as usize;
            let count = frames.len();
            let frame = &mut frames[(number + at) % count];
            frame[CORRELATION_AT].copy_from_slice(&(at as u32).to_be_bytes());
            client.send(frame)?;
        }
        Ok(ProduceResult { busiest_thread: share(cpu_before, begin), ..ProduceResult::default() })
    }

    fn hear(
        &self,
        mut client: KafkaClient,
        under_way: &Receiver<Instant>,
        begin: Instant,
    ) -> Result<ProduceResult, KafkaError> {
        let cpu_before = thread_cpu();
        let counted = begin + self.warm_up;
        let mut produced = ProduceResult::default();
        for due in under_way {
            let response = decode::<ProduceRequest>(client.receive()?, VERSION)?;
            let answered = Instant::now();
            let partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
            if due < counted {
                // A broker may refuse requests just after it created the topic.
            } else if let Some(refused) = partitions.into_iter().find(|partition| partition.error_code != 0) {
                produced.errors += 1;
                let said = refused.error_message.as_ref().map(ToString::to_string);
                produced
                    .first_error
                    .get_or_insert_with(|| refused_with("Produce", refused.error_code, said).to_string());
            } else {
                produced.records += self.batch_records as u64;
                produced.latencies.record(answered - due);
            }
            produced.took = answered.saturating_duration_since(counted);
        }
        produced.busiest_thread = share(cpu_before, begin);
        Ok(produced)
    }
}

/// Waits until `due` and returns the time from which the latency counts.
fn counted_from(due: Instant) -> Instant {
    let left = due.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return due;
    }
    thread::sleep(left);
    let now = Instant::now();
    if now - due <= TIMER_GRAIN { now } else { due }
}

/// Returns the share of a core that the calling thread has used since `begin`.
fn share(cpu_before: Duration, begin: Instant) -> f64 {
    (thread_cpu() - cpu_before).as_secs_f64() / begin.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
}
