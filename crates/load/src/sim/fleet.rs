//! One thread's devices: when each is due, what it sends, and how it fared.
//!
//! Owner: the tasks of one generator thread; the lock is contended only when the figures are looked at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::SimArgs;
use super::pacing::messages_due;
use crate::payload::Payload;
use crate::{Error, FailureKind, Latencies};

/// The devices of one thread.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Devices that no connection has taken, by due time.
    agenda: BinaryHeap<Reverse<(Instant, usize)>>,
    devices: Vec<Device>,
    /// When devices begin, ascending; for the backlog.
    offsets: Vec<Duration>,
    payload: Payload,
    random: fastrand::Rng,
    /// Messages whose sending has begun, warm-up included.
    pub(crate) started: u64,
    /// What became of them, without the warm-up's.
    pub(crate) tally: Tally,
}

#[derive(Debug)]
struct Device {
    id: String,
    walks: Box<[f64]>,
    count: u64,
}

impl Fleet {
    /// All devices, dealt out to the threads, each at a random moment of its first period after `start`.
    pub(crate) fn all(args: &SimArgs, start: Instant) -> Result<Vec<Arc<Mutex<Self>>>, Error> {
        let mut random = args.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let payload = args.payload()?;
        let threads = args.threads();
        let mut fleets: Vec<_> = (0..threads).map(|_| Self::empty(payload.clone(), random.fork())).collect();
        for number in 0..args.devices {
            let device = Device { id: args.device_id(number), walks: payload.start(), count: 0 };
            let offset = args.ramp().mul_f64(random.f64());
            fleets[number as usize % threads].add(device, start, offset);
        }
        for fleet in &mut fleets {
            fleet.offsets.sort_unstable();
        }
        Ok(fleets.into_iter().map(|fleet| Arc::new(Mutex::new(fleet))).collect())
    }

    fn empty(payload: Payload, random: fastrand::Rng) -> Self {
        let (agenda, devices, offsets) = Default::default();
        Self { agenda, devices, offsets, payload, random, started: 0, tally: Tally::default() }
    }

    fn add(&mut self, device: Device, start: Instant, offset: Duration) {
        self.agenda.push(Reverse((start + offset, self.devices.len())));
        self.devices.push(device);
        self.offsets.push(offset);
    }

    /// Takes the device that is due first.
    pub(crate) fn take(&mut self) -> Option<(Instant, usize)> {
        self.agenda.pop().map(|Reverse(due)| due)
    }

    /// Gives a device back, due at `due`.
    pub(crate) fn give_back(&mut self, due: Instant, device: usize) {
        self.agenda.push(Reverse((due, device)));
    }

    /// The devices' ids, by number.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|device| device.id.as_str())
    }

    /// What a device sends next; from now on it counts as begun.
    pub(crate) fn payload(&mut self, device: usize) -> Bytes {
        self.started += 1;
        let device = &mut self.devices[device];
        let count = device.count;
        device.count += 1;
        self.payload.next(&device.id, count, &mut device.walks, &mut self.random)
    }

    /// How many messages are due by `elapsed` after the start.
    pub(crate) fn messages_due(&self, period: Duration, elapsed: Duration) -> u64 {
        messages_due(&self.offsets, period, elapsed)
    }
}

/// What became of messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) accepted: u64,
    pub(crate) failures: BTreeMap<FailureKind, u64>,
    /// Of the accepted ones.
    pub(crate) latencies: Latencies,
}

impl Tally {
    pub(crate) fn sent(&self) -> u64 {
        self.accepted + self.failures.values().sum::<u64>()
    }

    pub(crate) fn count(&mut self, outcome: Result<Duration, FailureKind>) {
        match outcome {
            Ok(latency) => {
                self.accept(1);
                self.latencies.record(latency);
            }
            Err(kind) => *self.failures.entry(kind).or_default() += 1,
        }
    }

    /// Counts accepted messages whose latency is not known.
    pub(crate) fn accept(&mut self, messages: u64) {
        self.accepted += messages;
    }

    pub(crate) fn plus(mut self, other: &Self) -> Self {
        self.accepted += other.accepted;
        self.latencies.add(&other.latencies);
        for (kind, count) in &other.failures {
            *self.failures.entry(*kind).or_default() += count;
        }
        self
    }
}
