//! The record pool of the live-query tests: produce requests that are rendered once and changed in place.

use bytes::BytesMut;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use memchr::memmem;
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record, SystemClock, WallClock as _};

use super::KafkaError;
use super::client::{CORRELATION_AT, encode};

const VERSION: i16 = 7;
const TIMEOUT_MS: i32 = 30_000;
/// Position of a batch's checksum, and start of the bytes that it covers.
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

/// A field of a record that can be overwritten with a value of the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerField {
    /// `id`: a text of ten hexadecimal digits.
    Id,
    /// `long_1`: an integer of ten digits.
    Long,
    /// `text_10`: 34 letters and digits, of which the first are changed.
    Text,
    /// `flag_1`: either `true ` or `false`.
    Flag,
    /// `seq`: an integer of eight digits.
    Sequence,
    /// `emitted_us`: an integer of sixteen digits.
    Emitted,
}

impl MarkerField {
    /// Text before the value of the field.
    fn prefix(self) -> &'static str {
        match self {
            Self::Id => "\"id\":\"",
            Self::Long => "\"long_1\":",
            Self::Text => "\"text_10\":\"",
            Self::Flag => "\"flag_1\":",
            Self::Sequence => "\"seq\":\"",
            Self::Emitted => "\"emitted_us\":",
        }
    }
}

/// A produce request with one batch of records.
#[derive(Debug)]
pub(super) struct ProduceFrame {
    pub(super) bytes: BytesMut,
    batch_at: usize,
    /// Start of each record's payload.
    records: Vec<usize>,
    record_bytes: usize,
}

/// A record: 27 texts, 5 integers, 2 doubles, 2 booleans, 3 maps of 4 and 1 list of 2 maps, always of one length; `id`,
/// which is ten hexadecimal digits, comes last.
pub fn render(random: &mut fastrand::Rng) -> String {
    let mut text = |length: usize| -> String { (0..length).map(|_| random.alphanumeric()).collect() };
    let mut members: Vec<String> = (0..25).map(|i| format!("\"text_{i:02}\":\"{}\"", text(34))).collect();
    for name in ["map_a", "map_b", "map_c"] {
        let inner: Vec<String> = (0..4).map(|i| format!("\"key_{i}\":\"{}\"", text(18))).collect();
        members.push(format!("\"{name}\":{{{}}}", inner.join(",")));
    }
    members.push(format!("\"list\":[{{\"x\":\"{}\"}},{{\"x\":\"{}\"}}]", text(10), text(10)));
    members.extend((0..4).map(|i| format!("\"long_{i}\":{}", random.u64(1_000_000_000..5_000_000_000))));
    members.push("\"emitted_us\":1000000000000000".to_owned());
    members.extend((0..2).map(|i| format!("\"double_{i}\":{:.6}", 100.0 + random.f64() * 899.0)));
    members.extend((0..2).map(|i| format!("\"flag_{i}\":{}", if random.bool() { "true " } else { "false" })));
    members.push("\"seq\":\"00000000\"".to_owned());
    members.push(format!("\"id\":\"{:010x}\"", random.u64(..) >> 24));
    format!("{{{}}}", members.join(","))
}

/// Renders requests with all records of the pool, round robin over the partitions.
pub(super) fn frames(
    topic: &str,
    partitions: u32,
    batches: usize,
    batch_records: usize,
) -> Result<Vec<ProduceFrame>, KafkaError> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..batches).map(|number| frame(topic, number as u32 % partitions, batch_records, &mut random)).collect()
}

fn frame(topic: &str, partition: u32, records: usize, random: &mut fastrand::Rng) -> Result<ProduceFrame, KafkaError> {
    let timestamp_ms = SystemClock::default().now_ms();
    let mut builder = BatchBuilder::default();
    let payloads: Vec<String> = (0..records).map(|_| render(random)).collect();
    for payload in &payloads {
        builder.push(&Record { timestamp_ms, value: Some(payload.as_bytes()), ..Record::default() });
    }
    let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
    let data =
        PartitionProduceData::default().with_index(partition.cast_signed()).with_records(Some(batch.bytes().clone()));
    let topic = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(1).with_timeout_ms(TIMEOUT_MS).with_topic_data(vec![topic]);
    let bytes = encode(&request, VERSION)?;
    let missing = || KafkaError::Answer { request: "Produce", why: "the request does not hold its batch".to_owned() };
    let batch_at = memmem::find(&bytes, batch.bytes()).ok_or_else(missing)?;
    let records = payloads.iter().filter_map(|payload| memmem::find(&bytes, payload.as_bytes())).collect();
    Ok(ProduceFrame { bytes, batch_at, records, record_bytes: payloads.first().map_or(0, String::len) })
}

