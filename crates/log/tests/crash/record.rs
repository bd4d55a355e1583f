//! Records whose every byte follows from a serial number, so that whatever is read can be held against what was sent.

use millstream_log::conformance::Stored;
use millstream_log::sim::Rng;
use millstream_types::{Header, Offset, Record};

/// The name of the only header.
const HEADER: &str = "sim";

/// The bytes of one record.
pub(crate) struct Sent {
    timestamp_ms: i64,
    key: Option<Vec<u8>>,
    value: Vec<u8>,
    header: Option<[Vec<u8>; 1]>,
}

impl Sent {
    pub(crate) fn new(serial: u64) -> Self {
        let mut rng = Rng::new(serial);
        let most = match rng.below(10) {
            0 => 1500,
            1..4 => 800,
            _ => 100,
        };
        let filler = rng.below(most);
        let mut value = serial.to_le_bytes().to_vec();
        value.extend((0..filler).map(|_| rng.bits() as u8));
        Self {
            timestamp_ms: 1_700_000_000_000 + rng.below(100_000) as i64,
            key: rng.chance(70).then(|| rng.below(50).to_string().into_bytes()),
            value,
            header: rng.chance(20).then(|| [serial.to_string().into_bytes()]),
        }
    }

    pub(crate) fn many(serials: std::ops::Range<u64>) -> Vec<Self> {
        serials.map(Self::new).collect()
    }

    /// The header, to be borrowed by [`Sent::record`].
    pub(crate) fn headers(&self) -> Vec<Header<'_>> {
        self.header.iter().flatten().map(|value| Header { key: HEADER, value: Some(value) }).collect()
    }

    pub(crate) fn record<'a>(&'a self, headers: &'a [Header<'a>]) -> Record<'a> {
        Record { timestamp_ms: self.timestamp_ms, key: self.key.as_deref(), value: Some(&self.value), headers }
    }
}

/// The serial number that a record claims to have; `None` if it is no record of ours.
pub(crate) fn serial_of(stored: &Stored) -> Option<u64> {
    let value = stored.value.as_ref()?;
    Some(u64::from_le_bytes(value.get(..8)?.try_into().ok()?))
}

/// Whether `stored` is, byte for byte, the record that was sent as `serial`.
pub(crate) fn is_as_sent(stored: &Stored, serial: u64) -> bool {
    let sent = Sent::new(serial);
    let headers = sent.headers();
    *stored == Stored::at(Offset(stored.offset.0), &sent.record(&headers))
}
