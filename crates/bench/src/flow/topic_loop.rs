//! The baseline of a job from topic to topic: one thread that reads, finds, computes and appends.

use std::io::Write as _;
use std::ops::Range;
use std::time::Duration;

use anyhow::Context as _;
use millstream_log::{AckLevel, Done, Partition, UpTo};
use millstream_types::{Record, RecordBatch};

use super::member::find_two;

/// Bytes of one read, as the source `stream` asks for.
const READ_MAX_BYTES: usize = 1 << 20;
/// Pause before a refused append is repeated.
const REST: Duration = Duration::from_micros(100);

/// Readings above this temperature pass the filter.
pub(super) const WARM: f64 = 20.0;

/// Reads everything that `from` holds, and appends the warm readings with two computed members to `to`.
pub(super) fn run(from: &dyn Partition, to: &dyn Partition) -> anyhow::Result<()> {
    let offsets = from.offsets();
    let (mut next, mut made) = (offsets.first, MadeRecords::default());
    while next < offsets.stable {
        for batch in from.read(next, READ_MAX_BYTES, UpTo::Stable)? {
            next = batch.next_offset();
            made.compute(&batch)?;
            made.append(&batch, to)?;
        }
    }
    Ok(())
}

/// The records that one batch leads to.
#[derive(Default)]
struct MadeRecords {
    payloads: Vec<u8>,
    /// The number of the source record in its batch, and the place of the new payload.
    rows: Vec<(usize, Range<usize>)>,
}

impl MadeRecords {
    fn compute(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        self.payloads.clear();
        self.rows.clear();
        for (number, record) in batch.records().enumerate() {
            let payload = record?.value.unwrap_or_default();
            let [temp, hum] = find_two(payload, [b"temp", b"hum"]).map(|value| value.and_then(parse));
            let (Some(temp), Some(hum)) = (temp, hum) else { continue };
            if temp > WARM {
                let start = self.payloads.len();
                self.payloads.extend_from_slice(payload.strip_suffix(b"}").context("a payload is no object")?);
                self.push_member("fahrenheit", temp * 9.0 / 5.0 + 32.0)?;
                self.push_member("share", hum / 100.0)?;
                self.payloads.push(b'}');
                self.rows.push((number, start..self.payloads.len()));
            }
        }
        Ok(())
    }

    fn push_member(&mut self, name: &str, value: f64) -> anyhow::Result<()> {
        write!(self.payloads, ",\"{name}\":")?;
        Ok(serde_json::to_writer(&mut self.payloads, &value)?)
    }

    /// Appends the records with the keys and times of their sources.
    fn append(&self, batch: &RecordBatch, to: &dyn Partition) -> anyhow::Result<()> {
        let mut rows = self.rows.iter().peekable();
        let mut records = Vec::with_capacity(self.rows.len());
        for (number, source) in batch.records().enumerate() {
            let Some((_, span)) = rows.next_if(|(wanted, _)| *wanted == number) else { continue };
            let source = source?;
            let value = Some(&self.payloads[span.clone()]);
            records.push(Record { timestamp_ms: source.timestamp_ms, key: source.key, value, headers: &[] });
        }
        while !records.is_empty() {
            match to.append(&records, AckLevel::Memory, Done::ignore()) {
                Ok(()) => break,
                Err(error) if error.is_retryable() => std::thread::park_timeout(REST),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn parse(value: &[u8]) -> Option<f64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