impl ProduceFrame {
    /// Range of the first `length` bytes of a field.
    fn field(&self, record: usize, field: MarkerField, length: usize) -> Option<std::ops::Range<usize>> {
        let start = *self.records.get(record)?;
        let payload = &self.bytes[start..start + self.record_bytes];
        let prefix = field.prefix();
        let at = start + memmem::find(payload, prefix.as_bytes())? + prefix.len();
        Some(at..at + length)
    }

    /// Overwrites the field with `value` and returns the previous text.
    pub(super) fn write(&mut self, record: usize, field: MarkerField, value: &str) -> String {
        let Some(place) = self.field(record, field, value.len()) else { return String::new() };
        let before = String::from_utf8_lossy(&self.bytes[place.clone()]).into_owned();
        self.bytes[place].copy_from_slice(value.as_bytes());
        before
    }

    /// Writes the send time into all records. All have one length, so the field has the same position in each.
    pub(super) fn stamp(&mut self, emitted_us: &str) {
        let (Some(first), Some(place)) = (self.records.first(), self.field(0, MarkerField::Emitted, emitted_us.len()))
        else {
            return;
        };
        let within = place.start - first;
        for record in &self.records {
            let at = record + within;
            self.bytes[at..at + emitted_us.len()].copy_from_slice(emitted_us.as_bytes());
        }
    }

    /// Updates correlation id and checksum after changes.
    pub(super) fn seal(&mut self, correlation: u32) {
        self.bytes[CORRELATION_AT].copy_from_slice(&correlation.to_be_bytes());
        let (head, covered) = self.bytes.split_at_mut(self.batch_at + CRC_FROM);
        // After the batch come only zero bytes of the request, which do not change the checksum.
        let length = u32::from_be_bytes(head[self.batch_at + 8..][..4].try_into().unwrap_or_default()) as usize;
        let end = (length + 12 - CRC_FROM).min(covered.len());
        let crc = crc32c::crc32c(&covered[..end]);
        head[self.batch_at + CRC_AT..][..4].copy_from_slice(&crc.to_be_bytes());
    }

    pub(super) fn record_count(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::RecordBatch;

    use super::*;

    #[test]
    fn records_have_the_published_shape_and_changed_frames_are_whole() {
        let mut random = fastrand::Rng::with_seed(7);
        let record: serde_json::Value = serde_json::from_str(&render(&mut random)).unwrap();
        assert_eq!(record.as_object().unwrap().len(), 40);
        let bytes = render(&mut random).len();
        assert!(bytes.abs_diff(1843) <= 1843 * 3 / 100, "{bytes}");
        let mut frame = frame("t", 0, 5, &mut random).unwrap();
        frame.stamp("1234567890123456");
        let before = frame.write(3, MarkerField::Id, "planted-it");
        frame.write(3, MarkerField::Sequence, "00000017");
        frame.seal(9);
        let end = frame.bytes.len();
        let batch =
            RecordBatch::parse(bytes::Bytes::copy_from_slice(&frame.bytes[frame.batch_at..end]), &Default::default());
        let payloads: Vec<serde_json::Value> = batch
            .unwrap()
            .records()
            .map(|record| serde_json::from_slice(record.unwrap().value.unwrap()).unwrap())
            .collect();
        assert!(payloads.iter().all(|payload| payload["emitted_us"] == 1_234_567_890_123_456_u64));
        assert_eq!((&payloads[3]["id"], &payloads[3]["seq"]), (&"planted-it".into(), &"00000017".into()));
        assert_eq!(before.len(), 10);
        assert_ne!(payloads[2]["id"], "planted-it");
    }
}
