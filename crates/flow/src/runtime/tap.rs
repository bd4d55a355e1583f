//! Taps: samples of the records that pass an edge of a running job.
//!
//! Always true
//! - An edge without a tap costs its batches one relaxed load.
//! - No batch waits for a tap. A batch that meets another one at the tap is passed over, and a sample that finds the
//!   tap's queue full is counted and dropped.
//! - A tap copies what it takes, so it holds no batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::batch::Batch;

/// Samples that wait for the reader of a tap.
const WAITING_MAX: usize = 64;
/// Samples that a tap takes at once, at most.
const BURST_MAX: f64 = 32.0;
/// Bytes of a sample: its value, key and headers.
const SAMPLE_MAX_BYTES: usize = 16 << 10;
/// Bytes that the waiting samples of a tap hold at most.
pub(crate) const TAP_MAX_BYTES: usize = WAITING_MAX * SAMPLE_MAX_BYTES;

/// A copy of a record that has passed an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TappedRecord {
    /// The topic of the source record, if it was read from one.
    pub topic: Option<String>,
    /// The partition of the source record; 0 without a topic.
    pub partition: u32,
    /// The offset of the source record; its number without a topic.
    pub offset: u64,
    /// The time of the source record, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
    /// The key of the source record.
    pub key: Option<Vec<u8>>,
    /// The record as it passed the edge.
    pub value: Option<Vec<u8>>,
    /// The headers of the source record, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Parts of the record were left out, as it is too large.
    pub is_truncated: bool,
}

impl TappedRecord {
    fn copy(batch: &Batch, row: usize) -> Self {
        let mut room = SAMPLE_MAX_BYTES;
        let mut is_truncated = false;
        let mut take = |part: &[u8]| {
            let taken = part[..part.len().min(room)].to_vec();
            is_truncated |= taken.len() < part.len();
            room -= taken.len();
            taken
        };
        let key = batch.key(row).map(&mut take);
        let value = batch.payload(row).map(&mut take);
        let mut headers = Vec::new();
        for header in batch.headers(row) {
            let name = take(header.key.as_bytes());
            let value = header.value.map(&mut take);
            headers.push((String::from_utf8_lossy(&name).into_owned(), value));
        }
        Self {
            topic: batch.topic().map(str::to_owned),
            partition: batch.partition().unwrap_or_default().0,
            offset: batch.offset(row).0,
            timestamp_ms: batch.timestamp_ms(row),
            key,
            value,
            headers,
            is_truncated,
        }
    }
}

/// The taps of one edge.
#[derive(Default)]
pub(crate) struct EdgeTaps {
    open: AtomicUsize,
    /// Records that have passed while a tap was open.
    seen: AtomicU64,
    taps: Mutex<Taps>,
}

#[derive(Default)]
struct Taps {
    open: Vec<OpenTap>,
    is_closed: bool,
}

struct OpenTap {
    records: Sender<TappedRecord>,
    dropped: Arc<AtomicU64>,
    rate: f64,
    /// Samples that may be taken now.
    allowance: f64,
    filled_at: Duration,
}

impl EdgeTaps {
    /// Offers a batch that passes the edge to its taps.
    pub(crate) fn offer(&self, batch: &Batch, now: Duration) {
        if self.open.load(Ordering::Relaxed) > 0 {
            self.sample(batch, now);
        }
    }

    #[cold]
    fn sample(&self, batch: &Batch, now: Duration) {
        self.seen.fetch_add(batch.len() as u64, Ordering::Relaxed);
        // Another instance that samples now is not waited for.
        if let Some(mut taps) = self.taps.try_lock() {
            taps.open.iter_mut().for_each(|tap| tap.take(batch, now));
        }
    }

