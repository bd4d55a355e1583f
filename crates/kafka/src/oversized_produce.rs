//! Reads a produce request over the size limit without its records, so that its partitions can be answered
//! `MESSAGE_TOO_LARGE`. The records are dropped as they arrive and take no room.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;

use crate::error::ConnectionError;
use crate::read_buffer::ReadBuffer;
use crate::supported_apis::SupportedApis;

/// Larger requests end their connection: Kafka's own limit for any request.
const REQUEST_MAX_BYTES: usize = 100 << 20;
/// The largest size of such a request without its records.
const KEPT_MAX_BYTES: usize = 64 << 10;
/// The first request version with variable-length lengths.
const FLEXIBLE: i16 = 9;
const VARINT_MAX_BYTES: u32 = 5;

/// Reader of one oversized request.
pub(crate) struct OversizedProduce<'a> {
    buffer: &'a mut ReadBuffer,
    left_bytes: usize,
    kept: BytesMut,
    is_flexible: bool,
}

impl<'a> OversizedProduce<'a> {
    /// A reader for a request of `size_bytes`, whose length has been read; `None` if even this reader
    /// does not accept that size.
    pub(crate) fn new(buffer: &'a mut ReadBuffer, size_bytes: usize) -> Option<Self> {
        let kept = BytesMut::new();
        (size_bytes <= REQUEST_MAX_BYTES).then_some(Self { buffer, left_bytes: size_bytes, kept, is_flexible: false })
    }

    /// The request without records; `None` if it is malformed or not a produce request.
    pub(crate) async fn run(mut self, supported: &SupportedApis) -> Result<Option<Bytes>, ConnectionError> {
        Ok(self.request(supported).await?.map(|()| self.kept.freeze()))
    }

    async fn request(&mut self, supported: &SupportedApis) -> Result<Option<()>, ConnectionError> {
        let Some(mut start) = self.keep(8).await? else { return Ok(None) };
        let (key, version) = (start.get_i16(), start.get_i16());
        if key != ApiKey::Produce as i16 || !supported.contains(key, version) {
            return Ok(None);
        }
        self.is_flexible = version >= FLEXIBLE;
        // The client id has a fixed-length size in any header version.
        let Some(mut length) = self.keep(2).await? else { return Ok(None) };
        let length = usize::try_from(length.get_i16()).unwrap_or(0);
        if self.keep(length).await?.is_none() || self.tags().await?.is_none() {
            return Ok(None);
        }
        // Transactional id, acks, timeout.
        if self.text().await?.is_none() || self.keep(6).await?.is_none() {
            return Ok(None);
        }
        let Some(topics) = self.count().await? else { return Ok(None) };
        for _ in 0..topics {
            if self.topic().await?.is_none() {
                return Ok(None);
            }
        }
        if self.tags().await?.is_none() || self.left_bytes > 0 {
            return Ok(None);
        }
        Ok(Some(()))
    }

    async fn topic(&mut self) -> Result<Option<()>, ConnectionError> {
        if self.text().await?.is_none() {
            return Ok(None);
        }
        let Some(partitions) = self.count().await? else { return Ok(None) };
        for _ in 0..partitions {
            // The partition index.
            if self.keep(4).await?.is_none() || self.records().await?.is_none() || self.tags().await?.is_none() {
                return Ok(None);
            }
        }
        self.tags().await
    }

    /// Drops the records of a partition, and writes *null* in their place.
    async fn records(&mut self) -> Result<Option<()>, ConnectionError> {
        let before = self.kept.len();
        let length = if self.is_flexible {
            self.varint().await?.map(|length| length.saturating_sub(1))
        } else {
            self.keep(4).await?.map(|mut length| usize::try_from(length.get_i32()).unwrap_or(0))
        };
        let Some(length) = length.filter(|length| *length <= self.left_bytes) else { return Ok(None) };
        self.kept.truncate(before);
        if self.is_flexible {
            self.kept.put_u8(0)
        } else {
            self.kept.put_i32(-1)
        }
        self.left_bytes -= length;
        Ok(self.buffer.skip(length).await?.then_some(()))
    }

    /// Reads a nullable string; `None` if it is null.
    async fn text(&mut self) -> Result<Option<()>, ConnectionError> {
        let length = if self.is_flexible {
            self.varint().await?.map(|length| length.saturating_sub(1))
        } else {
            self.keep(2).await?.map(|mut length| usize::try_from(length.get_i16()).unwrap_or(0))
        };
        let Some(length) = length else { return Ok(None) };
        Ok(self.keep(length).await?.map(drop))
    }

    async fn count(&mut self) -> Result<Option<usize>, ConnectionError> {
        if self.is_flexible {
            return Ok(self.varint().await?.map(|count| count.saturating_sub(1)));
        }
        Ok(self.keep(4).await?.map(|mut count| usize::try_from(count.get_i32()).unwrap_or(0)))
    }

    /// Tagged fields, where there are any.
    async fn tags(&mut self) -> Result<Option<()>, ConnectionError> {
        if !self.is_flexible {
            return Ok(Some(()));
        }
        let Some(tags) = self.varint().await? else { return Ok(None) };
        for _ in 0..tags {
            let (Some(_), Some(length)) = (self.varint().await?, self.varint().await?) else { return Ok(None) };
            if self.keep(length).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    async fn varint(&mut self) -> Result<Option<usize>, ConnectionError> {
        let mut number = 0_u64;
        for at in 0..VARINT_MAX_BYTES {
            let Some(mut byte) = self.keep(1).await? else { return Ok(None) };
            let byte = byte.get_u8();
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(usize::try_from(number).ok());
            }
        }
        Ok(None)
    }

    /// Reads the next bytes and keeps them for the request.
    async fn keep(&mut self, bytes: usize) -> Result<Option<Bytes>, ConnectionError> {
        if bytes > self.left_bytes || self.kept.len() + bytes > KEPT_MAX_BYTES {
            return Ok(None);
        }
        let Some(taken) = self.buffer.take(bytes).await? else { return Ok(None) };
        self.left_bytes -= bytes;
        self.kept.put_slice(&taken);
        Ok(Some(taken))
    }
}
