//! Why bytes are not a batch, in words for the one who sent them.

use super::header::MIN_RECORD_BYTES;
use crate::{Compression, ErrorCode};

/// Why bytes are not a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Fewer bytes than announced.
    #[error("batch is cut short: {have} of {need} bytes; read the rest before parsing it")]
    Truncated {
        /// Bytes announced; the header's size while even that is incomplete.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// Larger than [`crate::BatchLimits::batch_max_bytes`].
    #[error(
        "batch of {size_bytes} bytes is larger than {limit_bytes}, the most that one may have; send smaller batches"
    )]
    TooLarge {
        /// Size that its header announces.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// Larger than [`crate::BatchLimits::inflated_max_bytes`] once inflated.
    #[error("batch inflates to more than {limit_bytes} bytes, the most that one may have; send smaller batches")]
    InflatedTooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// An older or newer format.
    #[error("batch has magic {magic}, and only 2 is read; use a client of Kafka 0.11 or later")]
    Magic {
        /// The format's number.
        magic: i8,
    },
    /// A codec that nobody knows.
    #[error(
        "batch names codec {codec}, and Kafka's codecs are 0 to 4; set the producer's compression.type to none, gzip, snappy, lz4 or zstd"
    )]
    UnknownCodec {
        /// Bits 0 to 2 of the attributes.
        codec: u16,
    },
    /// A number in the header breaks its rule.
    #[error("batch header has {field} {value}, which must be {rule}; the program that built it is at fault")]
    Header {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: i64,
        /// What is allowed.
        rule: &'static str,
    },
    /// Not the bytes that the sender meant.
    #[error(
        "batch has CRC32C {computed:08x}, and its header says {stored:08x}: bytes were changed on the way or at rest; send or fetch it again"
    )]
    Checksum {
        /// What the header says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// More records than the bytes can hold.
    #[error(
        "batch of {body_bytes} bytes of records claims {count} of them, and each takes at least {MIN_RECORD_BYTES}; the program that built it is at fault"
    )]
    RecordCount {
        /// Records announced.
        count: u32,
        /// Bytes that hold them, inflated.
        body_bytes: usize,
    },
    /// Records were asked for before inflating.
    #[error("batch is compressed with {}; inflate it before reading its records", .codec.as_str())]
    Compressed {
        /// Its codec.
        codec: Compression,
    },
    /// The codec could not undo what it should have done.
    #[error("batch does not inflate as {}: {reason}; the program that compressed it is at fault", .codec.as_str())]
    Inflate {
        /// Its codec.
        codec: Compression,
        /// What the codec says.
        reason: Box<str>,
    },
    /// One of its records is malformed.
    #[error("record {index} of the batch is malformed: {fault}; the program that built the batch is at fault")]
    Record {
        /// Which one, from 0.
        index: u32,
        /// What is wrong with it.
        fault: RecordFault,
    },
    /// Bytes after the last record.
    #[error("batch has {extra_bytes} bytes after its {count} records; the program that built it is at fault")]
    Excess {
        /// Records announced.
        count: u32,
        /// Bytes that are none of them.
        extra_bytes: usize,
    },
}

impl BatchError {
    /// What it is to a caller of any door. None of these is retryable, and none leaves anything behind.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } | Self::InflatedTooLarge { .. } => ErrorCode::TooLarge,
            Self::Magic { .. } => ErrorCode::Unsupported,
            Self::Checksum { .. } => ErrorCode::Corrupt,
            _ => ErrorCode::Invalid,
        }
    }
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFault {
    /// The bytes end within a number.
    #[error("it ends inside its {field}")]
    CutShort {
        /// Which number.
        field: &'static str,
    },
    /// A number of more bytes or bits than its type has.
    #[error("its {field} is a varint of more than {max_bits} bits")]
    VarintTooLong {
        /// Which number.
        field: &'static str,
        /// Bits of its type.
        max_bits: u32,
    },
    /// A length that is negative (where null is not allowed) or more than what is there.
    #[error("its {field} is {value}, and {left_bytes} bytes are left")]
    Length {
        /// Which length.
        field: &'static str,
        /// Its value.
        value: i32,
        /// Bytes after it.
        left_bytes: usize,
    },
    /// Offsets do not ascend, or leave the batch.
    #[error("its offset delta is {value}, which must be within {min} and {max}")]
    OffsetDelta {
        /// Its value.
        value: i32,
        /// One more than that of the record before.
        min: u32,
        /// That of the batch's last offset.
        max: u32,
    },
    /// A header's name is not text.
    #[error("the name of its header {index} is not UTF-8")]
    HeaderName {
        /// Which header, from 0.
        index: usize,
    },
    /// Bytes after the last header.
    #[error("it has {extra_bytes} bytes after its last header")]
    Excess {
        /// How many.
        extra_bytes: usize,
    },
}
