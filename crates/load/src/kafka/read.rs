//! Reading a topic from its start: at a pace, as the consumer that has fallen behind does, or following what is appended.

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
use super::client::{Client, refused_with};

const VERSION: i16 = 11;
const WAIT_MS: i32 = 500;
/// What Kafka's own consumer asks of a partition at most.
const PARTITION_MAX_BYTES: i32 = 1 << 20;

/// What is read, and how fast.
#[derive(Debug, Clone)]
pub struct ReadLoad {
    /// Where the broker listens.
    pub address: SocketAddr,
    /// The topic, which has records.
    pub topic: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// Bytes of batches a second.
    pub bytes_per_s: f64,
    /// For how long, beginning anew at the end of the topic; `None` reads it once.
    pub duration: Option<Duration>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    /// Bytes of batches, each with its checksum verified.
    pub bytes: u64,
    /// Records of these batches.
    pub records: u64,
    /// How often it came to the end.
    pub rounds: u64,
    /// How long it took.
    pub took: Duration,
}

impl ReadLoad {
    /// Reads and counts.
    ///
    /// # Errors
    /// [`KafkaError`], also for a batch whose checksum does not match.
    pub fn run(&self) -> Result<Read, KafkaError> {
        let mut client = Client::connect(self.address)?;
        let mut offsets = vec![0; self.partitions as usize];
        let begin = Instant::now();
        let mut read = Read::default();
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

    /// Follows the topic until `stop` is set, at no pace of its own, and tells meanwhile how many records it has read.
    ///
    /// # Errors
    /// As [`ReadLoad::run`].
    pub fn follow(&self, records: &AtomicU64, stop: &AtomicBool) -> Result<(), KafkaError> {
        let mut client = Client::connect(self.address)?;
        let mut offsets = vec![0; self.partitions as usize];
        let mut read = Read::default();
        while !stop.load(Ordering::Relaxed) {
            self.fetch(&mut client, &mut offsets, &mut read)?;
            records.store(read.records, Ordering::Relaxed);
        }
        Ok(())
    }

    fn fetch(&self, client: &mut Client, offsets: &mut [i64], read: &mut Read) -> Result<(), KafkaError> {
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

/// Counts what was found in one partition and goes on behind it.
fn take(data: PartitionData, offsets: &mut [i64], read: &mut Read) -> Result<(), KafkaError> {
    if data.error_code != 0 {
        return Err(refused_with("Fetch", data.error_code, None));
    }
    let Some(offset) = usize::try_from(data.partition_index).ok().and_then(|index| offsets.get_mut(index)) else {
        return Ok(());
    };
    let records: Bytes = data.records.unwrap_or_default();
    for batch in RecordBatch::split(records, &BatchLimits::default()) {
        let batch = match batch {
            // The last one may be cut off.
            Err(millstream_types::BatchError::Truncated { .. }) => break,
            batch => batch.map_err(|e| KafkaError::Answer { request: "Fetch", why: e.to_string() })?,
        };
        read.bytes += batch.size_bytes() as u64;
        read.records += u64::from(batch.record_count());
        *offset = batch.next_offset().0.cast_signed();
    }
    Ok(())
}