    /// Opens a tap that takes `rate` records a second and keeps `place`; `None` if the job has ended.
    pub(crate) fn open(self: &Arc<Self>, rate: f64, now: Duration, place: OwnedSemaphorePermit) -> Option<TapReader> {
        let (records, received) = channel(WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let mut taps = self.taps.lock();
        if taps.is_closed {
            return None;
        }
        let tap = OpenTap { records, dropped: Arc::clone(&dropped), rate, allowance: burst(rate), filled_at: now };
        taps.open.push(tap);
        self.open.store(taps.open.len(), Ordering::Relaxed);
        let seen_before = self.seen.load(Ordering::Relaxed);
        Some(TapReader { edge: Arc::clone(self), received, dropped, seen_before, sent: 0, _place: place })
    }

    /// Ends all taps, and opens no more.
    pub(crate) fn close(&self) {
        let mut taps = self.taps.lock();
        taps.is_closed = true;
        taps.open.clear();
        self.open.store(0, Ordering::Relaxed);
    }
}

fn burst(rate: f64) -> f64 {
    rate.clamp(1.0, BURST_MAX)
}

impl OpenTap {
    /// Takes as many records as the rate allows, spread over the batch.
    fn take(&mut self, batch: &Batch, now: Duration) {
        let waited = now.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = now;
        self.allowance = (self.allowance + waited * self.rate).min(burst(self.rate));
        let count = batch.len().min(self.allowance as usize);
        self.allowance -= count as f64;
        for number in 0..count {
            match self.records.try_reserve() {
                Ok(place) => place.send(TappedRecord::copy(batch, number * batch.len() / count)),
                Err(TrySendError::Full(())) => {
                    self.dropped.fetch_add((count - number) as u64, Ordering::Relaxed);
                    return;
                }
                // The reader is about to remove the tap.
                Err(TrySendError::Closed(())) => return,
            }
        }
    }
}

/// The reading end of a tap. The edge forgets the tap when it is dropped.
pub(crate) struct TapReader {
    edge: Arc<EdgeTaps>,
    received: Receiver<TappedRecord>,
    dropped: Arc<AtomicU64>,
    seen_before: u64,
    sent: u64,
    _place: OwnedSemaphorePermit,
}

impl TapReader {
    /// The next sample; `None` once the job has ended. A caller that stops waiting loses nothing.
    pub(crate) async fn next(&mut self) -> Option<TappedRecord> {
        let record = self.received.recv().await?;
        self.sent += 1;
        Some(record)
    }

    pub(crate) fn seen(&self) -> u64 {
        self.edge.seen.load(Ordering::Relaxed) - self.seen_before
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for TapReader {
    fn drop(&mut self) {
        let mut taps = self.edge.taps.lock();
        taps.open.retain(|tap| !Arc::ptr_eq(&tap.dropped, &self.dropped));
        self.edge.open.store(taps.open.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::SourceBatch;

    fn batch(count: u64, value: &str) -> Batch {
        let mut batch = SourceBatch::default();
        for number in 0..count {
            batch.push(number, Some(b"k"), 7, |out| out.extend_from_slice(value.as_bytes()));
        }
        batch.finish()
    }

    fn open(edge: &Arc<EdgeTaps>, rate: f64) -> Option<TapReader> {
        let place = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
        edge.open(rate, Duration::ZERO, place)
    }

    fn drain(tap: &mut TapReader) -> Vec<u64> {
        std::iter::from_fn(|| tap.received.try_recv().ok()).map(|record| record.offset).collect()
    }

    #[test]
    fn a_tap_takes_as_many_records_as_its_rate_allows_spread_over_the_batch() {
        let edge = Arc::new(EdgeTaps::default());
        let at = Duration::from_millis;
        let offer = |count, ms| edge.offer(&batch(count, "{}"), at(ms));
        offer(100, 0);
        let mut tap = open(&edge, 4.0).unwrap();
        offer(100, 0);
        assert_eq!(drain(&mut tap), [0, 25, 50, 75]);
        offer(100, 10);
        assert_eq!(drain(&mut tap), [0; 0]);
        offer(100, 510);
        assert_eq!(drain(&mut tap), [0, 50]);
        offer(2, 60_000);
        assert_eq!(drain(&mut tap), [0, 1]);
        assert_eq!((tap.seen(), tap.dropped()), (302, 0));
        drop(tap);
        assert_eq!(edge.open.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn samples_that_nobody_reads_are_counted_and_dropped() {
        let edge = Arc::new(EdgeTaps::default());
        let tap = open(&edge, 1_000.0).unwrap();
        for second in 1..=4 {
            edge.offer(&batch(1_000, "{}"), Duration::from_secs(second));
        }
        assert_eq!((tap.seen(), tap.dropped(), tap.received.len()), (4_000, 64, WAITING_MAX));
    }

    #[test]
    fn a_large_record_is_cut() {
        let edge = Arc::new(EdgeTaps::default());
        let mut tap = open(&edge, 1.0).unwrap();
        edge.offer(&batch(1, &"x".repeat(1 << 20)), Duration::ZERO);
        let record = tap.received.try_recv().unwrap();
        assert!(record.is_truncated);
        assert_eq!(record.value.unwrap().len() + record.key.unwrap().len(), SAMPLE_MAX_BYTES);
    }

    #[test]
    fn a_tap_ends_with_its_job_and_a_later_one_is_refused() {
        let edge = Arc::new(EdgeTaps::default());
        let mut tap = open(&edge, 1.0).unwrap();
        edge.close();
        assert_eq!(tap.received.try_recv(), Err(tokio::sync::mpsc::error::TryRecvError::Disconnected));
        assert!(open(&edge, 1.0).is_none());
        drop(tap);
        assert_eq!(edge.open.load(Ordering::Relaxed), 0);
    }
}
