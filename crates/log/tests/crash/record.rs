//! Records whose every byte follows from a serial number, so that whatever is read can be held against what was sent.

use millstream_testkit::conformance::ReadRecord;
use millstream_testkit::sim::Rng;
use millstream_types::{Header, Offset, Record};

/// The name of the only header.
const HEADER: &str = "sim";

/// Keys in a compacted topic: more than the smallest map of a pass holds.
const KEYS: u64 = 40;

/// The content of a record of a compacted topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: u64,
    /// The key is gone.
    pub(crate) deletes: bool,
}

impl Change {
    pub(crate) fn of(serial: u64) -> Self {
        let mut rng = Rng::new(!serial);
        Self { key: rng.below(KEYS), deletes: rng.chance(30) }
    }
}

/// The bytes of one record.
pub(crate) struct Sent {
    timestamp_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    header: Option<[Vec<u8>; 1]>,
}

impl Sent {
    /// The record of `serial`; in a compacted topic it is a [`Change`].
    pub(crate) fn new(serial: u64, is_change: bool) -> Self {
        let mut sent = Self::plain(serial);
        if is_change {
            let change = Change::of(serial);
            sent.key = Some(change.key.to_string().into_bytes());
            if change.deletes {
                sent.value = None;
                sent.header = Some([serial.to_string().into_bytes()]);
            }
        }
        sent
    }

    fn plain(serial: u64) -> Self {
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
            value: Some(value),
            header: rng.chance(20).then(|| [serial.to_string().into_bytes()]),
        }
    }

    pub(crate) fn many(serials: std::ops::Range<u64>, are_changes: bool) -> Vec<Self> {
        serials.map(|serial| Self::new(serial, are_changes)).collect()
    }

    /// The header, to be borrowed by [`Sent::record`].
    pub(crate) fn headers(&self) -> Vec<Header<'_>> {
        self.header.iter().flatten().map(|value| Header { key: HEADER, value: Some(value) }).collect()
    }

    pub(crate) fn record<'a>(&'a self, headers: &'a [Header<'a>]) -> Record<'a> {
        Record { timestamp_ms: self.timestamp_ms, key: self.key.as_deref(), value: self.value.as_deref(), headers }
    }
}

/// The serial number that a record claims to have; `None` if it is no record of ours.
pub(crate) fn serial_of(stored: &ReadRecord) -> Option<u64> {
    match &stored.value {
        Some(value) => Some(u64::from_le_bytes(value.get(..8)?.try_into().ok()?)),
        None => std::str::from_utf8(stored.headers.first()?.1.as_deref()?).ok()?.parse().ok(),
    }
}

/// Returns `true` if `stored` is, byte for byte, the record that was sent as `serial`.
pub(crate) fn is_as_sent(stored: &ReadRecord, serial: u64, is_change: bool) -> bool {
    let sent = Sent::new(serial, is_change);
    let headers = sent.headers();
    *stored == ReadRecord::at(Offset(stored.offset.0), &sent.record(&headers))
}
