//! The message of a refused batch names the value, the rule and the remedy.

use millstream_types::{BatchError, BatchLimits, Compression, ErrorCode, Offset, RecordBatch, RecordFault};

use crate::support::{Owned, built, reseal};

fn whole(codec: Compression) -> Vec<u8> {
    let record = Owned { offset_delta: 0, timestamp_ms: 5, key: None, value: Some(vec![b'x'; 400]), headers: vec![] };
    built(&[record], Offset(7), codec).bytes().to_vec()
}

/// Parses `bytes` and reads all its records, as they are or after fitting length and CRC to them.
fn refusal(bytes: &[u8]) -> BatchError {
    let limits = BatchLimits { batch_max_bytes: 1000, inflated_max_bytes: 470 };
    RecordBatch::parse(bytes.to_vec().into(), &limits)
        .and_then(|batch| batch.inflated(&limits)?.records().try_for_each(|record| record.map(drop)))
        .unwrap_err()
}

fn refusal_of(codec: Compression, at: usize, value: &[u8]) -> BatchError {
    let mut bytes = whole(codec);
    bytes[at..at + value.len()].copy_from_slice(value);
    reseal(&mut bytes);
    refusal(&bytes)
}

#[test]
fn every_refusal_names_value_rule_and_remedy() {
    let flat = |at, value: &[u8]| refusal_of(Compression::None, at, value);
    let bytes = whole(Compression::None);
    let patched = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        refusal(&bytes)
    };
    let excess = || {
        let mut bytes = [&bytes[..], b"more"].concat();
        reseal(&mut bytes);
        refusal(&bytes)
    };
    let table = [
        (
            refusal(&bytes[..60]),
            ErrorCode::Invalid,
            "batch is cut short: 60 of 61 bytes; read the rest before parsing it",
        ),
        (
            patched(8, &9999_i32.to_be_bytes()),
            ErrorCode::TooLarge,
            "batch of 10011 bytes is larger than 1000, the most that one may have; send smaller batches",
        ),
        (
            patched(8, &48_i32.to_be_bytes()),
            ErrorCode::Invalid,
            "batch header has length 48, which must be at least 49, the rest of the header; the program that built it is at fault",
        ),
        (
            patched(8, &(-1_i32).to_be_bytes()),
            ErrorCode::Invalid,
            "batch header has length -1, which must be at least 49, the rest of the header; the program that built it is at fault",
        ),
        (
            patched(16, &[1]),
            ErrorCode::Unsupported,
            "batch has magic 1, and only 2 is read; use a client of Kafka 0.11 or later",
        ),
        (
            patched(17, &[1, 2, 3, 4]),
            ErrorCode::Corrupt,
            "bytes were changed on the way or at rest; send or fetch it again",
        ),
        (
            flat(22, &[7]),
            ErrorCode::Invalid,
            "batch names codec 7, and Kafka's codecs are 0 to 4; set the producer's compression.type to none, gzip, snappy, lz4 or zstd",
        ),
        (
            flat(0, &(-3_i64).to_be_bytes()),
            ErrorCode::Invalid,
            "batch header has base offset -3, which must be zero or more; the program that built it is at fault",
        ),
        (
            flat(0, &i64::MAX.to_be_bytes()),
            ErrorCode::Invalid,
            "batch header has base offset 9223372036854775807, which must be such that all offsets are below 2^63-1; the program that built it is at fault",
        ),
        (
            flat(23, &(-1_i32).to_be_bytes()),
            ErrorCode::Invalid,
            "batch header has last offset delta -1, which must be zero or more; the program that built it is at fault",
        ),
        (
            flat(57, &(-1_i32).to_be_bytes()),
            ErrorCode::Invalid,
            "batch header has record count -1, which must be zero or more; the program that built it is at fault",
        ),
        (
            flat(57, &2_i32.to_be_bytes()),
            ErrorCode::Invalid,
            "batch header has record count 2, which must be at most one more than the last offset delta; the program that built it is at fault",
        ),
        (
            flat(
                23,
                &[
                    0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 5, 255, 255, 255, 255, 255, 255, 255,
                    255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 99,
                ],
            ),
            ErrorCode::Invalid,
            "batch of 409 bytes of records claims 99 of them, and each takes at least 7; the program that built it is at fault",
        ),
        (
            flat(61, &[0x7f]),
            ErrorCode::Invalid,
            "record 0 of the batch is malformed: its length is -64, and 408 bytes are left; the program that built the batch is at fault",
        ),
        (excess(), ErrorCode::Invalid, "batch has 4 bytes after its 1 records; the program that built it is at fault"),
        (
            refusal_of(Compression::Zstd, 61, b"oops"),
            ErrorCode::Invalid,
            "batch does not inflate as zstd: Unknown frame descriptor; the program that compressed it is at fault",
        ),
        (
            refusal_of(Compression::Lz4, 61, b"oops"),
            ErrorCode::Invalid,
            "batch does not inflate as lz4: WrongMagicNumber; the program that compressed it is at fault",
        ),
    ];
    for (error, code, text) in table {
        assert!(error.to_string().ends_with(text), "{error}\n{text}");
        assert_eq!(error.code(), code, "{error}");
    }
}

#[test]
fn errors_of_large_and_compressed_batches_name_the_remedy() {
    let bytes = whole(Compression::Zstd);
    let batch = RecordBatch::parse(bytes.into(), &BatchLimits::default()).unwrap();
    let error = batch.inflated(&BatchLimits { inflated_max_bytes: 400, ..BatchLimits::default() }).unwrap_err();
    let text = "batch inflates to more than 400 bytes, the most that one may have; send smaller batches";
    assert_eq!((error.to_string().as_str(), error.code()), (text, ErrorCode::TooLarge));
    let found: Vec<_> = batch.records().map(|record| record.unwrap_err().to_string()).collect();
    assert_eq!(found, ["batch is compressed with zstd; inflate it before reading its records"]);
}

#[test]
fn every_fault_of_a_record_names_value_and_rule() {
    let table = [
        (RecordFault::CutShort { field: "offset delta" }, "it ends inside its offset delta"),
        (
            RecordFault::VarintTooLong { field: "key length", max_bits: 32 },
            "its key length is a varint of more than 32 bits",
        ),
        (
            RecordFault::Length { field: "value length", value: 900, left_bytes: 12 },
            "its value length is 900, and 12 bytes are left",
        ),
        (RecordFault::OffsetDelta { value: 3, min: 4, max: 9 }, "its offset delta is 3, which must be within 4 and 9"),
        (RecordFault::HeaderName { index: 2 }, "the name of its header 2 is not UTF-8"),
        (RecordFault::Excess { extra_bytes: 5 }, "it has 5 bytes after its last header"),
    ];
    for (fault, text) in table {
        assert_eq!(fault.to_string(), text);
    }
}
