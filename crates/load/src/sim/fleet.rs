//! The devices of one thread: their due times, their payloads and the counts of their messages.
//!
//! Owner: the tasks of one generator thread. The lock is contended only when progress is sampled.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::SimArgs;
use super::pacing::messages_due;
use crate::payload::DevicePayload;
use crate::{Error, FailureKind, Latencies};

#[derive(Debug)]
pub(crate) struct Fleet {
    /// Devices that no worker holds, by due time.
    agenda: BinaryHeap<Reverse<(Instant, usize)>>,
    devices: Vec<SimDevice>,
    /// Start offsets of the devices, ascending. The backlog is computed from them.
    offsets: Vec<Duration>,
    payload: DevicePayload,
    random: fastrand::Rng,
    /// Messages whose sending has begun, including the warm-up.
    pub(crate) started: u64,
    /// Outcomes of the messages after the warm-up.
    pub(crate) tally: MessageCounts,
}

#[derive(Debug)]
struct SimDevice {
    id: String,
    walks: Box<[f64]>,
    count: u64,
}

impl Fleet {
    /// Distributes all devices over the threads. Each device begins at a random time within the ramp after `start`.
    pub(crate) fn all(args: &SimArgs, start: Instant) -> Result<Vec<Arc<Mutex<Self>>>, Error> {
        let mut random = args.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let payload = args.payload()?;
        let threads = args.threads();
        let mut fleets: Vec<_> = (0..threads).map(|_| Self::empty(payload.clone(), random.fork())).collect();
        for number in 0..args.devices {
            let device = SimDevice { id: args.device_id(number), walks: payload.start(), count: 0 };
            let offset = args.ramp().mul_f64(random.f64());
            fleets[number as usize % threads].add(device, start, offset);
        }
        for fleet in &mut fleets {
            fleet.offsets.sort_unstable();
        }
        Ok(fleets.into_iter().map(|fleet| Arc::new(Mutex::new(fleet))).collect())
    }

    fn empty(payload: DevicePayload, random: fastrand::Rng) -> Self {
        let (agenda, devices, offsets) = Default::default();
        Self { agenda, devices, offsets, payload, random, started: 0, tally: MessageCounts::default() }
    }

    fn add(&mut self, device: SimDevice, start: Instant, offset: Duration) {
        self.agenda.push(Reverse((start + offset, self.devices.len())));
        self.devices.push(device);
        self.offsets.push(offset);
    }

    /// Takes the device with the earliest due time.
    pub(crate) fn take(&mut self) -> Option<(Instant, usize)> {
        self.agenda.pop().map(|Reverse(due)| due)
    }

    /// Returns a device with its next due time.
    pub(crate) fn give_back(&mut self, due: Instant, device: usize) {
        self.agenda.push(Reverse((due, device)));
    }

    /// Returns the device ids in order of their numbers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|device| device.id.as_str())
    }

    /// Renders the next payload of a device and counts the message as started.
    pub(crate) fn payload(&mut self, device: usize) -> Bytes {
        self.started += 1;
        let device = &mut self.devices[device];
        let count = device.count;
        device.count += 1;
        self.payload.next(&device.id, count, &mut device.walks, &mut self.random)
    }

    /// Counts the messages that are due by `elapsed` after the start.
    pub(crate) fn messages_due(&self, period: Duration, elapsed: Duration) -> u64 {
        messages_due(&self.offsets, period, elapsed)
    }
}

/// Counts of messages by outcome, with latencies.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageCounts {
    pub(crate) accepted: u64,
    pub(crate) failures: BTreeMap<FailureKind, u64>,
    /// Latencies of the accepted messages.
    pub(crate) latencies: Latencies,
}

impl MessageCounts {
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
