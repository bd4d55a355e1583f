//! The response to a fetch: its structure is encoded in memory, its records are sent from where they are stored.
//!
//! The protocol library would copy every record into the frame. Each message ends in the list that it holds (a
//! response in topics, a topic in partitions, a partition in records), so each message is encoded with an empty list
//! and the elements follow it.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::protocol::Encodable;
use millstream_types::Grant;

use crate::network_send::{NetworkSend, SendBuffer};

/// From this version on, lengths are varints and a message ends in its tagged fields.
const FLEXIBLE: i16 = 12;

/// The response for one partition; `data` itself has no records.
#[derive(Debug)]
pub(crate) struct FetchedPartition {
    pub(crate) data: PartitionData,
    pub(crate) records: Vec<SendBuffer>,
}

impl FetchedPartition {
    /// Size of the records in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.records.iter().map(SendBuffer::size_bytes).sum()
    }
}

/// A fetch response whose records are not copied.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopyFetchResponse {
    /// The response without its topics, which follow.
    pub(crate) response: FetchResponse,
    /// Each topic, and its partitions.
    pub(crate) topics: Vec<(FetchableTopicResponse, Vec<FetchedPartition>)>,
    /// The records' share of the memory budget.
    pub(crate) memory: Option<Grant>,
}

impl ZeroCopyFetchResponse {
    pub(crate) fn encode(self, version: i16) -> Result<NetworkSend, String> {
        let mut out = FetchEncoder { version, parts: NetworkSend::default(), open: BytesMut::new() };
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
        out.parts.push(SendBuffer::Bytes(out.open.freeze()));
        out.parts.hold(self.memory);
        Ok(out.parts)
    }
}

struct FetchEncoder {
    version: i16,
    parts: NetworkSend,
    /// Bytes that were encoded since the last records.
    open: BytesMut,
}

impl FetchEncoder {
    /// Encodes `message`, whose own list is empty, up to the length of that list, and writes `length` instead.
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

    fn put(&mut self, records: SendBuffer) {
        self.parts.push(SendBuffer::Bytes(self.open.split().freeze()));
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
    use crate::network_send::sent;

    fn batch(value_bytes: usize) -> SendBuffer {
        let mut builder = BatchBuilder::default();
        builder.push(&Record { value: Some(&vec![7; value_bytes]), ..Record::default() });
        SendBuffer::Bytes(builder.seal(Offset(5), Epoch(1), Compression::None).bytes().clone())
    }

    fn topic(name: &'static str) -> FetchableTopicResponse {
        FetchableTopicResponse::default().with_topic(TopicName(StrBytes::from_static_str(name)))
    }

    /// The same response, encoded by the protocol library.
    fn by_the_library(fetched: &ZeroCopyFetchResponse, version: i16) -> Bytes {
        let whole = |partition: &FetchedPartition| {
            let mut records = NetworkSend::default();
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
        for version in 4..=16 {
            let partition = |index: i32, records: Vec<SendBuffer>| FetchedPartition {
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
                let fetched = ZeroCopyFetchResponse { response: response.clone(), topics, memory: None };
                let expected = by_the_library(&fetched, version);
                let parts = fetched.encode(version).unwrap();
                assert_eq!(sent(parts), expected, "version {version}");
            }
        }
    }
}
