//! A consumer that reads a topic from its start, at a given byte rate or following new records.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_types::{BatchLimits, RecordBatch};

use super::KafkaError;
use super::client::{KafkaClient, refused_with};

const VERSION: i16 = 11;
const WAIT_MS: i32 = 500;
/// Default `max.partition.fetch.bytes` of Kafka's consumer.
const PARTITION_MAX_BYTES: i32 = 1 << 20;

/// Settings of a read load.
#[derive(Debug, Clone)]
pub struct ReadLoad {
    /// Address on which the broker listens.
    pub address: SocketAddr,
    /// Topic to read; it must have records.
    pub topic: String,
    /// Number of partitions of the topic.
    pub partitions: u32,
    /// Target rate in bytes of batches a second.
    pub bytes_per_s: f64,
    /// Reading time, with a restart at the end of the topic; `None` reads the topic once.
    pub duration: Option<Duration>,
}

/// Results of a read load.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadResult {
    /// Bytes of the batches; the checksum of each was verified.
    pub bytes: u64,
    /// Number of records in these batches.
    pub records: u64,
    /// Number of times the reader reached the end.
    pub rounds: u64,
    /// Time that the reads took.
    pub took: Duration,
}

impl ReadLoad {
    /// Reads the topic and counts its records.
    ///
    /// # Errors
    /// Returns a [`KafkaError`], also for a batch whose checksum does not match.
    pub fn run(&self) -> Result<ReadResult, KafkaError> {
        let mut client = KafkaClient::connect(self.address)?;
        let mut offsets = vec![0; self.partitions as usize];
        let begin = Instant::now();
        let mut read = ReadResult::default();
        while self.duration.is_none_or(|duration| begin.elapsed() < duration) {
            let before = read.bytes;
            self.fetch(&mut client, &mut offsets, &mut read)?;
            if read.bytes == before {
                read.rounds += 1;
                if self.duration.is_none() {
                    break;
                }
                offsets.fill(0);
            }
            let due = Duration::from_secs_f64(read.bytes as f64 / self.bytes_per_s);
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        read.took = begin.elapsed();
        Ok(read)
    }

    /// Follows the topic at full speed until `stop` is set and updates `records` with the number of records read.
    ///
    /// # Errors
    /// The same errors as those of [`ReadLoad::run`].
    pub fn follow(&self, records: &AtomicU64, stop: &AtomicBool) -> Result<(), KafkaError> {
        let mut client = KafkaClient::connect(self.address)?;
        let mut offsets = vec![0; self.partitions as usize];
        let mut read = ReadResult::default();
        while !stop.load(Ordering::Relaxed) {
            self.fetch(&mut client, &mut offsets, &mut read)?;
            records.store(read.records, Ordering::Relaxed);
        }
        Ok(())
    }

    fn fetch(&self, client: &mut KafkaClient, offsets: &mut [i64], read: &mut ReadResult) -> Result<(), KafkaError> {
        let response = client.call(&self.request(offsets), VERSION)?;
        let all = response.responses.into_iter().flat_map(|topic| topic.partitions);
        all.into_iter().try_for_each(|data| take(data, offsets, read))
    }

    fn request(&self, offsets: &[i64]) -> FetchRequest {
        let partition = |(number, offset): (usize, &i64)| {
            FetchPartition::default()
                .with_partition(number as i32)
                .with_fetch_offset(*offset)
                .with_partition_max_bytes(PARTITION_MAX_BYTES)
        };
        let topic = FetchTopic::default()
            .with_topic(TopicName(StrBytes::from_string(self.topic.clone())))
            .with_partitions(offsets.iter().enumerate().map(partition).collect());
        FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(WAIT_MS)
            .with_min_bytes(1)
            .with_max_bytes(PARTITION_MAX_BYTES.saturating_mul(self.partitions.cast_signed()))
            .with_session_epoch(-1)
            .with_topics(vec![topic])
    }
}

/// Counts the batches of one partition and advances its offset.
fn take(data: PartitionData, offsets: &mut [i64], read: &mut ReadResult) -> Result<(), KafkaError> {
    if data.error_code != 0 {
        return Err(refused_with("Fetch", data.error_code, None));
    }
    let Some(offset) = usize::try_from(data.partition_index).ok().and_then(|index| offsets.get_mut(index)) else {
        return Ok(());
    };
    let records: Bytes = data.records.unwrap_or_default();
    for batch in RecordBatch::split(records, &BatchLimits::default()) {
        let batch = match batch {
            // The last batch may be incomplete.
            Err(millstream_types::BatchError::Truncated { .. }) => break,
            batch => batch.map_err(|e| KafkaError::Answer { request: "Fetch", why: e.to_string() })?,
        };
        read.bytes += batch.size_bytes() as u64;
        read.records += u64::from(batch.record_count());
        *offset = batch.next_offset().0.cast_signed();
    }
    Ok(())
}
