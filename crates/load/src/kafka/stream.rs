//! A steady stream of the records of [`super::pool`] by timetable, into which single records are planted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::KafkaError;
use super::client::{Client, decode};
use super::pool::{Frame, Planted, frames};
use crate::cpu::thread_cpu;

const VERSION: i16 = 7;
/// Requests that may be unanswered.
const IN_FLIGHT: usize = 64;
/// Stamps have sixteen digits.
const STAMP_BASE: u64 = 1_000_000_000_000_000;

/// What is sent, and how fast.
#[derive(Debug, Clone)]
pub struct StreamLoad {
    /// Where the broker listens.
    pub address: SocketAddr,
    /// The topic.
    pub topic: String,
    /// How many partitions it has; batches go to each in turn.
    pub partitions: u32,
    /// Different batches; then the first comes again.
    pub batches: usize,
    /// Records of a batch, which is a request of its own.
    pub batch_records: usize,
    /// Records a second.
    pub records_per_s: f64,
    /// From when stamps count.
    pub begin: Instant,
}

/// One record of the stream that has these values instead of its own.
pub type Plant = Vec<(Planted, String)>;

/// A running stream; it ends with [`Streaming::stop`].
#[derive(Debug)]
pub struct Streaming {
    plants: Sender<Plant>,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<Streamed, KafkaError>>,
    hearer: JoinHandle<Result<u64, KafkaError>>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Streamed {
    /// Records that were sent.
    pub records: u64,
    /// From the first to the last of them.
    pub took: Duration,
    /// Batches that the broker refused.
    pub refused: u64,
    /// CPU time of the thread that sends.
    pub cpu: Duration,
    /// How far the last batch was behind its time.
    pub late: Duration,
    /// How far any batch was behind its time.
    pub late_max: Duration,
}

impl Streamed {
    /// Records a second.
    pub fn rate_per_s(&self) -> f64 {
        self.records as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// A stamp of now, microseconds since `begin` and a constant.
pub fn stamp_us(begin: Instant) -> u64 {
    STAMP_BASE + begin.elapsed().as_micros() as u64
}

impl StreamLoad {
    /// Renders the records, then begins to send.
    ///
    /// # Errors
    /// [`KafkaError`].
    pub fn start(self) -> Result<Streaming, KafkaError> {
        let frames = frames(&self.topic, self.partitions, self.batches, self.batch_records)?;
        let client = Client::connect(self.address)?;
        let answers = client.second()?;
        let (plants, planted) = channel();
        let (under_way, to_hear) = sync_channel(IN_FLIGHT);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let hearer = thread::spawn(move || hear(answers, &to_hear));
        let sender = thread::spawn(move || self.send(client, frames, &planted, &under_way, &stopped));
        Ok(Streaming { plants, stop, sender, hearer })
    }

    fn send(
        &self,
        mut client: Client,
        mut frames: Vec<Frame>,
        plants: &Receiver<Plant>,
        under_way: &SyncSender<()>,
        stop: &AtomicBool,
    ) -> Result<Streamed, KafkaError> {
        let cpu_before = thread_cpu();
        let period = Duration::from_secs_f64(self.batch_records as f64 / self.records_per_s.max(1.0));
        let first = Instant::now();
        let mut streamed = Streamed::default();
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

/// Plants what waits, at most one in each record; how to take it out again.
fn plant(frame: &mut Frame, plants: &Receiver<Plant>) -> Vec<(usize, Planted, String)> {
    let mut undo = Vec::new();
    for (record, plant) in plants.try_iter().take(frame.record_count()).enumerate() {
        for (field, value) in plant {
            undo.push((record, field, frame.write(record, field, &value)));
        }
    }
    undo
}

/// Hears all answers; how many were refusals.
fn hear(mut client: Client, under_way: &Receiver<()>) -> Result<u64, KafkaError> {
    let mut refused = 0;
    for () in under_way {
        let response = decode::<kafka_protocol::messages::ProduceRequest>(client.receive()?, VERSION)?;
        let mut partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        refused += u64::from(partitions.any(|partition| partition.error_code != 0));
    }
    Ok(refused)
}

impl Streaming {
    /// Has a record of the next batch carry these values.
    pub fn plant(&self, plant: Plant) {
        // If the stream has ended, that is told by `stop`.
        let _ = self.plants.send(plant);
    }

    /// Ends it.
    ///
    /// # Errors
    /// [`KafkaError`]: why it ended before.
    pub fn stop(self) -> Result<Streamed, KafkaError> {
        self.stop.store(true, Ordering::Relaxed);
        let streamed = self.sender.join().map_err(|_| KafkaError::ThreadDied)??;
        let refused = self.hearer.join().map_err(|_| KafkaError::ThreadDied)??;
        Ok(Streamed { refused, ..streamed })
    }
}
