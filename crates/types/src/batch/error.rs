//! The reasons why bytes are not a batch, worded for their sender.

use super::limits::MIN_RECORD_BYTES;
use crate::{Compression, ErrorCode};

/// The reason why bytes are not a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant explains its fields")]
pub enum BatchError {
    /// There are fewer bytes than announced.
    #[error("batch is cut short: {have} of {need} bytes; read the rest before parsing it")]
    Truncated { need: usize, have: usize },
    /// The size of the batch exceeds [`crate::BatchLimits::batch_max_bytes`].
    #[error(
        "batch of {size_bytes} bytes is larger than {limit_bytes}, the most that one may have; send smaller batches"
    )]
    TooLarge { size_bytes: usize, limit_bytes: usize },
    /// The inflated batch exceeds [`crate::BatchLimits::inflated_max_bytes`].
    #[error("batch inflates to more than {limit_bytes} bytes, the most that one may have; send smaller batches")]
    InflatedTooLarge { limit_bytes: usize },
    /// The batch has an older or newer format.
    #[error("batch has magic {magic}, and only 2 is read; use a client of Kafka 0.11 or later")]
    Magic { magic: i8 },
    /// The codec number is unknown.
    #[error(
        "batch names codec {codec}, and Kafka's codecs are 0 to 4; set the producer's compression.type to none, gzip, snappy, lz4 or zstd"
    )]
    UnknownCodec { codec: u16 },
    /// A number in the header breaks its rule.
    #[error("batch header has {field} {value}, which must be {rule}; the program that built it is at fault")]
    Header { field: &'static str, value: i64, rule: &'static str },
    /// The CRC does not match the bytes.
    #[error(
        "batch has CRC32C {computed:08x}, and its header says {stored:08x}: bytes were changed on the way or at rest; send or fetch it again"
    )]
    Checksum { stored: u32, computed: u32 },
    /// The header claims more records than the bytes can hold.
    #[error(
        "batch of {body_bytes} bytes of records claims {count} of them, and each takes at least {MIN_RECORD_BYTES}; the program that built it is at fault"
    )]
    RecordCount { count: u32, body_bytes: usize },
    /// The records must be inflated first.
    #[error("batch is compressed with {}; inflate it before reading its records", .codec.as_str())]
    Compressed { codec: Compression },
    /// The codec cannot inflate the records.
    #[error("batch does not inflate as {}: {reason}; the program that compressed it is at fault", .codec.as_str())]
    Inflate { codec: Compression, reason: Box<str> },
    /// A record of it is malformed.
    #[error("record {index} of the batch is malformed: {fault}; the program that built the batch is at fault")]
    Record { index: u32, fault: RecordFault },
    /// There are bytes after the last record.
    #[error("batch has {extra_bytes} bytes after its {count} records; the program that built it is at fault")]
    Excess { count: u32, extra_bytes: usize },
}

impl BatchError {
    /// The kind of failure for callers. None of them is retryable, and none leaves anything behind.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } | Self::InflatedTooLarge { .. } => ErrorCode::TooLarge,
            Self::Magic { .. } => ErrorCode::Unsupported,
            Self::Checksum { .. } => ErrorCode::Corrupt,
            _ => ErrorCode::Invalid,
        }
    }
}

/// The fault of a malformed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant explains its fields")]
pub enum RecordFault {
    /// The bytes end within a number.
    #[error("it ends inside its {field}")]
    CutShort { field: &'static str },
    /// A number has more bytes or bits than its type.
    #[error("its {field} is a varint of more than {max_bits} bits")]
    VarintTooLong { field: &'static str, max_bits: u32 },
    /// A length is negative (where null is not allowed) or exceeds the remaining bytes.
    #[error("its {field} is {value}, and {left_bytes} bytes are left")]
    Length { field: &'static str, value: i32, left_bytes: usize },
    /// The offsets do not ascend, or leave the batch.
    #[error("its offset delta is {value}, which must be within {min} and {max}")]
    OffsetDelta { value: i32, min: u32, max: u32 },
    /// The name of a header is not text.
    #[error("the name of its header {index} is not UTF-8")]
    HeaderName { index: usize },
    /// There are bytes after the last header.
    #[error("it has {extra_bytes} bytes after its last header")]
    Excess { extra_bytes: usize },
}
