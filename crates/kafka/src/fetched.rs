//! The answer to a fetch: what surrounds the records is encoded, the records go out as they lie.
//!
//! The library would copy every record into the frame. Its messages end in what they hold (an answer in topics, a topic in
//! partitions, a partition in records), so each is encoded without, and what it holds is put at its end.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::protocol::Encodable;
use millstream_types::Grant;

use crate::parts::{Part, Parts};

/// From this version on, lengths are varints and a message ends in its tagged fields.
const FLEXIBLE: i16 = 12;

/// A partition's part of an answer; `data` has no records itself.
#[derive(Debug)]
pub(crate) struct FetchedPartition {
    pub(crate) data: PartitionData,
    pub(crate) records: Vec<Part>,
}

impl FetchedPartition {
    /// How many bytes its records take.
    pub(crate) fn size_bytes(&self) -> usize {
        self.records.iter().map(Part::size_bytes).sum()
    }
}

/// What a fetch is answered with.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    /// Its topics are those below.
    pub(crate) response: FetchResponse,
    /// Each topic, and its partitions.
    pub(crate) topics: Vec<(FetchableTopicResponse, Vec<FetchedPartition>)>,
    /// What the records take of the memory budget.
    pub(crate) memory: Option<Grant>,
}

impl Fetched {
    /// The answer behind its header.
    pub(crate) fn encode(self, version: i16) -> Result<Parts, String> {
        let mut out = Writer { version, parts: Parts::default(), open: BytesMut::new() };
        out.begin(&self.response, self.topics.len())?;
        for (topic, partitions) in self.topics {
            out.begin(&topic, partitions.len())?;
            for mut partition in partitions {
                partition.data.records = Some(bytes::Bytes::new());
                out.begin(&partition.data, partition.size_bytes())?;
                for part in partition.records {
                    out.put(part);
                }
                out.end();
            }
            out.end();
        }
        out.end();
        out.parts.push(Part::Bytes(out.open.freeze()));
        out.parts.hold(self.memory);
        Ok(out.parts)
    }
}

struct Writer {
    version: i16,
    parts: Parts,
    /// What is encoded since the last records.
    open: BytesMut,
}

impl Writer {
    /// All of `message` up to what it holds, which is empty in it and will have this length.
    fn begin(&mut self, message: &impl Encodable, length: usize) -> Result<(), String> {
        message.encode(&mut self.open, self.version).map_err(|e| e.to_string())?;
        let length = u32::try_from(length).map_err(|e| e.to_string())?;
        if self.version < FLEXIBLE {
            // A count of 0 as four bytes.
            self.open.truncate(self.open.len() - 4);
            self.open.put_u32(length);
        } else {
            // A count of 0 as one byte, and no tagged fields.
            self.open.truncate(self.open.len() - 2);
            put_varint(&mut self.open, length + 1);
        }
        Ok(())
    }

    fn put(&mut self, records: Part) {
        self.parts.push(Part::Bytes(self.open.split().freeze()));
        self.parts.push(records);
    }

    fn end(&mut self) {
        if self.version >= FLEXIBLE {
            self.open.put_u8(0);
        }
    }
}

fn put_varint(out: &mut BytesMut, mut number: u32) {
    while number >= 0x80 {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages::TopicName;
    use kafka_protocol::messages::fetch_response::AbortedTransaction;
    use kafka_protocol::protocol::StrBytes;
    use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record};

    use super::*;
    use crate::parts::sent;

    fn batch(value_bytes: usize) -> Part {
        let mut builder = BatchBuilder::default();
        builder.push(&Record { value: Some(&vec![7; value_bytes]), ..Record::default() });
        Part::Bytes(builder.seal(Offset(5), Epoch(1), Compression::None).bytes().clone())
    }

    fn topic(name: &'static str) -> FetchableTopicResponse {
        FetchableTopicResponse::default().with_topic(TopicName(StrBytes::from_static_str(name)))
    }

    /// What the library makes of the same answer.
    fn by_the_library(fetched: &Fetched, version: i16) -> Bytes {
        let whole = |partition: &FetchedPartition| {
            let mut records = Parts::default();
            partition.records.iter().for_each(|part| records.push(part.clone()));
            partition.data.clone().with_records(Some(sent(records).into()))
        };
        let topics = fetched.topics.iter();
        let topics =
            topics.map(|(topic, partitions)| topic.clone().with_partitions(partitions.iter().map(whole).collect()));
        let mut bytes = BytesMut::new();
        fetched.response.clone().with_responses(topics.collect()).encode(&mut bytes, version).unwrap();
        bytes.freeze()
    }

    #[test]
    fn an_answer_in_parts_is_byte_for_byte_that_of_the_library() {
        for version in 4..=12 {
            let partition = |index: i32, records: Vec<Part>| FetchedPartition {
                data: PartitionData::default()
                    .with_partition_index(index)
                    .with_high_watermark(9)
                    .with_aborted_transactions(Some(vec![AbortedTransaction::default()]))
                    .with_error_code(if records.is_empty() { 3 } else { 0 }),
                records,
            };
            let full = (topic("full"), vec![partition(0, vec![batch(1), batch(40_000)]), partition(1, Vec::new())]);
            let response = FetchResponse::default().with_throttle_time_ms(5);
            for topics in [Vec::new(), vec![(topic("none"), Vec::new()), full]] {
                let fetched = Fetched { response: response.clone(), topics, memory: None };
                let expected = by_the_library(&fetched, version);
                let parts = fetched.encode(version).unwrap();
                assert_eq!(sent(parts), expected, "version {version}");
            }
        }
    }
}
