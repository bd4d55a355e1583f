//! One thread's devices: when each is due, what it sends, and how it fared.
//!
//! Owner: the tasks of one generator thread; the lock is contended only when the figures are looked at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Uri};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::pacing::messages_due;
use super::{Auth, MessageKind, Method, SimArgs};
use crate::client::QOS_LEVEL;
use crate::payload::Payload;
use crate::registry::authorization;
use crate::{Error, FailureKind, Latencies};

/// The devices of one thread.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Devices that no connection has taken, by due time.
    agenda: BinaryHeap<Reverse<(Instant, usize)>>,
    devices: Vec<Device>,
    /// When devices begin, ascending; for the backlog.
    offsets: Vec<Duration>,
    common: Common,
    random: fastrand::Rng,
    /// Messages whose sending has begun, warm-up included.
    pub(crate) started: u64,
    /// What became of them, without the warm-up's.
    pub(crate) tally: Tally,
}

/// What all requests have in common.
#[derive(Debug, Clone)]
struct Common {
    method: hyper::Method,
    host: HeaderValue,
    content_type: HeaderValue,
    qos: Option<HeaderValue>,
    payload: Payload,
}

#[derive(Debug)]
struct Device {
    id: String,
    uri: Uri,
    authorization: Option<HeaderValue>,
    walks: Box<[f64]>,
    count: u64,
}

impl Fleet {
    /// All devices, dealt out to the threads, each at a random moment of its first period after `start`.
    pub(crate) fn all(args: &SimArgs, start: Instant) -> Result<Vec<Arc<Mutex<Self>>>, Error> {
        let mut random = args.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let common = Common::of(args)?;
        let threads = args.threads();
        let mut fleets: Vec<_> = (0..threads).map(|_| Self::empty(common.clone(), random.fork())).collect();
        for number in 0..args.devices {
            let device = Device::new(args, number, &common.payload)?;
            let offset = args.period.mul_f64(random.f64());
            fleets[number as usize % threads].add(device, start, offset);
        }
        for fleet in &mut fleets {
            fleet.offsets.sort_unstable();
        }
        Ok(fleets.into_iter().map(|fleet| Arc::new(Mutex::new(fleet))).collect())
    }

    fn empty(common: Common, random: fastrand::Rng) -> Self {
        let (agenda, devices, offsets) = Default::default();
        Self { agenda, devices, offsets, common, random, started: 0, tally: Tally::default() }
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

    /// The next message of a device.
    pub(crate) fn request(&mut self, device: usize) -> Request<Full<Bytes>> {
        self.started += 1;
        let device = &mut self.devices[device];
        let body = self.common.payload.next(&device.id, device.count, &mut device.walks, &mut self.random);
        device.count += 1;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = self.common.method.clone();
        *request.uri_mut() = device.uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.common.host.clone());
        headers.insert(CONTENT_TYPE, self.common.content_type.clone());
        if let Some(authorization) = &device.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(qos) = &self.common.qos {
            headers.insert(QOS_LEVEL, qos.clone());
        }
        request
    }

    /// How many messages are due by `elapsed` after the start.
    pub(crate) fn messages_due(&self, period: Duration, elapsed: Duration) -> u64 {
        messages_due(&self.offsets, period, elapsed)
    }
}

impl Common {
    fn of(args: &SimArgs) -> Result<Self, Error> {
        let payload = args.payload()?;
        Ok(Self {
            method: match args.method {
                Method::Put => hyper::Method::PUT,
                Method::Post => hyper::Method::POST,
            },
            host: args.target()?.host(),
            content_type: payload.content_type(),
            qos: (args.kind == MessageKind::Telemetry && args.qos == 1).then(|| HeaderValue::from_static("1")),
            payload,
        })
    }
}

impl Device {
    fn new(args: &SimArgs, number: u64, payload: &Payload) -> Result<Self, Error> {
        let id = args.device_id(number);
        let kind = match args.kind {
            MessageKind::Telemetry => "telemetry",
            MessageKind::Event => "event",
        };
        let path = match args.method {
            Method::Put => format!("/{kind}/{}/{id}", args.tenant),
            Method::Post => format!("/{kind}"),
        };
        let uri = path.parse().map_err(|error: hyper::http::uri::InvalidUri| Error::Option {
            option: "device-prefix",
            value: path,
            rule: error.to_string(),
        })?;
        let authorization = match args.auth {
            Auth::Basic => Some(authorization(&id, &args.tenant, &args.password)),
            Auth::None => None,
        };
        Ok(Self { id, uri, authorization, walks: payload.start(), count: 0 })
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
                self.accepted += 1;
                self.latencies.record(latency);
            }
            Err(kind) => *self.failures.entry(kind).or_default() += 1,
        }
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
