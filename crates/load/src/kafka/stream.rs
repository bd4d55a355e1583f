//! A stream of records of [`super::record_pool`] at a fixed rate. Markers replace fields of single records.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::KafkaError;
use super::client::{KafkaClient, decode};
use super::record_pool::{MarkerField, ProduceFrame, frames};
use crate::cpu::thread_cpu;

const VERSION: i16 = 7;
/// Largest number of unanswered requests.
const IN_FLIGHT: usize = 64;
/// The base of all stamps, so that each has sixteen digits.
const STAMP_BASE: u64 = 1_000_000_000_000_000;

/// Settings of a record stream.
#[derive(Debug, Clone)]
pub struct StreamLoad {
    /// Address on which the broker listens.
    pub address: SocketAddr,
    /// Topic that receives the records.
    pub topic: String,
    /// Number of its partitions; batches go to each in turn.
    pub partitions: u32,
    /// Number of different batches, which are sent in a cycle.
    pub batches: usize,
    /// Records in a batch; each request has one batch.
    pub batch_records: usize,
    /// Target rate in records a second.
    pub records_per_s: f64,
    /// Time from which stamps count.
    pub begin: Instant,
}

/// Values that replace fields of one record of the stream.
pub type Marker = Vec<(MarkerField, String)>;

/// A running stream; it ends with [`RunningStream::stop`].
#[derive(Debug)]
pub struct RunningStream {
    plants: Sender<Marker>,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<StreamResult, KafkaError>>,
    hearer: JoinHandle<Result<u64, KafkaError>>,
}

/// Results of a record stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamResult {
    /// Number of records that were sent.
    pub records: u64,
    /// Time from the first to the last record.
    pub took: Duration,
    /// Number of batches that the broker refused.
    pub refused: u64,
    /// CPU time of the sending thread.
    pub cpu: Duration,
    /// Delay of the last batch behind its due time.
    pub late: Duration,
    /// Largest delay of a batch behind its due time.
    pub late_max: Duration,
}

impl StreamResult {
    /// Target rate in records a second.
    pub fn rate_per_s(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Returns the current stamp: microseconds since `begin` plus a constant.
pub fn stamp_us(begin: Instant) -> u64 {
    STAMP_BASE + begin.elapsed().as_micros() as u64
}

impl StreamLoad {
    /// Renders the records and starts the stream.
    ///
    /// # Errors
    /// Returns a [`KafkaError`] if the broker cannot be reached.
    pub fn start(self) -> Result<RunningStream, KafkaError> {
        let frames = frames(&self.topic, self.partitions, self.batches, self.batch_records)?;
        let client = KafkaClient::connect(self.address)?;
        let answers = client.second()?;
        let (plants, planted) = channel();
        let (under_way, to_hear) = sync_channel(IN_FLIGHT);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let hearer = thread::spawn(move || hear(answers, &to_hear));
        let sender = thread::spawn(move || self.send(client, frames, &planted, &under_way, &stopped));
        Ok(RunningStream { plants, stop, sender, hearer })
    }

    fn send(
        &self,
        mut client: KafkaClient,
        mut frames: Vec<ProduceFrame>,
        plants: &Receiver<Marker>,
        under_way: &SyncSender<()>,
        stop: &AtomicBool,
    ) -> Result<StreamResult, KafkaError> {
        let cpu_before = thread_cpu();
        let period = Duration::from_secs_f64(self.batch_records as f64 / self.records_per_s.max(1.0));
        let first = Instant::now();
        let mut streamed = StreamResult::default();
        for at in 0_u32.. {
            let due = first + period * at;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if stop.load(Ordering::Relaxed) || under_way.send(()).is_err() {
                break;
            }
            let count = frames.len();
            let frame = &mut frames[at as usize % count];
            let now = Instant::now();
            streamed.late = now.saturating_duration_since(due);
            streamed.late_max = streamed.late_max.max(streamed.late);
            frame.stamp(&stamp_us(self.begin).to_string());
            let undo = plant(frame, plants);
            frame.seal(at);
            client.send(&frame.bytes)?;
            for (record, field, before) in undo {
                frame.write(record, field, &before);
            }
            streamed.records += frame.record_count() as u64;
            streamed.took = first.elapsed();
        }
        streamed.cpu = thread_cpu() - cpu_before;
        Ok(streamed)
    }
}

/// Writes waiting markers, at most one per record, and returns the replaced values.
fn plant(frame: &mut ProduceFrame, plants: &Receiver<Marker>) -> Vec<(usize, MarkerField, String)> {
    let mut undo = Vec::new();
    for (record, plant) in plants.try_iter().take(frame.record_count()).enumerate() {
        for (field, value) in plant {
            undo.push((record, field, frame.write(record, field, &value)));
        }
    }
    undo
}

/// Reads all responses and returns the number of refused batches.
fn hear(mut client: KafkaClient, under_way: &Receiver<()>) -> Result<u64, KafkaError> {
    let mut refused = 0;
    for () in under_way {
        let response = decode::<kafka_protocol::messages::ProduceRequest>(client.receive()?, VERSION)?;
        let mut partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        refused += u64::from(partitions.any(|partition| partition.error_code != 0));
    }
    Ok(refused)
}

impl RunningStream {
    /// Writes these values into a record of the next batch.
    pub fn plant(&self, plant: Marker) {
        // `stop` reports why the stream has ended.
        let _ = self.plants.send(plant);
    }

    /// Stops the stream and returns its results.
    ///
    /// # Errors
    /// Returns the [`KafkaError`] that ended the stream early.
    pub fn stop(self) -> Result<StreamResult, KafkaError> {
        self.stop.store(true, Ordering::Relaxed);
        let streamed = self.sender.join().map_err(|_| KafkaError::ThreadDied)??;
        let refused = self.hearer.join().map_err(|_| KafkaError::ThreadDied)??;
        Ok(StreamResult { refused, ..streamed })
    }
}
